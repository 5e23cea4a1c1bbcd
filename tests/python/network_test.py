"""steelyard.Network on NumPy's arrays: training by hand, files, errors. It needs no torch."""
import copy
import gc
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import unittest

try:
    import numpy as np
except ImportError as error:
    raise unittest.SkipTest(f"no torch or NumPy: {error}") from error

import steelyard

ROOT = pathlib.Path(__file__).resolve().parents[2]
RECIPE = """
version: 1
name: from-python
quantize:
  groups:
    - targets: [Linear]
      weights: {num_bits: 8, symmetric: true, strategy: channel}
      activations: {num_bits: 8, symmetric: false}
"""


def points(count, seed=0):
    x = np.random.default_rng(seed).uniform(-1, 1, (count, 2)).astype(np.float32)
    return x, (x[:, 0] * x[:, 1] > 0).astype(np.int64)


def loss_and_gradient(logits, labels):
    e = np.exp(logits - logits.max(1, keepdims=True))
    p = e / e.sum(1, keepdims=True)
    rows = np.arange(len(labels))
    loss = -np.log(p[rows, labels]).mean()
    p[rows, labels] -= 1
    return loss, (p / len(labels)).astype(np.float32)


def resident_bytes():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class NetworkCase(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.path = pathlib.Path(cls.folder.name, "model.onnx")
        subprocess.run([sys.executable, ROOT / "tests" / "c" / "write_model.py", cls.path], check=True)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def network(self, recipe=RECIPE, **options):
        return steelyard.Network(self.path, recipe, **options)

    def calibrated(self):
        network = self.network()
        network.calibrate([points(64)[0]])
        return network

    def assert_refused(self, words, call, *arguments, **options):
        with self.assertRaises(steelyard.Error) as caught:
            call(*arguments, **options)
        self.assertIn(words, str(caught.exception))
        return caught.exception


class Training(NetworkCase):
    def train(self, network, steps):
        x, labels = points(256)
        velocity = {n: np.zeros_like(p) for n, p in network.parameters().items()}
        network.train()
        parameters = network.parameters()
        for _ in range(steps):
            loss, gradient = loss_and_gradient(network(x), labels)
            network.backward(gradient)
            for name, g in network.gradients().items():
                velocity[name] = 0.9 * velocity[name] + g
                parameters[name] -= 0.5 * velocity[name]
            network.zero_gradients()
        return loss

    def test_learns_exports_and_verifies(self):
        with self.network() as network:
            self.assertLess(self.train(network, 200), 0.2)
            x, labels = points(512, seed=1)
            self.assertGreater((network.eval()(x).argmax(1) == labels).mean(), 0.93)
            file = pathlib.Path(self.folder.name, "trained.safetensors")
            network.export(file)
            result = network.verify(x, model=file)
            self.assertTrue(result)
            self.assertEqual((result.samples, result.differing), (512, 0))
            self.assertGreater(result.codes, 512 * 16)
            self.assertIn("0 of", str(result))
            for name in ("trained.onnx", "trained.h"):
                network.export(pathlib.Path(self.folder.name, name))
                self.assertGreater(pathlib.Path(self.folder.name, name).stat().st_size, 500)

    def test_checkpoints(self):
        file = pathlib.Path(self.folder.name, "checkpoint.safetensors")
        first, second = self.network(), self.network()
        self.train(first, 5)
        first.save(file)
        second.load(file)
        x, _ = points(32)
        np.testing.assert_array_equal(first.eval()(x), second.eval()(x))
        self.assert_refused("No such file", second.load, "no-such-file")
        narrow = self.network(RECIPE.replace("weights: {num_bits: 8", "weights: {num_bits: 4"))
        before = {name: value.copy() for name, value in narrow.parameters().items()}
        error = self.assert_refused("the state is that of another recipe: expected a plan with ", narrow.load, file)
        self.assertRegex(str(error), "expected .* weight int4 .*, got .* weight int8 ")
        for name, value in narrow.parameters().items():
            np.testing.assert_array_equal(value, before[name])

    def test_passes_wait_beside_each_other(self):
        network = self.network(None)
        x, _ = points(8)
        one, two = network.record(x, input_gradients=True), network.record(2 * x)
        ones = np.ones_like(one.outputs[0])
        two.backward(ones)
        of_two = {n: g.copy() for n, g in network.gradients().items()}
        network.zero_gradients()
        one.backward(ones)
        self.assertEqual(one.input_gradient(0).shape, x.shape)
        two.backward(ones)
        both = {n: g.copy() for n, g in network.gradients().items()}
        network.zero_gradients()
        one.backward(ones)
        for name, gradient in network.gradients().items():
            np.testing.assert_allclose(both[name], gradient + of_two[name], rtol=1e-5, atol=1e-6)

    def test_calibration_and_schedules(self):
        network = self.network(RECIPE + "schedule: {freeze_observers: {epoch: 2}}\n")
        network.calibrate(points(64, seed=s)[0] for s in range(3))
        highest = network.buffers()["input_quantizer.observer_max"]
        self.assertGreater(highest[0], 0.9)
        network.begin_epoch(2)
        network.train()(100 * points(4)[0])
        self.assertLess(highest[0], 1.1)
        self.assertIn("fc", network.plan().lower() + "fc")
        self.assertTrue(network.plan_json()["rows"])
        self.assertEqual((len(network.inputs()), len(network.outputs())), (1, 1))


class Arrays(NetworkCase):
    def test_views_outlive_their_network(self):
        network = self.calibrated()
        parameters = network.parameters()
        before = {n: p.copy() for n, p in parameters.items()}
        output = network(points(4)[0])
        kept = output.copy()
        network.close()
        del network
        gc.collect()
        for name, value in parameters.items():
            np.testing.assert_array_equal(value, before[name])
        np.testing.assert_array_equal(output, kept)

    def test_strides(self):
        network = self.calibrated()
        x, _ = points(16)
        expected = network(x)
        np.testing.assert_array_equal(network(np.asfortranarray(x)), expected)
        np.testing.assert_array_equal(network(x[::-1])[::-1], expected)
        wide = np.zeros((16, 6), np.float32)
        wide[:, 1::3] = x
        np.testing.assert_array_equal(network(wide[:, 1::3]), expected)

    def test_dlpack(self):
        class Other:
            def __init__(self, array):
                self.array = array

            def __dlpack__(self, **options):
                return self.array.__dlpack__(**options)

        network = self.calibrated()
        x, _ = points(16)
        np.testing.assert_array_equal(network(Other(x)), network(x))
        managed = network.pointer("steelyard_network_parameter", next(iter(network.parameters())))
        tensor = steelyard.Tensor(managed)
        self.assertEqual((tensor.device, tensor.dtype, tensor.__dlpack_device__()), ("cpu", "float32", (1, 0)))
        np.testing.assert_array_equal(np.from_dlpack(tensor), next(iter(network.parameters().values())))
        with self.assertRaises(BufferError):
            tensor.__dlpack__()

    def test_parameters_in_the_callers_memory(self):
        network = self.network(None)
        name, value = next(iter(network.parameters().items()))
        memory = np.zeros(value.size + 16, np.float32)
        first = -memory.ctypes.data // 4 % 16
        own = memory[first:first + value.size].reshape(value.shape)
        own[:] = value
        network.set_parameter(name, own)
        self.assertEqual(network.parameters()[name].ctypes.data, own.ctypes.data)
        x, _ = points(4)
        before = network(x)
        own *= 2
        self.assertFalse(np.array_equal(network(x), before))
        self.assert_refused("expected a dense array", network.set_parameter, name, own.T)

    def test_memory_stays_constant(self):
        network = self.network().train()
        x, labels = points(64)

        def steps(count):
            for _ in range(count):
                _, gradient = loss_and_gradient(network(x), labels)
                network.backward(gradient)
                network.gradients()
                network.zero_gradients()
            gc.collect()
            return resident_bytes()

        before = steps(1000)
        self.assertLess(steps(9000) - before, 2 << 20)

    def test_networks_end(self):
        def make(count):
            for _ in range(count):
                network = self.network().train()
                network.record(points(4)[0])
            gc.collect()
            return resident_bytes()

        before = make(50)
        self.assertLess(make(300) - before, 4 << 20)


class Errors(NetworkCase):
    def test_arguments(self):
        network = self.calibrated()
        x, _ = points(4)
        self.assert_refused("expected a NumPy array or one with __dlpack__, got list", network, [[1.0, 2.0]])
        self.assert_refused("expected f32, got f64", network, x.astype(np.float64))
        self.assert_refused("expected [N, 2], got [4, 1]", network, x[:, :1])
        self.assert_refused("expected 1 inputs, got 2", network, x, x)
        self.assert_refused("expected numbers in the machine's byte order", network, x.astype(">f4"))
        self.assert_refused("no parameter 'fc0", network.set_trainable, "fc0.weight")
        self.assert_refused("expected a forward pass while training", network.backward, x)
        self.assert_refused("expected an epoch from 0 on, got -1", network.begin_epoch, -1)
        self.assert_refused("expected at least one batch", network.calibrate, [])
        self.assert_refused("batch 0: expected 1 inputs, got 2", network.calibrate, [(x, x)])
        self.assert_refused("expected a name that ends in .onnx, .safetensors, .tflite, .h", network.export,
                            "model.bin")
        self.assert_refused("without NUL", network.export, "model\0.onnx")
        self.assert_refused("a seed from 0 to", network.set_seed, -1)
        self.assertEqual(self.assert_refused("8 non-finite values reached", network, np.full_like(x, np.nan)).status, 5)

    def test_files(self):
        self.assertEqual(self.assert_refused("no-such-file.onnx", steelyard.Network, "no-such-file.onnx").status, 2)
        self.assertEqual(self.assert_refused("network.onnx", steelyard.Network, b"no model").status, 2)
        error = self.assert_refused("did you mean 'quantize'", self.network, "version: 1\nname: x\nquantise: {}\n")
        self.assertEqual(error.status, 2)
        self.assert_refused("expected a device cpu, cuda or cuda:N, got 'tpu'", self.network, device="tpu")
        self.assertEqual(self.assert_refused("cuda", self.network, device="cuda").status, 4)

    def test_copies_are_refused(self):
        network = self.network(None)
        for held in (network, network.train().record(points(2)[0])):
            with self.assertRaisesRegex(steelyard.Error, "cannot be copied"):
                copy.copy(held)

    def test_a_closed_network(self):
        network = self.network()
        network.close()
        network.close()
        self.assert_refused("expected an open network, got one that was closed", network, points(2)[0])

    def test_closed_while_another_thread_computes(self):
        network = self.calibrated()
        x, _ = points(20000)
        said = []

        def work():
            try:
                while True:
                    network(x)
            except steelyard.Error as error:
                said.append(str(error))

        thread = threading.Thread(target=work)
        thread.start()
        network.close()
        thread.join(60)
        self.assertEqual(said, ["expected an open network, got one that was closed"])

    def test_threads(self):
        network = self.calibrated()
        x, _ = points(32)
        expected = network(x)
        wrong = []

        def work(good):
            for _ in range(50):
                try:
                    if not np.array_equal(network(x if good else x[:, :1]), expected):
                        wrong.append("values")
                except steelyard.Error as error:
                    if good or "expected [N, 2], got [32, 1]" not in str(error):
                        wrong.append(str(error))

        threads = [threading.Thread(target=work, args=(i % 2 == 0,)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])


class Package(unittest.TestCase):
    def test_version(self):
        with open(ROOT / "CMakeLists.txt") as file:
            self.assertIn(f"project(Steelyard VERSION {steelyard.__version__} ", file.read())
        self.assertEqual(steelyard.run("--version").stdout.split()[-1], steelyard.__version__)

    def test_command_line(self):
        done = subprocess.run([sys.executable, "-m", "steelyard", "recipes"], text=True, capture_output=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("fashion-mnist", done.stdout)
        with self.assertRaises(steelyard.Error) as caught:
            steelyard.report("no-such-run")
        self.assertIn("no-such-run", str(caught.exception))
        with self.assertRaises(steelyard.Error):
            steelyard.verify("no-such-run")


if __name__ == "__main__":
    unittest.main()
