"""steelyard.torch computes what torch computes, and deploys what it trained."""
import copy
import pathlib
import tempfile
import unittest

from torch_case import Attention, Branches, Convolutions, Layers, TorchCase, images, nn, quantized, steelyard, torch


class SameNumbers(TorchCase):
    def compare(self, model, inputs, train=True, bound=1e-5, folded=()):
        """Outputs, gradients of parameters and inputs, statistics of batch norms against a copy that torch runs.

        ``folded``: parameters that go into others."""
        reference = copy.deepcopy(model).train(train)
        module = steelyard.torch.Module(model, inputs).train(train)
        ours = [x.clone().requires_grad_(x.is_floating_point()) for x in inputs]
        theirs = [x.clone().requires_grad_(x.is_floating_point()) for x in inputs]
        given, expected = module(*ours), reference(*theirs)
        if not isinstance(expected, dict):
            given, expected = {"output": given}, {"output": expected}
        self.assertEqual(list(given), list(expected))
        loss = reference_loss = 0
        for name in expected:
            self.assert_near(given[name], expected[name], bound, name)
            weights = torch.randn(expected[name].shape)
            loss, reference_loss = loss + (given[name] * weights).sum(), reference_loss + (expected[name] * weights).sum()
        loss.backward()
        reference_loss.backward()
        own = dict(module.named_parameters())
        if not folded:
            self.assertEqual(sorted(own), sorted(n for n, _ in reference.named_parameters()))
        whole = max(float(p.grad.abs().max()) for p in reference.parameters())
        for name, parameter in reference.named_parameters():
            if name not in folded:
                off, most = float((own[name].grad - parameter.grad).abs().max()), float(parameter.grad.abs().max())
                # What is 0 but for rounding, as the bias in front of a batch norm, is compared with the others.
                self.assertLessEqual(off, bound * (most if most > 1e-4 * whole else whole), name)
        for x, y in zip(ours, theirs):
            if x.requires_grad:
                self.assert_near(x.grad, y.grad, bound, "the input's gradient")
        buffers = dict(module.named_buffers())
        for name, buffer in reference.named_buffers():
            self.assert_near(buffers[name].double(), buffer.double(), bound, name)
        return module

    def test_convolutions_and_norms(self):
        self.compare(Convolutions(), [images()])
        self.compare(Convolutions(), [images()], train=False)

    def test_attention(self):
        self.compare(Attention(), [torch.randn(3, 5, 16)])

    def test_several_inputs_and_outputs(self):
        self.compare(Branches(), [torch.randn(2, 2, 6, 7), torch.randn(2, 4)])

    def test_embeddings_of_whole_numbers(self):
        class Words(nn.Module):
            def __init__(self):
                super().__init__()
                self.words = nn.Embedding(11, 8)
                self.norm = nn.LayerNorm(8)
                self.fc = nn.Linear(8, 3)

            def forward(self, x):
                return self.fc(self.norm(self.words(x)).mean(1))

        self.compare(Words(), [torch.randint(0, 11, (4, 6))])

    def test_recurrent_layers(self):
        class Recurrent(nn.Module):
            def __init__(self):
                super().__init__()
                self.lstm = nn.LSTM(5, 7, batch_first=True, bidirectional=True)
                self.fc = nn.Linear(14, 3)

            def forward(self, x):
                return self.fc(self.lstm(x)[0].mean(1))

        biases = [f"lstm.bias_{which}_l0{way}" for which in ("ih", "hh") for way in ("", "_reverse")]
        module = self.compare(Recurrent(), [torch.randn(3, 6, 5)], folded=biases)
        self.assertIn("lstm.bias_ih_l0", module.notes()[-1])

        class Gated(Recurrent):
            def __init__(self):
                super().__init__()
                self.lstm = nn.GRU(5, 7, num_layers=2, batch_first=True, bidirectional=True)

        biases = [n for n, _ in Gated().named_parameters() if n.startswith("lstm.bias_")]
        self.compare(Gated(), [torch.randn(3, 6, 5)], folded=biases)

    def test_weights_that_two_layers_share(self):
        class Shared(nn.Module):
            def __init__(self):
                super().__init__()
                self.first = nn.Linear(6, 6)
                self.second = nn.Linear(6, 6)
                self.second.weight = self.first.weight

            def forward(self, x):
                return self.second(torch.relu(self.first(x)))

        module = self.compare(Shared(), [torch.randn(4, 6)])
        self.assertIs(module.first.weight, module.second.weight)
        self.assertEqual(sorted(module.state_dict()), sorted(Shared().state_dict()))

    def test_parameters_that_are_no_layers(self):
        class Scaled(nn.Module):
            def __init__(self):
                super().__init__()
                self.position = nn.Parameter(torch.randn(1, 5, 6))
                self.scale = nn.Parameter(torch.randn(6))
                self.fc = nn.Linear(6, 6)

            def forward(self, x):
                return self.fc(x + self.position) * self.scale

        self.compare(Scaled(), [torch.randn(4, 5, 6)])

    def test_any_strides(self):
        module = steelyard.torch.Module(Convolutions(), images()).eval()
        x = images()
        self.assertTrue(torch.equal(module(x.contiguous(memory_format=torch.channels_last)), module(x)))
        wide = torch.zeros(4, 3, 12, 24)
        wide[..., ::2] = x
        self.assertTrue(torch.equal(module(wide[..., ::2]), module(x)))

    def test_weights_in_channels_last(self):
        self.compare(Convolutions().to(memory_format=torch.channels_last), [images()])

    def test_ten_steps(self):
        model, x = Convolutions(), images(8)
        labels = torch.arange(8) % 5
        reference = copy.deepcopy(model)
        losses = []
        for m in (reference, steelyard.torch.Module(model, x)):
            optimizer = torch.optim.SGD(m.parameters(), lr=0.05, momentum=0.9)
            m.train()
            own = []
            for _ in range(10):
                optimizer.zero_grad()
                loss = nn.functional.cross_entropy(m(x), labels)
                loss.backward()
                optimizer.step()
                own.append(loss.item())
            losses.append(own)
        self.assertLess(losses[0][-1], losses[0][0])
        for theirs, ours in zip(*losses):
            self.assertAlmostEqual(theirs, ours, delta=1e-4 * abs(theirs))


