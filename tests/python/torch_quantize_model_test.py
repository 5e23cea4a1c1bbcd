"""Models that quantize_() has changed: what it swaps and refuses, torch's habits, several processes, memory."""
import copy
import gc
import io
import os
import pickle
import shutil
import tempfile
import unittest

from network_test import resident_bytes
from torch_case import TorchCase, end_processes, nn, steelyard, torch
import quantize_reference as reference
from steelyard.torch import QuantizedEmbedding, QuantizedLinear, calibrate, quantize_

NEW = hasattr(getattr(torch, "library", None), "custom_op")


class Words(nn.Module):
    """Tokens [N, T] to scores [N, T, 40]; the embedding is the head's weight, too."""

    def __init__(self, tied=True):
        super().__init__()
        self.embedding = nn.Embedding(40, 32, padding_idx=0)
        self.block = nn.ModuleDict({"up": nn.Linear(32, 64), "down": nn.Linear(64, 32)})
        self.head = nn.Linear(32, 40, bias=False)
        if tied:
            self.head.weight = self.embedding.weight

    def forward(self, tokens):
        x = self.embedding(tokens)
        return self.head(x + self.block["down"](torch.relu(self.block["up"](x))))


def recipe(weights=None, activations=None, targets=("Linear", "Embedding"), **keys):
    group = {"targets": list(targets)}
    if weights is not None:
        group["weights"] = weights
    if activations is not None:
        group["activations"] = activations
    return {"version": 1, "name": "test", "quantize": {"groups": [group], **keys}}


RECIPES = {
    "w8": recipe({"num_bits": 8}),
    "w4 group, a8 token": recipe({"num_bits": 4, "strategy": "group", "group_size": 16},
                                 {"dynamic": True, "strategy": "token", "symmetric": True}),
    "w2 tensor, a8": recipe({"num_bits": 2, "strategy": "tensor"}, {"num_bits": 8}),
    "w3 affine, a4 block": recipe({"num_bits": 3, "symmetric": False},
                                  {"num_bits": 4, "dynamic": True, "strategy": "block", "block_structure": [2, 16]}),
    "mxfp4": recipe({"num_bits": 4, "type": "float"}),
    "lsq": recipe({"num_bits": 4, "strategy": "group"}, {"num_bits": 4}, algorithm={"method": "lsq"}),
    "lsq+": recipe({"num_bits": 3}, {"num_bits": 4}, algorithm={"method": "lsq_plus"}),
}


def tokens(count=4, seed=0):
    return torch.randint(0, 40, (count, 6), generator=torch.Generator().manual_seed(seed))


def quantized(name, tied=True):
    torch.manual_seed(0)
    model = Words(tied)
    quantize_(model, RECIPES[name])
    return calibrate(model, [tokens(8, seed) for seed in range(3)])


def step(model, x):
    """The loss, and gradients by name."""
    model.zero_grad()
    loss = model(x).square().mean()
    loss.backward()
    return loss.detach(), {n: p.grad.clone() for n, p in model.named_parameters()}


