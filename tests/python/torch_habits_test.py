"""What PyTorch's users do with modules holds for steelyard.torch.Module."""
import copy
import gc
import io
import pickle
import threading
import unittest

from torch_case import Branches, Convolutions, Layers, TorchCase, images, nn, quantized, steelyard, torch

LINEAR = quantized(["Linear"])


def step(module, optimizer, x, labels):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(module(x), labels)
    loss.backward()
    optimizer.step()
    return loss.item()


class ZeroCopy(TorchCase):
    def test_parameters_are_the_models_own(self):
        model = Layers()
        module = steelyard.torch.Module(model, torch.randn(2, 6), LINEAR)
        for name, parameter in model.named_parameters():
            self.assertIs(dict(module.named_parameters())[name], parameter)
        module(torch.randn(2, 6))
        for name, held in module.network.parameters().items():
            self.assertEqual(held.ctypes.data, dict(model.named_parameters())[name].data_ptr())

    def test_steps_of_an_optimizer_are_seen(self):
        model = Layers()
        module = steelyard.torch.Module(model, torch.randn(2, 6))
        x = torch.randn(3, 6)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.1)  # the user's own, made of the model
        for _ in range(3):
            optimizer.zero_grad()
            module(x).square().mean().backward()
            optimizer.step()
            self.assert_near(module(x), model(x))

    def test_other_memory_is_taken(self):
        model = Layers()
        module = steelyard.torch.Module(model, torch.randn(2, 6))
        x = torch.randn(3, 6)
        module(x)
        model.first.weight.data = torch.randn(16, 6)  # as vector_to_parameters() and others do
        self.assert_near(module(x), model(x))
        odd = torch.randn(16 * 6 + 1)[1:].reshape(16, 6)  # at an address that the library does not take
        model.first.weight.data = odd
        self.assert_near(module(x), model(x))
        module(x).sum().backward()
        self.assertEqual(model.first.weight.grad.shape, (16, 6))

    def test_buffers_are_the_networks_memory(self):
        module = steelyard.torch.Module(Convolutions(), images()).train()
        before = module.stem[1].running_mean.clone() if hasattr(module.stem, "__getitem__") else \
            module.get_submodule("stem.1").running_mean.clone()
        module(images())
        mean = module.get_submodule("stem.1").running_mean
        self.assertFalse(torch.equal(mean, before))
        self.assertEqual(int(module.get_submodule("stem.1").num_batches_tracked), 1)


