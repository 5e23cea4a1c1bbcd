"""A CUDA build where the driver is missing, too old, broken or finds no device."""
import os
import unittest

from cli_case import Case, LAYERS, SGD


class Drivers(Case):
    PATH = os.pathsep.join([os.environ.get("FAKE_DRIVER", ""), os.environ.get("LD_LIBRARY_PATH", "")])

    def refused(self, reason, **environment):
        recipe = self.recipe(LAYERS + SGD)
        for device in ("cuda", "cuda:1"):
            result = self.run_program("train", recipe, "--dry-run", "--device", device, LD_LIBRARY_PATH=self.PATH, **environment)
            self.assertEqual(result.returncode, 4, result.stdout + result.stderr)
            self.assertEqual(result.stderr, f"error: device '{device}' is not available: {reason}\n")
        result = self.run_program("train", recipe, "--dry-run", LD_LIBRARY_PATH=self.PATH, **environment)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn(f" on cpu ({reason})\n", result.stdout)

    def test_none(self):
        self.refused("no NVIDIA driver was found", FAKE_DRIVER_VERSION="0")

    def test_too_old(self):
        recipe = self.recipe(LAYERS + SGD)
        result = self.run_program("train", recipe, "--device", "cuda", LD_LIBRARY_PATH=self.PATH, FAKE_DRIVER_VERSION="11040")
        self.assertEqual(result.returncode, 4)
        self.assertRegex(result.stderr, r"^error: device 'cuda' is not available: the NVIDIA driver is too old: "
                                        r"it knows CUDA 11\.4, this build needs \d+\.\d+\n$")

    def test_no_device(self):
        self.refused("no CUDA-capable device is detected", FAKE_DRIVER_ERROR="100")

    def test_not_fitting_the_kernel_module(self):
        self.refused("system has unsupported display driver / cuda driver combination", FAKE_DRIVER_ERROR="803")


if __name__ == "__main__":
    unittest.main()