class Swapping(TorchCase):
    def test_the_layers_stay_the_same_objects(self):
        for name, how in RECIPES.items():
            with self.subTest(name):
                model = Words()
                before, parameters, calls = dict(model.named_modules()), dict(model.named_parameters()), []
                model.head.register_forward_hook(lambda *_: calls.append(1))
                quantize_(model, how)
                after = dict(model.named_modules())
                for path, module in before.items():
                    self.assertIs(after[path], module)
                for path, parameter in parameters.items():
                    self.assertIs(dict(model.named_parameters())[path], parameter)
                self.assertIs(model.head.weight, model.embedding.weight)
                self.assertIs(model.head.weight_quantizer, model.embedding.weight_quantizer)
                self.assertEqual([type(m) for m in (model.head, model.embedding, model.block["up"])],
                                 [QuantizedLinear, QuantizedEmbedding, QuantizedLinear])
                calibrate(model, [tokens()])
                self.assertEqual(calls, [1])

    def test_a_layer_computes_with_fake_quantized_tensors(self):
        linear = nn.Linear(24, 10)
        model = nn.Sequential(linear)
        quantize_(model, recipe({"num_bits": 4}, {"num_bits": 8, "dynamic": True, "strategy": "token"}, ["Linear"]))
        x = torch.randn(3, 5, 24)
        rows = x.reshape(15, 24)
        halves = []
        for values, codes in ((rows, (0, 255, 0)), (linear.weight.detach(), (-7, 7, 1))):
            sets = reference.sets_of(values.shape, "token")
            s, z = reference.qparams(values, sets, codes)
            halves.append(reference.fake_quantize(values.double(), s, z, sets, codes)[0])
        expected = halves[0] @ halves[1].T + linear.bias.detach().double()
        self.assert_near(model(x).detach().double(), expected.reshape(3, 5, 10), 1e-5)

    def test_an_embedding_reads_rows_of_the_fake_quantized_table(self):
        for name in RECIPES:
            with self.subTest(name):
                model = quantized(name)
                layer, x = model.embedding, tokens()
                table = layer.weight_quantizer(layer.weight)
                gathered = nn.functional.embedding(x, table, 0)
                self.assert_near(layer(x), gathered.detach(), 1e-7)
                for y in (gathered, layer(x)):
                    model.zero_grad()
                    (y * torch.arange(32.0)).sum().backward()
                    gradient, kept = layer.weight.grad, locals().get("gradient")
                self.assert_near(gradient, kept, 1e-6)

    def test_targets(self):
        def plan_of(how):
            model = Words(tied=False)
            text = quantize_(model, how)
            self.assertEqual(text, steelyard.torch.plan(model))
            return {line.split()[0] for line in text.splitlines()[1:] if "int4" in line}

        four = {"num_bits": 4}
        self.assertEqual(plan_of(recipe(four, targets=["block"])), {"block.up", "block.down"})
        self.assertEqual(plan_of(recipe(four, targets=["block.up", "head"])), {"block.up", "head"})
        self.assertEqual(plan_of(recipe(four, targets=["re:block\\..*"])), {"block.up", "block.down"})
        self.assertEqual(plan_of(recipe(four, targets=["re:.*"], ignore=["head", "Embedding"])),
                         {"block.up", "block.down"})
        first = recipe(four, targets=["head"])
        first["quantize"]["groups"].append({"targets": ["Linear"], "weights": {"num_bits": 8}})
        self.assertEqual(plan_of(first), {"head"})

    def test_a_recipe_may_be_yaml(self):
        text = "version: 1\nname: x\nquantize:\n  groups:\n    - targets: [Linear]\n      weights: {num_bits: 4}\n"
        try:
            import yaml  # noqa: F401
        except ImportError:
            self.assert_refused("needs PyYAML", quantize_, Words(), text)
            return
        self.assertIn("int4", quantize_(Words(tied=False), text))
        self.assert_refused("the recipe: ", quantize_, Words(), text + "  }")

    def test_refusals(self):
        refused = lambda words, how, model=None: self.assert_refused(  # noqa: E731
            words, quantize_, model or Words(tied=False), how)
        refused("'Conv2d' matches no layer", recipe({}, targets=["Conv2d", "Linear"]))
        refused("'haed' matches no layer", recipe({}, ignore=["haed"]))
        refused("quantize.groups[0].weights.bits: quantize_() has no such key", recipe({"bits": 4}))
        refused("quantize.bn_fold: quantize_() has no such key", recipe({}, bn_fold="none"))
        refused("schedule: quantize_() has no such key", {**recipe({}), "schedule": {}})
        refused("version: expected 1, got 2", {**recipe({}), "version": 2})
        refused("num_bits: expected a number from 2 to 8, got 9", recipe({"num_bits": 9}))
        refused("num_bits: expected int, got True", recipe({"num_bits": True}))
        refused("strategy: expected one of channel, tensor, group, got 'block'", recipe({"strategy": "block"}))
        refused("observer: expected one of min_max, got 'mse'", recipe({"observer": "mse"}))
        refused("activations.observer: expected one of min_max, moving_average, fixed, got 'histogram'",
                recipe(None, {"observer": "histogram"}, ["Linear"]))
        refused("method: expected one of ste, lsq, lsq_plus, got 'pact'", recipe({}, algorithm={"method": "pact"}))
        refused("token needs dynamic: true", recipe({}, {"strategy": "token"}))
        refused("tensor needs dynamic: false", recipe({}, {"dynamic": True}))
        refused("block_structure: belongs to", recipe({}, {"dynamic": True, "strategy": "block"}))
        refused("group_size: needs the strategy group", recipe({"group_size": 8}))
        refused("expected a size that divides 32", recipe({"strategy": "group", "group_size": 5}))
        refused("type float is MXFP4", recipe({"type": "float", "group_size": 16}))
        refused("powers of two", recipe({"type": "float"}, algorithm={"method": "lsq"}))
        refused("its input are whole numbers", recipe(None, {"num_bits": 8}, ["Embedding"]))
        refused("quantize.groups: expected at least one group", {"version": 1, "quantize": {"groups": []}})
        refused("share a weight: expected one scheme for both", recipe({"num_bits": 4}, targets=["head"], **{}) | {
            "quantize": {"groups": [{"targets": ["head"], "weights": {"num_bits": 4}},
                                    {"targets": ["Embedding"], "weights": {"num_bits": 8}}]}}, Words())
        refused("0 (Conv2d): quantize_() has Linear and Embedding", recipe({}, targets=["Conv2d"]),
                nn.Sequential(nn.Conv2d(3, 3, 1)))
        refused("names a subclass of Linear", recipe({}, targets=["re:.*"]), nn.MultiheadAttention(8, 2))
        refused("expected a float nn.Module, got int", recipe({}), 3)
        model = Words(tied=False)
        quantize_(model, recipe({}, targets=["head"]))
        refused("head (QuantizedLinear) is quantized already", recipe({}, targets=["re:head"]), model)
        self.assert_refused("expected at least one, got none", calibrate, model, [])
        self.assert_refused("expected a model that quantize_() has changed", calibrate, Words(), [tokens()])
        learned = Words()
        quantize_(learned, RECIPES["lsq"])
        self.assert_refused("input_quantizer: no range yet: call steelyard.torch.calibrate", learned, tokens())

    def test_a_refused_recipe_changes_nothing(self):
        model = Words()
        self.assert_refused("matches no layer", quantize_, model, recipe({}, targets=["Linear", "nothing"]))
        self.assertEqual({type(m) for m in model.modules()} & {QuantizedLinear, QuantizedEmbedding}, set())


