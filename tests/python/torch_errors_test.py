"""What steelyard.torch refuses, in one line that names it; dropout."""
import copy
import os
import random
import unittest

from torch_case import Convolutions, Layers, TorchCase, images, nn, quantized, steelyard, torch

LINEAR = quantized(["Linear"])


class Refusals(TorchCase):
    def setUp(self):
        super().setUp()
        self.module = steelyard.torch.Module(Layers(), torch.randn(2, 6), LINEAR)

    def test_inputs(self):
        self.assert_refused("expected [N, 6], got [3, 5]", self.module, torch.randn(3, 5))
        self.assert_refused("expected f32, got f64", self.module, torch.randn(3, 6).double())
        self.assert_refused("expected f32, got i64", self.module, torch.ones(3, 6, dtype=torch.int64))
        self.assert_refused("expected 1 inputs, got 2", self.module, torch.randn(3, 6), torch.randn(3, 6))
        self.assert_refused("expected a tensor, got list", self.module, [1.0])
        self.assert_refused("expected a dense tensor", self.module, torch.randn(3, 6).to_sparse())

    def test_values_that_are_not_finite(self):
        module = self.module.calibrate([torch.randn(8, 6)])
        bad = torch.randn(3, 6)
        bad[1, 2] = float("nan")
        with self.assertRaises(steelyard.Error) as caught:
            module.eval()(bad)
        self.assertEqual(caught.exception.status, 5)
        with self.assertRaises(steelyard.Error):
            module.train()(bad).sum().backward()

    def test_recipes(self):
        make = lambda recipe: steelyard.torch.Module(Layers(), torch.randn(2, 6), recipe)  # noqa: E731
        self.assert_refused("did you mean 'quantize'", make, {"version": 1, "name": "x", "quantise": {}})
        self.assert_refused("matches no module: the model has Linear (2)", make, quantized(["Conv2d"]))
        wide = quantized(["Linear"])
        wide["quantize"]["groups"][0]["weights"] = {"num_bits": 9}
        self.assert_refused('recipe, "num_bits": 9: expected a whole number from 2 to 8', make, wide)
        self.assert_refused("missing key 'version'", make, {})
        self.assert_refused("no-such-file.yaml", make, "no-such-file.yaml")
        self.assert_refused("expected texts, numbers, lists and dicts", make, {"version": object()})

    def test_models(self):
        make = steelyard.torch.Module
        x = torch.randn(2, 6)
        self.assert_refused("expected a float nn.Module, got int", make, 3, x)
        self.assert_refused("the parameter first.weight: expected float32, got torch.float16", make, Layers().half(), x)
        hooked = Layers()
        hooked.first.register_forward_hook(lambda *a: None)
        self.assert_refused("first (Linear) has hooks", make, hooked, x)
        self.assert_refused("expected a float nn.Module, got Module", make, self.module, x)

        class Unknown(nn.Module):
            def __init__(self):
                super().__init__()
                self.fc = nn.Linear(6, 6)

            def forward(self, x):
                return torch.linalg.inv(torch.eye(6) + self.fc(x).T @ self.fc(x))

        self.assert_refused("cannot export Unknown to ONNX", make, Unknown(), x)

        class Sorted(nn.Module):
            def __init__(self):
                super().__init__()
                self.fc = nn.Linear(6, 6)

            def forward(self, x):
                return torch.sort(self.fc(x))[0]

        self.assert_refused("(TopK)", make, Sorted(), x)

        class Depends(nn.Module):
            def __init__(self):
                super().__init__()
                self.fc = nn.Linear(6, 6)
                self.calls = 0

            def forward(self, x):
                self.calls += 1
                return self.fc(x) * self.calls

        self.assert_refused("Depends gives other outputs in training than in evaluation, or in each call", make, Depends(), x)

        class Auxiliary(nn.Module):
            def __init__(self):
                super().__init__()
                self.fc, self.more = nn.Linear(6, 6), nn.Linear(6, 6)

            def forward(self, x):
                return (self.fc(x), self.more(x)) if self.training else self.fc(x)

        self.assert_refused("Auxiliary gives other outputs in training", make, Auxiliary(), x)

        class Exported(nn.Module):
            def __init__(self):
                super().__init__()
                self.fc = nn.Linear(6, 6)

            def forward(self, x):
                return self.fc(x) * (2 if torch.onnx.is_in_onnx_export() else 1)

        self.assert_refused("the exported network gives other numbers than the model", make, Exported(), x)

    def test_a_model_changed_after_wrapping(self):
        model = Layers()
        module = steelyard.torch.Module(model, torch.randn(2, 6))
        model.second = nn.Linear(16, 4)
        self.assert_refused("the model (Layers) was changed after it was wrapped", module, torch.randn(2, 6))
        for change in (lambda m: m.register_forward_hook(lambda *a: None), lambda m: setattr(m, "forward", torch.relu),
                       lambda m: setattr(m, "__class__", Layers)):
            model = Layers()
            module = steelyard.torch.Module(model, torch.randn(2, 6))
            change(model.first)
            self.assert_refused("first (", module, torch.randn(2, 6))

    def test_gradients_that_a_trace_has_not(self):
        class Frozen(nn.Module):
            def __init__(self):
                super().__init__()
                self.backbone, self.head = nn.Linear(6, 6), nn.Linear(6, 2)

            def forward(self, x):
                with torch.no_grad():
                    y = self.backbone(x)
                return self.head(y)

        class Half(nn.Module):
            def forward(self, x):
                return x * torch.tanh(x).detach()

        make, x = steelyard.torch.Module, torch.randn(3, 6)
        self.assert_refused("backbone.weight: the exported network has another gradient", make, Frozen(), x)
        self.assert_refused("input 0: the exported network has another gradient", make, Half(), x)

    def test_inputs_that_the_model_changes_or_asks_about(self):
        class Asks(nn.Module):
            def __init__(self):
                super().__init__()
                self.layer = nn.Linear(6, 2)

            def forward(self, x):
                if not torch.equal(x, x.round()):
                    raise ValueError("expected whole numbers")
                return self.layer(x)

        x = torch.ones(3, 6)
        steelyard.torch.Module(Asks(), x)
        steelyard.torch.Module(nn.Sequential(nn.ReLU(inplace=True), nn.Linear(6, 2)), x)
        self.assertTrue(torch.equal(x, torch.ones(3, 6)))

    def test_parts_with_rules_of_their_own(self):
        make, words = steelyard.torch.Module, torch.tensor([[0, 2], [0, 0]])
        norm = nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4, momentum=None))
        self.assert_refused("1 (BatchNorm2d): expected a momentum", make, norm, images())
        counts = nn.Sequential(nn.Embedding(5, 3, scale_grad_by_freq=True), nn.Flatten())
        self.assert_refused("0 (Embedding): scale_grad_by_freq", make, counts, words)
        tied = nn.Sequential(nn.Embedding(5, 3, padding_idx=0), nn.Linear(3, 5, bias=False))
        tied[1].weight = tied[0].weight
        self.assert_refused("0 (Embedding): expected no padding_idx", make, tied, words)
        module = make(nn.Sequential(nn.Embedding(5, 3, padding_idx=0), nn.Flatten(), nn.Linear(6, 1)), words)
        module(words).sum().backward()
        gradient = module.get_parameter("0.weight").grad
        self.assertFalse(gradient[0].any())
        self.assertTrue(gradient[2].any())

    def test_settings_changed_after_wrapping(self):
        class Scaled(nn.Module):
            def __init__(self):
                super().__init__()
                self.layer, self.scale = nn.Linear(6, 6), 2

            def forward(self, x):
                return self.layer(x) * self.scale

        model = Scaled()
        module = steelyard.torch.Module(model, torch.randn(2, 6))
        self.assert_refused("scale is a setting", setattr, module, "scale", 5)
        model.scale = 5
        self.assert_refused("the model (Scaled): scale was changed after it was wrapped, from 2 to 5", module.train)
        self.assert_refused("a hook on it would not run", module.layer.register_forward_hook, print)

    def test_a_part_of_the_module_changed(self):
        def made():
            return steelyard.torch.Module(nn.Sequential(nn.Dropout(0.5), nn.Linear(6, 6)), torch.randn(2, 6))

        module, x = made(), torch.randn(2, 6)
        self.assert_refused("p of this Dropout is a setting", setattr, module.get_submodule("0"), "p", 0.1)
        module.get_submodule("1").weight = None
        self.assert_refused("the parameter 1.weight was taken away", module, x)
        module = made()
        module._modules["1"] = None
        self.assert_refused("the module's part 1 was taken away", module, x)

    def test_names_that_are_taken(self):
        class Model(nn.Module):
            def __init__(self, name):
                super().__init__()
                self.name = name
                self._modules[name] = nn.Linear(6, 6)

            def forward(self, x):
                return self._modules[self.name](x)

        for name in ("quantizers", "_cached", "forward"):
            self.assert_refused(f"the model has a part '{name}'", steelyard.torch.Module, Model(name), torch.randn(2, 6))

    def test_modules_in_each_other_without_end(self):
        model = nn.Linear(6, 6)
        for _ in range(300):
            model = nn.Sequential(model)
        self.assert_refused("lie in each other deeper", steelyard.torch.Module, model, torch.randn(2, 6))

    def test_moves_and_copies(self):
        self.assert_refused("float32 on cpu, got torch.float16", self.module.half)
        self.assert_refused("float32 on cpu, got torch.float64", self.module.double)
        self.assertIs(self.module.to("cpu"), self.module)
        self.assert_refused("expected DistributedDataParallel", self.module._replicate_for_data_parallel)
        self.assert_refused("computes as a whole", self.module.first, torch.randn(2, 6))

    def test_files(self):
        self.assert_refused("expected a name that ends in", self.module.export, "model.txt")
        self.assert_refused("expected at least one batch", self.module.verify, [])

    def test_forked_processes(self):
        pid = os.fork()
        if pid == 0:
            try:
                self.module(torch.randn(2, 6))
            except steelyard.Error as error:
                os._exit(0 if "fork" in str(error) else 1)
            os._exit(2)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), 0)

    def test_constants_of_the_network(self):
        class Positions(nn.Module):
            def __init__(self):
                super().__init__()
                self.register_buffer("position", torch.randn(6))
                self.fc = nn.Linear(6, 4)

            def forward(self, x):
                return self.fc(torch.relu(x + self.position))

        module = steelyard.torch.Module(Positions(), torch.randn(2, 6))
        module.load_state_dict(copy.deepcopy(module.state_dict()))
        module(torch.randn(2, 6))
        module.position += 1
        self.assert_refused("the buffer position was changed", module, torch.randn(2, 6))
        self.assert_refused("the buffer position was changed", copy.deepcopy(module), torch.randn(2, 6))