class Graphs(TorchCase):
    def test_several_passes_wait(self):
        module = steelyard.torch.Module(Layers(), torch.randn(2, 6))
        x, y = torch.randn(3, 6), torch.randn(5, 6)
        (module(x).sum() + 2 * module(y).square().sum()).backward()
        together = [p.grad.clone() for p in module.parameters()]
        module.zero_grad()
        module(x).sum().backward()  # accumulated
        (2 * module(y).square().sum()).backward()
        for a, p in zip(together, module.parameters()):
            self.assert_near(p.grad, a)

    def test_a_graph_may_be_run_back_twice(self):
        module = steelyard.torch.Module(Layers(), torch.randn(2, 6))
        x = torch.randn(3, 6, requires_grad=True)
        loss = module(x).square().sum()
        loss.backward(retain_graph=True)
        once, once_x = module.first.weight.grad.clone(), x.grad.clone()
        loss.backward()
        self.assert_near(module.first.weight.grad, 2 * once)
        self.assert_near(x.grad, 2 * once_x)
        with self.assertRaises(RuntimeError):
            loss.backward()

    def test_inputs_alone_may_need_gradients(self):
        module = steelyard.torch.Module(Layers(), torch.randn(2, 6)).requires_grad_(False)
        x = torch.randn(3, 6, requires_grad=True)
        module(x).sum().backward()
        self.assertTrue(bool(x.grad.abs().sum() > 0))
        self.assertTrue(all(p.grad is None for p in module.parameters()))

    def test_parts_may_be_fixed(self):
        model = Layers()
        module = steelyard.torch.Module(model, torch.randn(2, 6), LINEAR).calibrate([torch.randn(8, 6)]).train()
        model.first.requires_grad_(False)
        module(torch.randn(3, 6)).sum().backward()
        self.assertIsNone(model.first.weight.grad)
        self.assertIsNotNone(model.second.weight.grad)
        model.first.requires_grad_(True)
        module(torch.randn(3, 6)).sum().backward()
        self.assertIsNotNone(model.first.weight.grad)

    def test_one_of_several_outputs(self):
        model = Branches()
        inputs = [torch.randn(2, 2, 6, 7), torch.randn(2, 4)]
        module, reference = steelyard.torch.Module(model, inputs), copy.deepcopy(model)
        module(*inputs)["row"].sum().backward()
        reference(*inputs)["row"].sum().backward()
        for name, parameter in reference.named_parameters():
            self.assert_near(dict(module.named_parameters())[name].grad, parameter.grad, what=name)

    def test_views_with_the_other_sign_in_memory(self):
        model = Layers()
        module = steelyard.torch.Module(model, torch.randn(2, 6))
        x = torch.randn(2, 6, dtype=torch.cfloat).conj().imag
        self.assertTrue(x.is_neg())
        self.assertLess(float((module(x) - model(x)).abs().max()), 1e-6)

    def test_a_parameter_keeps_its_shape_in_any_layout(self):
        for recipe in (None, quantized()):
            module = steelyard.torch.Module(Convolutions(), images(), recipe)
            if recipe:
                module.calibrate([images()])
            module.eval()
            before = module(images(seed=3))
            module.to(memory_format=torch.channels_last)
            self.assertTrue(torch.equal(module(images(seed=3)), before))
            weight = module.get_parameter("block.0.weight")
            with torch.no_grad():
                weight.data = weight.data.contiguous().transpose(0, 1)
            self.assertFalse(torch.equal(module(images(seed=3)), before))
            weight.data = weight.data.reshape(64, 3, 3)
            self.assert_refused("expected [8, 8, 3, 3], as it was, got [64, 3, 3]", module, images())

    def test_a_parameter_changed_before_backward_is_an_error(self):
        module = steelyard.torch.Module(Layers(), torch.randn(2, 6))
        loss = module(torch.randn(3, 6)).sum()
        with torch.no_grad():
            module.first.weight.mul_(2)
        with self.assertRaisesRegex(RuntimeError, "modified by an inplace operation"):
            loss.backward()

    def test_checkpointing(self):
        from torch.utils.checkpoint import checkpoint
        module = steelyard.torch.Module(Layers(), torch.randn(2, 6))
        for reentrant in (False, True):
            x = torch.randn(3, 6, requires_grad=True)
            module.zero_grad()
            module(x).square().sum().backward()
            expected = module.first.weight.grad.clone()
            module.zero_grad()
            checkpoint(module, x, use_reentrant=reentrant).square().sum().backward()
            self.assert_near(module.first.weight.grad, expected)

    def test_frozen_between_a_pass_and_its_gradients(self):
        module = steelyard.torch.Module(nn.Sequential(nn.Linear(6, 4), nn.Tanh(), nn.Linear(4, 1)), torch.randn(2, 6))
        for frozen_first in (False, True):
            x = torch.randn(3, 6, requires_grad=True)
            module.zero_grad(set_to_none=True)
            module(x).sum().backward()
            expected = [p.grad.clone() for p in module.parameters()]
            module.zero_grad(set_to_none=True)
            module.requires_grad_(not frozen_first)
            one = module(x).sum()
            module.requires_grad_(frozen_first)
            other = module(2 * x).sum()
            module.requires_grad_(True)
            one.backward()
            for p, gradient in zip(module.parameters(), expected):
                if frozen_first:
                    self.assertIsNone(p.grad)
                else:
                    self.assert_near(p.grad, gradient)
            other.backward()

    def test_hooks_and_clipping(self):
        module = steelyard.torch.Module(Layers(), torch.randn(2, 6))
        seen = []
        module.register_forward_hook(lambda m, i, o: seen.append(o.shape))
        module.first.weight.register_hook(lambda g: 3 * g)
        x = torch.randn(3, 6)
        module(x).sum().backward()
        tripled = module.first.weight.grad.clone()
        self.assertEqual(seen, [(3, 4)])
        norm = torch.nn.utils.clip_grad_norm_(module.parameters(), 1e-3)
        self.assertGreater(float(norm), 1e-3)
        self.assertLess(float(module.first.weight.grad.norm()), float(tripled.norm()))

    def test_half_precision_around_it(self):
        model = Layers()
        module = steelyard.torch.Module(model, torch.randn(2, 6))
        head = nn.Linear(6, 6)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            out = module(head(torch.randn(3, 6)))
        self.assertEqual(out.dtype, torch.float32)
        out.sum().backward()
        self.assertEqual(head.weight.grad.dtype, torch.float32)
        self.assert_refused("expected f32, got bf16", module, torch.randn(3, 6).bfloat16())

    def test_a_scaled_loss(self):
        if not hasattr(torch, "amp") or not hasattr(torch.amp, "GradScaler"):
            self.skipTest("this torch has no GradScaler for the CPU")
        module = steelyard.torch.Module(Layers(), torch.randn(2, 6), LINEAR).calibrate([torch.randn(8, 6)]).train()
        optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
        scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
        before = module.first.weight.detach().clone()
        scaler.scale(module(torch.randn(3, 6)).square().mean()).backward()
        scaler.step(optimizer)
        scaler.update()
        self.assertFalse(torch.equal(before, module.first.weight))


