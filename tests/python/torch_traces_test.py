"""Models whose trace has another meaning than their forward(): taken as they are, or refused by name."""
import copy
import tempfile

from torch_case import Convolutions, Layers, TorchCase, images, nn, quantized, steelyard, torch


class Behind(nn.Module):
    """A linear layer [N, 6] to [N, 6] and what ``then`` makes of its output."""

    def __init__(self, then, **tensors):
        super().__init__()
        self.fc = nn.Linear(6, 6)
        self.then = then
        for name, value in tensors.items():
            if isinstance(value, nn.Parameter):
                setattr(self, name, value)
            else:
                self.register_buffer(name, value)

    def forward(self, x):
        return self.then(self, torch.nn.functional.linear(x, self.fc.weight, self.fc.bias))


class Joined(nn.Module):
    """A linear layer whose weight ``weight(module)`` computes of the parameters ``first`` and ``second``."""

    def __init__(self, weight, second):
        super().__init__()
        self.first = nn.Parameter(torch.randn(6, 6))
        self.second = nn.Parameter(second)
        self.weight = weight

    def forward(self, x):
        return nn.functional.linear(x, self.weight(self))


class ConstantsBehindLayers(TorchCase):
    MODELS = {
        "mask": lambda: Behind(lambda m, y: y * m.mask, mask=torch.tensor([1.0, 0, 1, 1, 0, 1])),
        "factor": lambda: Behind(lambda m, y: y * 0.1),
        "quotient": lambda: Behind(lambda m, y: y / m.by, by=torch.rand(6) + 0.5),
        "scale": lambda: Behind(lambda m, y: y * m.scale, scale=nn.Parameter(torch.randn(6))),
        "second bias": lambda: Behind(lambda m, y: y + m.more, more=nn.Parameter(torch.randn(6))),
    }

    def test_train_as_in_torch(self):
        for name, make in self.MODELS.items():
            with self.subTest(name):
                model = make()
                reference, x = copy.deepcopy(model), torch.randn(16, 6)
                module = steelyard.torch.Module(model, x)
                self.assertEqual(sorted(module.state_dict()), sorted(reference.state_dict()))
                for m in (module, reference):
                    optimizer = torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9)
                    for _ in range(10):
                        optimizer.zero_grad()
                        (m(x) - 1).square().mean().backward()
                        optimizer.step()
                self.assert_near(module(x), reference(x), 1e-5, name)
                for key, value in reference.state_dict().items():
                    self.assert_near(module.state_dict()[key], value, 1e-4, f"{name}: {key}")

    def test_deploy_what_they_train(self):
        for name, make in self.MODELS.items():
            with self.subTest(name):
                x = torch.randn(64, 6)
                module = steelyard.torch.Module(make(), x, quantized(["re:.*"])).calibrate([x])
                result = module.verify(x)
                self.assertTrue(result.same, result.text)
                with tempfile.TemporaryDirectory() as folder:
                    module.export(f"{folder}/m.onnx")

    def test_what_is_frozen_stays(self):
        for frozen, trains in (("fc", "scale"), ("scale", "fc")):
            model = self.MODELS["scale"]()
            getattr(model, frozen).requires_grad_(False)
            module, x = steelyard.torch.Module(model, torch.randn(2, 6)), torch.randn(8, 6)
            before = copy.deepcopy(module.state_dict())
            optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
            module(x).square().sum().backward()
            optimizer.step()
            for key, value in module.state_dict().items():
                self.assertEqual(torch.equal(value, before[key]), key.startswith(frozen), f"{key}: {trains} trains")

    def test_a_float_models_state(self):
        model = self.MODELS["factor"]()
        other, x = self.MODELS["factor"](), torch.randn(4, 6)
        module = steelyard.torch.Module(model, x)
        module.load_state_dict(other.state_dict())
        self.assert_near(module(x), other(x))