class Dropout(TorchCase):
    def test_follows_train_and_eval(self):
        for recipe in (None, quantized()):
            model = Convolutions(dropout=0.5)
            module = steelyard.torch.Module(model, images(), recipe)
            if recipe:
                module.calibrate([images()])
            x = images()
            module.eval()
            with torch.no_grad():
                self.assertTrue(torch.equal(module(x), module(x)))
                module.train()
                self.assertFalse(torch.equal(module(x), module(x)))
            self.assertTrue(module.eval().verify(x))

    def test_draws_from_torchs_generator(self):
        module = steelyard.torch.Module(nn.Sequential(nn.Linear(6, 64), nn.Dropout(0.5)), torch.randn(2, 6)).train()
        x = torch.randn(3, 6)
        torch.manual_seed(5)
        first, second = module(x), module(x)
        twin = copy.deepcopy(module)
        self.assertFalse(torch.equal(twin(x) == 0, first == 0))
        torch.manual_seed(5)
        self.assertTrue(torch.equal(twin(x), first))
        self.assertTrue(torch.equal(module(x), second))

    def test_a_checkpointed_pass_drops_the_same_again(self):
        from torch.utils.checkpoint import checkpoint
        model = nn.Sequential(nn.Linear(6, 64, bias=False), nn.Dropout(0.5), nn.Linear(64, 3, bias=False))
        module = steelyard.torch.Module(model, torch.randn(2, 6)).train()
        for reentrant in (False, True):
            x = torch.randn(8, 6, requires_grad=True)
            y = checkpoint(module, x, use_reentrant=reentrant).sum(1)
            y.sum().backward()
            self.assert_near((x.grad * x.detach()).sum(1), y.detach())  # since it is linear in x

    def test_drops_its_part(self):
        module = steelyard.torch.Module(nn.Sequential(nn.ReLU(), nn.Dropout(0.25)), torch.ones(2, 400)).train()
        out = module(torch.ones(50, 400))
        self.assertAlmostEqual(float((out == 0).float().mean()), 0.25, delta=0.01)
        self.assertAlmostEqual(float(out.max()), 1 / 0.75, delta=1e-6)

    def test_whole_channels_and_samples_fall_together(self):
        class TwoPaths(nn.Module):
            def __init__(self, drop):
                super().__init__()
                self.conv, self.drop = nn.Conv2d(3, 16, 1), drop

            def forward(self, x):
                return self.drop(torch.relu(self.conv(x)) + 1)

        class DropPath(nn.Module):  # as timm has it
            drop_prob, scale_by_keep = 0.25, True

            def forward(self, x):
                return x * (torch.rand(len(x), 1, 1, 1) >= 0.25) / 0.75 if self.training else x

        x = torch.rand(64, 3, 5, 4)
        for drop, units in ((nn.Dropout2d(0.25), (2, 3)), (DropPath(), (1, 2, 3))):
            for recipe in (None, quantized(["Conv2d"])):
                module = steelyard.torch.Module(TwoPaths(drop), x[:2], recipe)
                if recipe:
                    module.calibrate([x])
                with torch.no_grad():
                    whole, dropped = module.eval()(x), module.train()(x)
                kept = (dropped != 0).float()
                self.assertTrue(torch.equal(kept.amax(units), kept.amin(units)))
                share = 1 - float(kept.mean())
                self.assertAlmostEqual(share, 0.25, delta=0.06 if len(units) == 2 else 0.22)
                self.assertGreater(share, 0)
                self.assertLess(float((dropped * 0.75 - whole)[dropped != 0].abs().max()), 1e-5 if recipe is None else 0.02)
                self.assertTrue(module.eval().verify(x))

    def test_one_module_at_two_places_drops_twice(self):
        class Twice(nn.Module):
            def __init__(self):
                super().__init__()
                self.first = nn.Dropout2d(0.5)
                self.second = self.first

            def forward(self, x):
                return self.second(torch.relu(self.first(x)))

        module = steelyard.torch.Module(Twice(), torch.ones(2, 8, 2, 2)).train()
        fell = (module(torch.ones(400, 8, 2, 2)) == 0).float().mean()
        self.assertAlmostEqual(float(fell), 0.75, delta=0.04)

    def test_has_the_mode_that_it_had(self):
        x = images()
        model = Convolutions(dropout=0.5).train()
        model.drop.eval()
        module = steelyard.torch.Module(model, x)
        for part in (model, module):
            for name in ("stem.1", "block.1"):
                part.get_submodule(name).eval()
        self.assertLess(float((module(x) - model(x)).abs().max()), 1e-5)
        steelyard.torch.Module(model, x, leave_out=["Dropout"])  # which is off already
        module = steelyard.torch.Module(Convolutions(dropout=0.5), x).train()
        module.drop.eval()
        self.assert_refused("drop evaluates while the module trains", module, x)

    def test_of_none_is_none(self):
        module = steelyard.torch.Module(Convolutions(dropout=0.0), images()).train()
        self.assertTrue(torch.equal(module(images()), module(images())))

    def test_other_randomness_is_named(self):
        class Functional(nn.Module):
            def __init__(self):
                super().__init__()
                self.inner = nn.Sequential(nn.Linear(6, 6), nn.Dropout(0.1))

            def forward(self, x):
                return nn.functional.dropout(self.inner(x), 0.3, self.training)

        x = torch.randn(2, 6)
        make = steelyard.torch.Module
        self.assert_refused("the model (Functional) draws random numbers in training", make, Functional(), x)
        class StochasticDepth(nn.Module):
            p, mode = 0.2, "batch"

            def forward(self, x):
                return x * (torch.rand(()) >= self.p).float() if self.training else x

        class NoiseDropPath(nn.Module):  # is not what its name says
            drop_prob = 0.3

            def forward(self, x):
                return x + torch.randn_like(x) if self.training else x

        class LayerDrop(nn.Module):
            def forward(self, x):
                return x if random.random() < 0.5 else x * 0

        self.assert_refused("1 (NoiseDropPath) draws random numbers", make,
                            nn.Sequential(nn.Conv2d(3, 3, 1), NoiseDropPath()), images())
        self.assert_refused("1 (LayerDrop) draws random numbers", make, nn.Sequential(nn.Linear(6, 6), LayerDrop()), x)
        self.assert_refused("1 (Dropout) draws random numbers", make, nn.Sequential(nn.Linear(6, 6), nn.Dropout(1.0)), x)
        self.assert_refused("3 dimensions or more", make, nn.Sequential(nn.Linear(6, 6), nn.Dropout1d(0.2)), x)
        self.assert_refused("1 (StochasticDepth) draws random numbers", make,
                            nn.Sequential(nn.Conv2d(3, 3, 1), StochasticDepth()), images())
        self.assert_refused("0 (AlphaDropout)", make, nn.Sequential(nn.AlphaDropout(0.2), nn.Linear(6, 6)), x)
        self.assert_refused("leave_out: no module 'Dropuot'", make, Functional(), x, leave_out=["Dropuot"])
        module = make(Functional(), x, leave_out=["Functional", "inner.1"]).train()
        self.assertTrue(torch.equal(module(x), module(x)))
        module = make(Functional(), x, leave_out=["Functional"]).train()
        self.assertFalse(torch.equal(module(x), module(x)))


if __name__ == "__main__":
    unittest.main()
