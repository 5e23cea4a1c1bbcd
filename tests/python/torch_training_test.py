"""A loop of thirty lines, several processes, and memory that stays constant."""
import gc
import os
import pathlib
import tempfile
import unittest

from network_test import resident_bytes
from torch_case import Convolutions, Layers, TorchCase, end_processes, images, nn, quantized, steelyard, torch

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs" / "pytorch.md"


def strokes(count, seed=0):
    """Images [N, 1, 28, 28] of one of four strokes in noise, and which one it is."""
    numbers = torch.Generator().manual_seed(seed)
    x = 0.4 * torch.randn(count, 1, 28, 28, generator=numbers)
    labels = torch.randint(0, 4, (count,), generator=numbers)
    at = torch.randint(5, 22, (count,), generator=numbers)
    for i, (kind, k) in enumerate(zip(labels.tolist(), at.tolist())):
        if kind == 0:
            x[i, 0, k, 4:24] += 1
        elif kind == 1:
            x[i, 0, 4:24, k] += 1
        else:
            line = torch.arange(4, 24)
            x[i, 0, line, line if kind == 2 else 27 - line] += 1
    return x, labels


def cnn():
    """The kind of network that the quickstart trains."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(32 * 7 * 7, 64), nn.ReLU(), nn.Linear(64, 4))


class Loop(TorchCase):
    def test_thirty_lines(self):
        x, labels = strokes(1024)
        test_x, test_labels = strokes(512, seed=1)
        loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, labels), 32, shuffle=True)

        def accuracy(model):
            with torch.no_grad():
                return float((model.eval()(test_x).argmax(1) == test_labels).float().mean())

        def train(model, epochs, lr, schedule=None):
            optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
            for _ in range(epochs):
                model.train()
                for images_of, labels_of in loader:
                    optimizer.zero_grad()
                    nn.functional.cross_entropy(model(images_of), labels_of).backward()
                    optimizer.step()
                if schedule:
                    schedule.step()

        model = cnn()
        train(model, 2, 0.02)
        in_float = accuracy(model)
        recipe = {**quantized(), "schedule": {"freeze_observers": {"epoch": 1}}}
        module = steelyard.torch.Module(model.eval(), x[:2], recipe)
        module.calibrate(loader)
        train(module, 2, 0.005, steelyard.torch.Schedule(module))
        in_integers = accuracy(module)
        self.assertGreater(in_float, 0.95)
        self.assertGreater(in_integers, in_float - 0.02)
        result = module.verify([(test_x[:128], 0), (test_x[128:256], 0)])
        self.assertEqual((result.differing, result.samples, result.same), (0, 256, True))


def run_rank(rank, world, file, folder, seeds, keys):
    """One process of a training by several: its parameters and ranges go into a file."""
    import torch.distributed as dist
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{file}", rank=rank, world_size=world)
    torch.manual_seed(0)
    module = steelyard.torch.Module(Convolutions(), images(), quantized(bn_fold="none", **keys))
    module.calibrate([images(8)]).train()
    parallel = nn.parallel.DistributedDataParallel(module)
    schedule = steelyard.torch.Schedule(parallel)
    optimizer = torch.optim.SGD(parallel.parameters(), lr=0.05)
    for step in range(4):
        optimizer.zero_grad()
        x = (1 + seeds * rank) * images(8, seed=10 * step + rank)  # each process has data of its own
        nn.functional.cross_entropy(parallel(x), torch.arange(8) % 5).backward()
        optimizer.step()
    schedule.step()
    steelyard.torch.agree_on_ranges(module)
    torch.save({"state": module.state_dict(), "out": module.eval()(images(4)).detach()}, f"{folder}/{rank}.pt")
    del parallel
    end_processes(module)


class Processes(TorchCase):
    def test_two_ranks_have_one_network(self):
        self.check_two_ranks({})

    def test_two_ranks_learn_the_same_scales(self):
        self.check_two_ranks({"algorithm": {"method": "lsq"}})

    def check_two_ranks(self, keys):
        import torch.multiprocessing as multiprocessing
        with tempfile.TemporaryDirectory() as folder:
            multiprocessing.start_processes(run_rank, (2, f"{folder}/meeting", folder, 1, keys), nprocs=2,
                                            start_method="spawn")
            first, second = (torch.load(f"{folder}/{rank}.pt") for rank in range(2))
        self.assertEqual(list(first["state"]), list(second["state"]))
        for name, value in first["state"].items():
            self.assertTrue(torch.equal(value, second["state"][name]), name)
        self.assertTrue(torch.equal(first["out"], second["out"]))


class Memory(TorchCase):
    def test_stays_constant(self):
        module = steelyard.torch.Module(Layers(), torch.randn(2, 6), quantized(["Linear"]))
        module.calibrate([torch.randn(32, 6)]).train()
        optimizer = torch.optim.SGD(module.parameters(), lr=0.01)
        x = torch.randn(64, 6)

        def steps(count):
            for _ in range(count):
                optimizer.zero_grad()
                module(x).square().mean().backward()
                optimizer.step()
            gc.collect()
            return resident_bytes()

        before = steps(1000)
        self.assertLess(steps(int(os.environ.get("STEELYARD_LEAK_STEPS", "9000"))) - before, 4 << 20)

    def test_a_graph_that_is_dropped_is_free(self):
        module = steelyard.torch.Module(Convolutions(), images())
        x = images(16)

        def steps(count):
            for _ in range(count):
                loss = module(x).sum()  # never run back
            del loss
            gc.collect()
            return resident_bytes()

        before = steps(50)
        self.assertLess(steps(300) - before, 8 << 20)

    def test_backward_frees_what_the_pass_kept(self):
        from steelyard.network import Pass

        def waiting():
            gc.collect()
            return sum(isinstance(o, Pass) for o in gc.get_objects())

        module = steelyard.torch.Module(Convolutions(), images())
        before = waiting()
        loss = module(images()).sum()
        self.assertEqual(waiting(), before + 1)
        loss.backward()
        self.assertEqual(waiting(), before)  # though the loss still lives

    def test_modules_end(self):
        def make(count):
            for _ in range(count):
                module = steelyard.torch.Module(Layers(), torch.randn(2, 6), quantized(["Linear"]))
                module.train()(torch.randn(2, 6)).sum().backward()
            del module
            gc.collect()
            return resident_bytes()

        before = make(15)
        self.assertLess(make(45) - before, 12 << 20)


if __name__ == "__main__":
    unittest.main()