class Refused(TorchCase):
    def test_weights_that_are_computed(self):
        for name, weight, second in (
                ("mask", lambda m: m.first * m.second, torch.ones(6, 6)),
                ("adapter", lambda m: m.first + m.second @ m.second.T, torch.randn(6, 2)),
                ("norm", lambda m: nn.functional.normalize(m.first) * m.second, torch.ones(6, 1)),
                ("factor", lambda m: m.first * 0.5 + 0 * m.second, torch.ones(1))):
            with self.subTest(name):
                self.assert_refused("the parameter first is computed with before a layer uses it", steelyard.torch.Module,
                                    Joined(weight, second), torch.randn(3, 6))
        temperature = Behind(lambda m, y: y * m.scale, scale=nn.Parameter(torch.ones(1)))
        self.assert_refused("the parameter scale is computed with", steelyard.torch.Module, temperature, torch.randn(3, 6))
        model = nn.Sequential(nn.Linear(6, 4))
        torch.nn.utils.parametrize.register_parametrization(model[0], "weight", nn.Tanh())
        self.assert_refused("is computed with before a layer uses it", steelyard.torch.Module, model, torch.randn(3, 6))

    def test_one_bias_of_two_that_trains(self):
        class Last(nn.Module):
            def __init__(self):
                super().__init__()
                self.lstm = nn.LSTM(5, 4, batch_first=True)
                self.lstm.bias_hh_l0.requires_grad_(False)

            def forward(self, x):
                return self.lstm(x)[0][:, -1]

        self.assert_refused("expected both biases of LSTM to train, or none", steelyard.torch.Module, Last(),
                            torch.randn(2, 3, 5))

    def test_numbers_of_the_example(self):
        class Numbers(nn.Module):
            def __init__(self, then):
                super().__init__()
                self.fc = nn.Linear(6, 4)
                self.then = then

            def forward(self, x):
                return self.fc(self.then(x))

        for name, then in (("batch", lambda x: x / len(x)), ("root", lambda x: x * float(x.shape[0]) ** -0.5),
                           ("largest", lambda x: x / x.abs().max().item()),
                           ("branch", lambda x: x if x.mean() > 0 else -2 * x)):
            with self.subTest(name):
                self.assert_refused("A trace has those of the examples", steelyard.torch.Module, Numbers(then),
                                    torch.rand(3, 6))

    def test_a_batch_that_the_model_does_not_take_tells_nothing(self):
        class Words(nn.Module):
            def __init__(self):
                super().__init__()
                self.words = nn.Embedding(5, 4)

            def forward(self, x):  # numbers of words as float32: none is negative
                return self.words(x.long()).mean(1)

        x = torch.tensor([[1.0, 4], [2, 3], [4, 4]])
        module = steelyard.torch.Module(Words(), x)
        self.assertEqual(list(module(x).shape), [3, 4])

    def test_buffers_that_training_changes(self):
        class Centred(nn.Module):
            def __init__(self):
                super().__init__()
                self.fc = nn.Linear(6, 4)
                self.register_buffer("mean", torch.zeros(6))

            def forward(self, x):
                if self.training:
                    self.mean.mul_(0.99).add_(0.01 * x.detach().mean(0))
                return self.fc(x - self.mean)

        model = Centred()
        self.assert_refused("forward() changes the buffer mean in training", steelyard.torch.Module, model,
                            torch.rand(8, 6))
        self.assertTrue(torch.equal(model.mean, torch.zeros(6)))

    def test_a_state_of_another_recipe(self):
        def made(bits, symmetric=False):
            recipe = quantized(["Linear"])
            recipe["quantize"]["groups"] = [{"targets": ["Linear"], "weights": {"num_bits": bits},
                                             "activations": {"num_bits": 8, "symmetric": symmetric}}]
            return steelyard.torch.Module(Layers(), torch.randn(8, 6), recipe).calibrate([torch.randn(8, 6)])

        own = made(8)
        own.load_state_dict(copy.deepcopy(own).state_dict())
        self.assert_refused("the state is that of another recipe: expected a plan with", own.load_state_dict,
                            made(2).state_dict())
        self.assert_refused("the state is that of another recipe", own.load_state_dict, made(8, True).state_dict())

    def test_where_nothing_has_gradients(self):
        with torch.inference_mode():
            self.assert_refused("outside of inference_mode()", steelyard.torch.Module, Layers(), torch.randn(2, 6))


class Defaults(TorchCase):
    def test_other_default_types(self):
        model = Convolutions(dropout=0.5)
        torch.set_default_dtype(torch.float64)
        try:
            module = steelyard.torch.Module(model, images().float(), quantized())
            module.train()(images().float()).sum().backward()
        finally:
            torch.set_default_dtype(torch.float32)

    def test_learned_scales_begin_when_ranges_are_known(self):
        x = torch.randn(64, 6)
        module = steelyard.torch.Module(Layers(), x, quantized(["Linear"], algorithm={"method": "lsq"}))
        module.calibrate([x])
        begun = {n: p.detach().clone() for n, p in module.named_parameters() if n.startswith("quantizers.")}
        self.assertTrue(all(bool((p != 1).all()) for n, p in begun.items() if n.endswith("scale")), begun)
        scales = list(module.scales())
        plain, *groups = module.parameter_groups(0.001, 0.1, adaptive=True)
        self.assertEqual(len(plain["params"]), 4)
        self.assertEqual([g["params"][0] for g in groups], scales)
        for group, scale in zip(groups, scales):
            self.assertAlmostEqual(group["lr"], 0.01 * scale.mean().item(), delta=1e-6 * group["lr"])
        module.train()(10 * x)
        for name, parameter in module.named_parameters():
            if name in begun:
                self.assertTrue(torch.equal(parameter, begun[name]), name)