class Habits(TorchCase):
    def test_a_batch_of_none(self):
        for name in RECIPES:
            with self.subTest(name):
                model = quantized(name).train()
                before = copy.deepcopy(model.state_dict())
                y = model(tokens(0))
                self.assertEqual(tuple(y.shape), (0, 6, 40))
                y.sum().backward()
                for key, value in model.state_dict().items():
                    self.assertTrue(torch.equal(value, before[key]), key)
                self.assertTrue(all(not p.grad.any() for p in model.parameters() if p.grad is not None))

    def test_learns(self):
        for name in RECIPES:
            with self.subTest(name):
                model = quantized(name).train()
                optimizer = torch.optim.Adam(steelyard.torch.parameter_groups(model, 0.01, scale_lr=0.1))
                x = tokens(16)
                losses = []
                for _ in range(30):
                    optimizer.zero_grad()
                    loss = nn.functional.cross_entropy(model(x).flatten(0, 1), x.flatten())
                    loss.backward()
                    optimizer.step()
                    losses.append(loss.item())
                self.assertLess(losses[-1], 0.85 * losses[0])
                learned = [n for n, _ in model.named_parameters() if "learned" in n]
                self.assertEqual(bool(learned), name.startswith("lsq"))

    def test_copies_pickles_and_states(self):
        for name in RECIPES:
            with self.subTest(name):
                model = quantized(name)
                x = tokens()
                expected = model.eval()(x).detach()
                for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
                    self.assertTrue(torch.equal(twin(x), expected))
                    self.assertIs(twin.head.weight, twin.embedding.weight)
                saved = io.BytesIO()
                torch.save(model.state_dict(), saved)
                saved.seek(0)
                other = Words()
                quantize_(other, RECIPES[name])
                other.load_state_dict(torch.load(saved))
                self.assertTrue(torch.equal(other.eval()(x), expected))

    def test_a_state_of_another_recipe(self):
        lsq = {"algorithm": {"method": "lsq"}}
        for name, changed in (("w2 tensor, a8", recipe({"num_bits": 2, "strategy": "tensor"}, {"num_bits": 4})),
                              ("lsq", recipe({"num_bits": 4, "strategy": "group"}, {"num_bits": 3}, **lsq)),
                              ("lsq", recipe({"num_bits": 3, "strategy": "group"}, {"num_bits": 4}, **lsq))):
            with self.subTest(name):
                model, other = quantized(name), Words()
                state = model.state_dict()
                quantize_(other, changed)
                with self.assertRaisesRegex(RuntimeError, "the state is that of another recipe: expected block.up.[a-z]+_quantizer "
                                                          "with .*, got "):
                    other.load_state_dict(state)
                other.load_state_dict({k: v for k, v in state.items() if not k.endswith(".scheme")})  # of an earlier version
                for key in ("head.weight", "block.up.input_quantizer.range"):
                    self.assertTrue(torch.equal(other.state_dict()[key], state[key]))

    def test_frozen_parts_and_accumulation(self):
        model = quantized("w4 group, a8 token")
        model.block.requires_grad_(False)
        loss = model(tokens()).sum()
        loss.backward()
        once = model.head.weight.grad.clone()
        model(tokens()).sum().backward()
        self.assert_near(model.head.weight.grad, 2 * once, 1e-6)
        self.assertIsNone(model.block["up"].weight.grad)

    def test_autocast(self):
        for name in RECIPES:
            with self.subTest(name):
                model = quantized(name)
                expected = model.eval()(tokens()).detach()
                model.train()
                with torch.autocast("cpu", dtype=torch.bfloat16):
                    y = model(tokens())
                self.assertEqual(y.dtype, torch.bfloat16)
                y.float().square().mean().backward()
                self.assertTrue(all(p.grad.dtype == torch.float32 for p in model.parameters()))
                if "a" not in name.replace("affine", ""):
                    self.assert_near(y.float(), expected, 0.05)

    def test_models_in_half_precision(self):
        for dtype in (torch.bfloat16, torch.float64):
            model = quantized("w4 group, a8 token").to(dtype)
            loss, gradients = step(model, tokens())
            self.assertEqual({loss.dtype, *(g.dtype for g in gradients.values())}, {dtype})

    def test_compiles_as_one_graph(self):
        if not NEW:
            self.skipTest(f"torch {torch.__version__} has no torch.library.custom_op")
        for name in RECIPES:
            for shapes in ((4,), (4, 7, 9)):
                with self.subTest(name, shapes=shapes):
                    torch._dynamo.reset()
                    eager = quantized(name).train()
                    compiled = torch.compile(copy.deepcopy(eager), fullgraph=True, backend="aot_eager",
                                             dynamic=True if len(shapes) > 1 else None)
                    for count in shapes:
                        ours, theirs = step(compiled, tokens(count)), step(eager, tokens(count))
                        self.assert_near(ours[0], theirs[0], 1e-6)
                        for (path, a), b in zip(ours[1].items(), theirs[1].values()):
                            self.assert_near(a, b, 1e-5, path)
                    for (path, a), b in zip(compiled.state_dict().items(), eager.state_dict().values()):
                        self.assert_near(a.float(), b.float(), 1e-6, path)

    def test_evaluation_takes_no_way_around_the_layers(self):
        torch.manual_seed(0)
        for nested in (False, True):
            layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
            model = nn.TransformerEncoder(layer, 2) if nested else layer
            plain = copy.deepcopy(model).eval()
            quantize_(model, {"version": 1, "quantize": {"groups": [{
                "targets": ["re:.*linear[12]"], "weights": {"num_bits": 4},
                "activations": {"num_bits": 8, "dynamic": True, "strategy": "token"}}]}})
            model.eval()
            x = torch.randn(3, 5, 16)
            with_gradients = model(x)
            with torch.no_grad():
                self.assert_near(model(x), with_gradients, 1e-5)
                self.assertGreater(float((model(x) - plain(x)).abs().max()), 1e-3)

    def test_calibration_that_sees_nothing_is_an_error(self):
        class Skips(nn.Module):
            def __init__(self):
                super().__init__()
                self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 8)

            def forward(self, x):
                return self.second(self.first(x)) if self.training else self.first(x)

        model = Skips()
        quantize_(model, {"version": 1, "quantize": {"groups": [{
            "targets": ["Linear"], "weights": {"num_bits": 8}, "activations": {"num_bits": 8}}]}})
        self.assert_refused("second.input_quantizer has seen nothing in 1 batches", calibrate, model, [torch.randn(4, 8)])

    def test_inductor(self):
        if not NEW:
            self.skipTest(f"torch {torch.__version__} has no torch.library.custom_op")
        if not (os.environ.get("CXX") or shutil.which("g++")):
            self.skipTest("inductor needs a C++ compiler")
        torch._dynamo.reset()
        eager = quantized("w2 tensor, a8").train()
        compiled = torch.compile(copy.deepcopy(eager), fullgraph=True)
        ours, theirs = step(compiled, tokens()), step(eager, tokens())
        self.assert_near(ours[0], theirs[0], 1e-5)
        for (path, a), b in zip(ours[1].items(), theirs[1].values()):
            self.assert_near(a, b, 1e-4, path)