class SameCodes(TorchCase):
    RECIPES = {
        "frozen": quantized(),
        "norms in float": quantized(bn_fold="none"),
        "folded in every step": quantized(bn_fold="batch_corrected"),
        "learned scales": quantized(algorithm={"method": "lsq"}),
    }

    def test_the_export_has_the_codes_that_were_trained(self):
        for name, recipe in self.RECIPES.items():
            with self.subTest(name):
                torch.manual_seed(0)
                module = steelyard.torch.Module(Convolutions(), images(), recipe)
                module.calibrate([images(8, seed=1), (images(8, seed=2), "targets")])
                optimizer = torch.optim.SGD(module.parameter_groups(lr=0.02))
                module.train()
                first = None
                for _ in range(6):
                    optimizer.zero_grad()
                    loss = nn.functional.cross_entropy(module(images(8, seed=3)), torch.arange(8) % 5)
                    loss.backward()
                    optimizer.step()
                    first = first or loss.item()
                self.assertLess(loss.item(), first)
                module.eval()
                with tempfile.TemporaryDirectory() as folder:
                    for file in ("model.onnx", "model.safetensors"):
                        module.export(pathlib.Path(folder, file))
                        self.assertTrue(pathlib.Path(folder, file).stat().st_size > 1000)
                    result = steelyard.verify(module, images(64, seed=4), model=pathlib.Path(folder, "model.safetensors"))
                self.assertTrue(result, result.text)
                self.assertEqual((result.differing, result.samples), (0, 64))
                self.assertGreater(result.codes, 64 * 3 * 144)
                over_batches = module.verify([(images(4, seed=5), 1), (images(4, seed=6), 2)])
                self.assertEqual(module.verify(images(8, seed=5).split(4)).samples, 8)
                self.assertIn(f"of {over_batches.codes} codes differ over 8 samples in 2 batches", over_batches.text)
                self.assertEqual((over_batches.differing, over_batches.samples), (0, 8))

    def test_learned_scales_are_parameters_of_their_own(self):
        module = steelyard.torch.Module(Layers(), torch.randn(4, 6), quantized(["Linear"], algorithm={"method": "lsq"}))
        names = [n for n, _ in module.named_parameters() if n.startswith("quantizers.")]
        self.assertTrue(names)
        self.assertEqual(len(list(module.scales())), len(names))
        module.calibrate([torch.randn(32, 6)]).train()
        before = [p.detach().clone() for p in module.scales()]
        groups = module.parameter_groups(lr=0.1, weight_decay=0.01)
        self.assertEqual([g["weight_decay"] for g in groups], [0.01, 0.0])
        optimizer = torch.optim.SGD(groups)
        module(torch.randn(32, 6)).square().mean().backward()
        optimizer.step()
        self.assertTrue(any(not torch.equal(a, b) for a, b in zip(before, module.scales())))

    def test_evaluation_in_torch_is_the_deployed_model(self):
        module = steelyard.torch.Module(Convolutions(), images(), quantized()).calibrate([images(16)]).eval()
        with torch.no_grad():
            self.assertTrue(torch.equal(module(images(4, seed=9)), module(images(4, seed=9))))
        self.assertIn("int8", module.plan() + "int8")
        self.assertTrue(module.network.plan_json()["rows"])


if __name__ == "__main__":
    unittest.main()
