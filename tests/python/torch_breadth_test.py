"""Networks that are no classifiers, as their authors wrote them: a U-Net, backbones of torchvision's detectors and
segmentation, an encoder of sentences. In float they give what torch gives; in 8 bits they train and verify."""
import tempfile
import unittest

from torch_case import W8A8, TorchCase, images, nn, steelyard, torch

from steelyard.torch._nested import flatten


def twice(into, out):
    def once(i):
        return nn.Conv2d(i, out, 3, padding=1, bias=False), nn.BatchNorm2d(out), nn.ReLU(inplace=True)
    return nn.Sequential(*once(into), *once(out))


class UNet(nn.Module):
    """Images [N, 3, H, W] to [N, 2, H, W]."""

    def __init__(self, upsampling):
        super().__init__()
        self.down = nn.ModuleList([twice(3, 8), twice(8, 16), twice(16, 32)])
        self.pool = nn.MaxPool2d(2)
        self.larger = nn.ModuleList([upsampling(32, 16), upsampling(16, 8)])
        self.up = nn.ModuleList([twice(32, 16), twice(16, 8)])
        self.out = nn.Conv2d(8, 2, 1)

    def forward(self, x):
        kept = []
        for block in self.down[:-1]:
            kept.append(block(x))
            x = self.pool(kept[-1])
        x = self.down[-1](x)
        for larger, block in zip(self.larger, self.up):
            x = block(torch.cat([larger(x), kept.pop()], 1))
        return self.out(x)


def transposed(into, out):
    return nn.ConvTranspose2d(into, out, 2, stride=2)


def interpolated(into, out):
    return nn.Sequential(nn.Upsample(scale_factor=2, mode="bilinear", align_corners=True), nn.Conv2d(into, out, 1))


class BreadthCase(TorchCase):
    def check(self, model, *inputs, **options):
        """The outputs in float, then W8A8: calibrated, trained for two steps, exported and verified."""
        model.eval()
        in_float = steelyard.torch.Module(model, inputs, None, **options).eval()
        with torch.no_grad():
            expected, got = flatten(model(*inputs), "the output")[0], flatten(in_float(*inputs), "the output")[0]
        self.assertEqual(len(expected), len(got))
        for theirs, ours in zip(expected, got):
            self.assert_near(ours, theirs, 2e-5)
        module = steelyard.torch.Module(model, inputs, W8A8, **options).calibrate([inputs]).train()
        optimizer = torch.optim.SGD(module.parameters(), lr=1e-4)
        for _ in range(2):
            optimizer.zero_grad()
            loss = sum((y ** 2).mean() for y in flatten(module(*inputs), "the output")[0])
            loss.backward()
            optimizer.step()
        self.assertTrue(torch.isfinite(loss))
        for name, parameter in module.named_parameters():
            self.assertTrue(parameter.grad is not None or not parameter.requires_grad, name)
        module.eval()
        with tempfile.TemporaryDirectory() as folder:
            module.export(f"{folder}/model.onnx")
            module.export(f"{folder}/model.safetensors")
            result = module.verify(inputs, f"{folder}/model.safetensors")
        self.assertTrue(result.same, result.text)
        self.assertGreater(result.codes, 1000)
        self.assertEqual(result.differing, 0, result.text)


class Vision(BreadthCase):
    def setUp(self):
        super().setUp()
        try:
            import torchvision
        except ImportError as error:
            raise unittest.SkipTest(f"no torchvision: {error}") from error
        self.models = torchvision.models

    def test_feature_pyramid_of_a_detector(self):
        from torchvision.models.detection.backbone_utils import resnet_fpn_backbone
        self.check(resnet_fpn_backbone(backbone_name="resnet18", weights=None), images(2, 64))

    def test_backbone_of_ssdlite(self):
        detector = self.models.detection.ssdlite320_mobilenet_v3_large(weights=None, weights_backbone=None, num_classes=4)
        self.check(detector.backbone, images(2, 64))

    def test_segmentation(self):
        self.check(self.models.segmentation.lraspp_mobilenet_v3_large(weights=None, weights_backbone=None, num_classes=4),
                   images(2, 64))


class UNets(BreadthCase):
    def test_transposed_convolutions(self):
        self.check(UNet(transposed), images(2, 32))

    def test_interpolation(self):
        self.check(UNet(interpolated), images(2, 32))