def run_rank(rank, world, file, folder, kind):
    """One process of several: DistributedDataParallel, or FSDP2."""
    import torch.distributed as dist
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{file}", rank=rank, world_size=world)
    model = quantized("lsq" if kind == "fsdp" else "w2 tensor, a8", tied=kind != "fsdp").train()
    if kind == "fsdp":
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard
        mesh = init_device_mesh("cpu", (world,))
        for layer in model.block.values():
            fully_shard(layer, mesh=mesh)
        parallel = fully_shard(model, mesh=mesh)
    else:
        parallel = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(parallel.parameters(), lr=0.05)
    for i in range(3):
        optimizer.zero_grad()
        x = tokens(8, 10 + i).tensor_split(world)[rank]
        parallel(x).square().mean().backward()
        optimizer.step()
    if kind == "ddp":
        steelyard.torch.agree_on_ranges(parallel)
    state = {n: (p.full_tensor() if hasattr(p, "full_tensor") else p).detach().clone()
             for n, p in model.state_dict().items()}
    torch.save(state, f"{folder}/{rank}.pt")
    del parallel
    end_processes(model)


class Ranks(TorchCase):
    def run_ranks(self, kind):
        import torch.multiprocessing as multiprocessing
        with tempfile.TemporaryDirectory() as folder:
            multiprocessing.start_processes(run_rank, (2, f"{folder}/meeting", folder, kind), nprocs=2,
                                            start_method="spawn")
            first, second = (torch.load(f"{folder}/{rank}.pt") for rank in range(2))
        self.assertEqual(list(first), list(second))
        for name, value in first.items():
            self.assertTrue(torch.equal(value, second[name]), name)
        return first

    def test_data_parallel_ranks_agree(self):
        self.run_ranks("ddp")

    def test_sharded_parameters_train_as_whole_ones(self):
        if not NEW:
            self.skipTest(f"torch {torch.__version__} has no fully_shard")
        if not hasattr(torch.cpu.Stream, "record_event"):
            self.skipTest(f"fully_shard of torch {torch.__version__} needs a GPU")
        sharded = self.run_ranks("fsdp")
        model = quantized("lsq", tied=False).train()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        for i in range(3):
            optimizer.zero_grad()
            sum(model(x).square().mean() / 2 for x in tokens(8, 10 + i).tensor_split(2)).backward()
            optimizer.step()
        for name, value in model.state_dict().items():
            self.assert_near(sharded[name].float(), value.float(), 1e-5, name)


class Steps(TorchCase):
    def test_stays_constant(self):
        """10,000 steps; a leak of 400 bytes in each would be found."""
        self.addCleanup(torch.set_num_threads, torch.get_num_threads())
        torch.set_num_threads(1)
        model = nn.Sequential(nn.Linear(16, 4))
        quantize_(model, recipe({"num_bits": 4, "strategy": "group", "group_size": 8}, {"num_bits": 8}, ["Linear"]))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        x = torch.randn(8, 16)

        def steps(count):
            for _ in range(count):
                optimizer.zero_grad()
                model(x).square().mean().backward()
                optimizer.step()
            gc.collect()
            return resident_bytes()

        before = steps(1000)
        count = int(os.environ.get("STEELYARD_LEAK_STEPS", "9000"))
        self.assertLess(steps(count) - before, max(400 * count, 1 << 20))


if __name__ == "__main__":
    unittest.main()