class Copies(TorchCase):
    def trained(self, recipe=quantized()):
        module = steelyard.torch.Module(Convolutions(), images(), recipe).calibrate([images(8)]).train()
        optimizer = torch.optim.SGD(module.parameters(), lr=0.02)
        step(module, optimizer, images(8), torch.arange(8) % 5)
        return module

    def assert_same_module(self, copied, module):
        x = images(4, seed=7)
        module.eval(), copied.eval()
        self.assertTrue(torch.equal(copied(x), module(x)))
        self.assertEqual(list(copied.state_dict()), list(module.state_dict()))
        own = {p.data_ptr() for p in [*module.parameters(), *module.buffers()]}
        self.assertFalse(own & {p.data_ptr() for p in [*copied.parameters(), *copied.buffers()]})
        for m in (copied, module):  # each trains by itself
            m.train()
            step(m, torch.optim.SGD(m.parameters(), lr=0.02), images(8), torch.arange(8) % 5)
        self.assertTrue(torch.equal(copied.eval()(x), module.eval()(x)))
        self.assertTrue(copied.verify(x))

    def test_deepcopy(self):
        for recipe in (None, quantized(), quantized(bn_fold="none"), quantized(algorithm={"method": "lsq"})):
            module = self.trained(recipe)
            self.assert_same_module(copy.deepcopy(module), module)

    def test_copies_keep_switches(self):
        module = self.trained()
        x = images(4, seed=7)
        integers = module.eval()(x)
        module.network.set_quantizing(False, False)
        floats = module(x)
        self.assertFalse(torch.equal(floats, integers))
        for copied in (copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
            self.assertTrue(torch.equal(copied(x), floats))
            copied.network.begin_epoch(0)
            self.assertTrue(torch.equal(copied(x), integers))

    def test_pickle(self):
        module = self.trained()
        self.assert_same_module(pickle.loads(pickle.dumps(module)), module)
        file = io.BytesIO()
        torch.save(module, file)
        file.seek(0)
        options = {"weights_only": False} if "weights_only" in torch.load.__code__.co_varnames else {}
        self.assert_same_module(torch.load(file, **options), module)

    def test_state_dict(self):
        module = self.trained()
        file = io.BytesIO()
        torch.save(module.state_dict(), file)
        file.seek(0)
        other = steelyard.torch.Module(Convolutions(), images(), quantized())
        other.load_state_dict(torch.load(file))
        self.assertTrue(torch.equal(other.eval()(images(4, seed=7)), module.eval()(images(4, seed=7))))

    def test_a_float_models_state_dict_goes_in_and_comes_out(self):
        model, other = Convolutions(), Convolutions()
        module = steelyard.torch.Module(model, images())
        module.load_state_dict(other.state_dict())
        self.assert_near(module.eval()(images()), other.eval()(images()))
        module.train()(images())
        other.load_state_dict(module.state_dict())
        self.assert_near(module.eval()(images()), other.eval()(images()))
        with self.assertRaisesRegex(RuntimeError, "Unexpected key"):
            module.load_state_dict({**other.state_dict(), "other": torch.zeros(1)})

    def test_averaged_weights(self):
        module = self.trained()
        average = torch.optim.swa_utils.AveragedModel(module)
        for _ in range(3):
            step(module, torch.optim.SGD(module.parameters(), lr=0.05), images(8), torch.arange(8) % 5)
            average.update_parameters(module)
        name = "fc.weight"
        self.assertFalse(torch.equal(dict(average.module.named_parameters())[name], dict(module.named_parameters())[name]))
        average.eval()(images(4))
        held = average.module.network.parameters()[name]
        self.assertEqual(held.ctypes.data, dict(average.module.named_parameters())[name].data_ptr())

    def test_copies_outlive_the_model(self):
        module = self.trained()
        copied = copy.deepcopy(module)
        del module
        gc.collect()
        copied(images(4)).sum().backward()


class Modes(TorchCase):
    def test_batch_norms_may_evaluate_while_the_rest_trains(self):
        module = steelyard.torch.Module(Convolutions(), images()).train()
        norms = [m for n, m in module.named_modules() if n in ("stem.1", "block.1")]
        for norm in norms:
            norm.eval()
        before = norms[0].running_mean.clone()
        module(images())
        self.assertTrue(torch.equal(norms[0].running_mean, before))
        norms[0].train()
        self.assert_refused("block.1 evaluates while other batch norms train", module, images())
        module.train()(images())
        self.assertFalse(torch.equal(norms[0].running_mean, before))

    def test_a_schedule_follows_epochs(self):
        recipe = {**quantized(), "schedule": {"freeze_observers": {"epoch": 1}}}
        module = steelyard.torch.Module(Convolutions(), images(), recipe).train()
        schedule = steelyard.torch.Schedule(module)
        highest = dict(module.named_buffers())["quantizers.input_quantizer.observer_max"]
        module(images())
        first = highest.clone()
        module(3 * images())
        self.assertFalse(torch.equal(highest, first))
        schedule.step()
        second = highest.clone()
        module(9 * images())
        self.assertTrue(torch.equal(highest, second))
        self.assertEqual(schedule.state_dict(), {"epoch": 1})
        schedule.load_state_dict({"epoch": 0})
        module(9 * images())
        self.assertFalse(torch.equal(highest, second))
        self.assertEqual(copy.deepcopy(module).epoch, 0)

    def test_threads_take_turns(self):
        module = steelyard.torch.Module(Convolutions(), images(), quantized()).calibrate([images()]).eval()
        x = images(4, seed=3)
        with torch.no_grad():
            expected = module(x)
        results = []

        def work():
            for _ in range(5):
                out = module(x)
                out.sum().backward()
                results.append(torch.equal(out, expected))

        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(results, [True] * 15)

    def test_torchs_number_of_threads_is_taken(self):
        module = steelyard.torch.Module(Layers(), torch.randn(2, 6))
        kept = torch.get_num_threads()
        try:
            torch.set_num_threads(1)
            one = module(torch.randn(3, 6))
        finally:
            torch.set_num_threads(kept)
        self.assertEqual(one.shape, (3, 4))


class Gated(nn.Module):
    """Inputs that are called by name, as transformers' are: x [N, 6] and gate [N, 4]."""

    def __init__(self):
        super().__init__()
        self.layers = Layers()

    def forward(self, x, gate, labels=None):
        return {"scores": self.layers(x) * gate}


class Named(TorchCase):
    def setUp(self):
        self.model = Gated()
        self.batch = {"x": torch.randn(3, 6), "gate": torch.rand(3, 4)}

    def test_inputs_may_come_by_name(self):
        module = steelyard.torch.Module(self.model, {n: self.batch[n] for n in ("gate", "x")})
        expected = module(self.batch["x"], self.batch["gate"])["scores"]
        self.assert_near(expected, self.model(**self.batch)["scores"])
        for made in (module, copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
            self.assertTrue(torch.equal(made(**self.batch)["scores"], expected))
            self.assertTrue(torch.equal(made(self.batch["x"], gate=self.batch["gate"])["scores"], expected))

    def test_other_names_are_refused(self):
        module = steelyard.torch.Module(self.model, tuple(self.batch.values()))
        labels = torch.zeros(3, dtype=torch.int64)
        with self.assertRaisesRegex(steelyard.Error, "'labels' is no input that is left: the module takes x, gate"):
            module(**self.batch, labels=labels)
        with self.assertRaisesRegex(steelyard.Error, "'x' is no input that is left"):
            module(self.batch["x"], self.batch["gate"], x=self.batch["x"])
        with self.assertRaisesRegex(steelyard.Error, "expected the inputs x, gate, got gate"):
            module(gate=self.batch["gate"])
        with self.assertRaisesRegex(steelyard.Error, "first parameters: expected the inputs x, gate, got x, labels"):
            steelyard.torch.Module(self.model, {"x": self.batch["x"], "labels": labels})

    def test_loaders_may_give_dicts(self):
        module = steelyard.torch.Module(self.model, self.batch, LINEAR)
        loader = [{**self.batch, "labels": torch.zeros(3, dtype=torch.int64)}] * 2
        module.calibrate(loader).eval()
        self.assertEqual(module.verify(loader).differing, 0)
        with self.assertRaisesRegex(steelyard.Error, "a batch: expected the inputs x, gate, got x"):
            module.calibrate([{"x": self.batch["x"]}])

    def test_one_batch_is_no_loader(self):
        module = steelyard.torch.Module(self.model, self.batch, LINEAR)
        for one in (self.batch, tuple(self.batch.values())):
            self.assertEqual(module.calibrate(one).eval().verify(one).samples, 3)
        for nothing in (None, 5):
            for of in (module.calibrate, module.verify):
                with self.assertRaisesRegex(steelyard.Error, f"expected tensors or batches of them, got {type(nothing).__name__}"):
                    of(nothing)


if __name__ == "__main__":
    unittest.main()