class AttentionOfWords(nn.Module):
    """BERT's layer: [N, L, 384] and what is added to the scores to [N, L, 384]."""

    def __init__(self):
        super().__init__()
        self.query, self.key, self.value, self.out = (nn.Linear(384, 384) for _ in range(4))
        self.inner, self.outer = nn.Linear(384, 1536), nn.Linear(1536, 384)
        self.norms = nn.ModuleList([nn.LayerNorm(384), nn.LayerNorm(384)])

    def forward(self, x, added):
        heads = [part(x).reshape(x.shape[0], -1, 12, 32).transpose(1, 2) for part in (self.query, self.key, self.value)]
        scores = heads[0] @ heads[1].transpose(-1, -2) / 32 ** 0.5 + added
        mixed = (scores.softmax(-1) @ heads[2]).transpose(1, 2).reshape(x.shape)
        x = self.norms[0](x + self.out(mixed))
        return self.norms[1](x + self.outer(nn.functional.gelu(self.inner(x))))


class MiniLm(nn.Module):
    """An encoder of sentences with MiniLM's sizes, two layers of it: tokens and a mask [N, L] to rows [N, 384] of length 1."""

    def __init__(self):
        super().__init__()
        self.words, self.positions = nn.Embedding(1000, 384), nn.Embedding(64, 384)
        self.norm = nn.LayerNorm(384)
        self.layers = nn.ModuleList([AttentionOfWords(), AttentionOfWords()])

    def forward(self, tokens, mask):
        x = self.norm(self.words(tokens) + self.positions.weight[:tokens.shape[1]])
        added = (1 - mask[:, None, None, :].float()) * -10000
        for layer in self.layers:
            x = layer(x, added)
        present = mask.unsqueeze(-1).float()
        return nn.functional.normalize((x * present).sum(1) / present.sum(1), dim=1)


class Padded(nn.Module):
    """Torch's own encoder, which takes a mask of what is padded: [N, L, 16] and a mask [N, L] to [N, L, 16]."""

    def __init__(self):
        super().__init__()
        layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, activation="gelu", batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

    def forward(self, x, mask):
        return self.encoder(x, src_key_padding_mask=mask == 0)


class Encoders(BreadthCase):
    def setUp(self):
        super().setUp()
        self.mask = torch.ones(2, 16, dtype=torch.int64)
        self.mask[1, 10:] = 0

    def test_minilm(self):
        self.check(MiniLm(), torch.randint(0, 1000, (2, 16)), self.mask)

    def test_encoders_of_transformers(self):
        try:
            import transformers
        except ImportError as error:
            raise unittest.SkipTest(f"no transformers: {error}") from error
        sizes = {"vocab_size": 100, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2,
                 "intermediate_size": 64, "attention_probs_dropout_prob": 0.0}
        tokens = torch.randint(2, 100, (2, 16))
        for attention in "eager", "sdpa":
            with self.subTest(attention):
                config = transformers.BertConfig(**sizes, attn_implementation=attention)
                self.check(transformers.BertForSequenceClassification(config), tokens, self.mask)
        with self.subTest("DeBERTa"):
            self.check(transformers.DebertaV2Model(transformers.DebertaV2Config(**sizes)), tokens, self.mask)
        tokens[1, 10:] = 1  # their padding, which positions leave out
        for kind in "Roberta", "MPNet":
            with self.subTest(kind):
                config = getattr(transformers, f"{kind}Config")(**sizes, max_position_embeddings=18)
                self.check(getattr(transformers, f"{kind}Model")(config), tokens, self.mask)

    def test_padded_sequences(self):
        if int(torch.__version__.split(".")[0]) < 2:
            self.skipTest(f"torch {torch.__version__} makes the mask of a shape that depends on the batch")
        self.check(Padded(), torch.randn(2, 16, 16), self.mask)

    def test_a_sequence_of_nothing_but_padding(self):
        if not hasattr(nn.functional, "scaled_dot_product_attention"):
            self.skipTest(f"torch {torch.__version__} has no scaled_dot_product_attention")

        class Attention(nn.Module):
            def forward(self, x, mask):
                return nn.functional.scaled_dot_product_attention(x, x, x, attn_mask=(mask > 0)[:, None, :])

        model = Attention()
        module = steelyard.torch.Module(model, (torch.randn(2, 16, 8), self.mask), None).eval()
        x, mask = torch.randn(3, 16, 8), torch.ones(3, 16, dtype=torch.int64)
        mask[0] = 0
        mask[2, 5:] = 0
        expected = model(x, mask)
        self.assert_near(module(x, mask), expected)
        self.assertEqual(float(expected[0].abs().max()), 0)
