"""The Python in which verify and predict run ONNX files: which one is started, with what modules, and how it ends."""
import os
import shutil
import signal
import subprocess
import sys
import unittest

from cli_case import LAYERS, PROGRAM, QUANTIZE, SGD, Case


def runs(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


class Python(Case):
    def exported_run(self):
        recipe = self.recipe(LAYERS + SGD.replace("epochs: 6", "epochs: 1") + QUANTIZE)
        self.succeed("train", recipe, "--run-dir", "run")
        self.succeed("export", "run")
        return "run"

    def write_spy(self, path):
        """A program that leaves PATH.ran where it is started."""
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w") as file:
            file.write("#!/bin/sh\necho >\"$0.ran\"\nexit 1\n")
        os.chmod(path, 0o755)

    def write_module(self, path, text):
        with open(path, "w") as file:
            file.write(text)

    def verify_without_choice(self, program, run, path):
        environment = {**os.environ, "PATH": path}
        environment.pop("STEELYARD_PYTHON", None)
        return subprocess.run([program, "verify", run], cwd=self.folder, env=environment, text=True, capture_output=True, timeout=100)

    def test_python_of_the_programs_own_build(self):
        run = self.exported_run()
        program, python = self.path("made", "build", "cpu", "cli", "steelyard"), self.path("made", "build", "python-env", "bin", "python3")
        os.makedirs(os.path.dirname(program))
        shutil.copy(PROGRAM, program)
        self.write_spy(python)
        with open(self.path("made", "build", "cpu", "CMakeCache.txt"), "w"):
            pass
        self.verify_without_choice(program, run, path="")
        self.assertTrue(os.path.exists(python + ".ran"))

    def test_no_python_of_the_current_folder_or_outside_of_the_installation_runs(self):
        run = self.exported_run()
        installed = self.path("local", "prefix", "bin", "steelyard")
        os.makedirs(os.path.dirname(installed))
        shutil.copy(PROGRAM, installed)
        spies = [self.path(*parts) for parts in (("python3",), ("bin", "python3"), ("build", "python-env", "bin", "python3"),
                                                 ("local", "python-env", "bin", "python3"))]
        for spy in spies:
            self.write_spy(spy)
        for path in (":/nowhere", "/nowhere:", "/nowhere::/nowhere", ".:bin:./bin", ""):
            verified = self.verify_without_choice(installed, run, path)
            self.assertEqual(verified.returncode, 0, verified.stderr)
            self.assertIn("ONNX: skipped", verified.stdout)
            self.assertEqual([spy for spy in spies if os.path.exists(spy + ".ran")], [], path)
        self.write_spy(self.path("absolute", "python3"))
        self.verify_without_choice(installed, run, "." + os.pathsep + self.path("absolute"))
        self.assertTrue(os.path.exists(self.path("absolute", "python3.ran")))

    def test_python_imports_nothing_from_the_current_folder(self):
        run = self.exported_run()
        for folder in ("", "more"):
            os.makedirs(self.path(folder), exist_ok=True)
            for module in ("numpy", "onnxruntime", "os"):
                with open(self.path(folder, module + ".py"), "w") as file:
                    file.write(f"open({self.path('ran')!r}, 'w')\n__version__ = '1'\n")
        data = os.path.join(self.data, "test.safetensors")
        for arguments in (["verify", run], ["predict", run, data, "--with", "onnx"]):
            self.run_program(*arguments, "--python", sys.executable, PYTHONPATH=self.path("more"))
            self.assertFalse(os.path.exists(self.path("ran")), arguments)

    def test_what_ends_verify_ends_its_python(self):
        run = self.exported_run()
        os.makedirs(self.path("tmp"))
        python, started = self.path("python"), self.path("started")
        with open(python, "w") as file:  # waits, as a search or a long run does
            file.write("#!/bin/sh\necho $$ >started.new\nmv started.new started\nexec sleep 100\n")
        os.chmod(python, 0o755)
        for kill in (lambda process: os.killpg(process.pid, signal.SIGINT), subprocess.Popen.kill):
            process = subprocess.Popen([PROGRAM, "verify", run, "--python", python], cwd=self.folder,
                                       stdout=subprocess.DEVNULL, start_new_session=True,
                                       env={**os.environ, "TMPDIR": self.path("tmp")})
            self.wait_for(lambda: process.poll() is not None or os.path.exists(started))
            kill(process)
            self.assertNotEqual(process.wait(60), 0)
            with open(started) as file:
                child = file.read().strip()
            os.remove(started)
            self.wait_for(lambda: not runs(child))
            self.assertEqual(os.listdir(self.path("tmp")), [])

    def test_says_all_that_onnx_runtime_said(self):
        run = self.exported_run()
        with open(self.path(run, "export", "model.onnx"), "w"):
            pass
        with open(self.path("python"), "w") as file:
            file.write("#!/bin/sh\ncase $3 in *found*) echo found 9.9; exit;; esac\n"
                       "printf 'Traceback (most):\\n  File x\\n    y\\nBad: input\\n got 3\\nfix it\\n' >&2; exit 1\n")
        os.chmod(self.path("python"), 0o755)
        self.fail_with(1, "ONNX Runtime 9.9: run/export/model.onnx: Bad: input  got 3 fix it",
                       arguments=["verify", run, "--python", self.path("python")])

    def test_a_file_that_onnx_runtime_cannot_load(self):
        run = self.exported_run()
        path = self.path(run, "export", "model.onnx")
        if not os.path.exists(path):
            shutil.copy(self.path(run, "last.safetensors"), path)
        os.makedirs(self.path("modules"))
        for module, text in (("numpy", ""), ("onnxruntime", "__version__ = '9.9'\nclass SessionOptions:\n"
                                             "    def add_session_config_entry(self, key, value): pass\n"
                                             "def InferenceSession(*_, **__): raise RuntimeError('[ONNXRuntimeError] : 7 :\\n no model')\n")):
            self.write_module(self.path("modules", module + ".py"), text)
        python = self.path("python")
        with open(python, "w") as file:  # -I ignores PYTHONPATH: this one does not pass it on
            file.write(f'#!/bin/sh\nshift\nPYTHONPATH={self.path("modules")} exec {sys.executable} "$@"\n')
        os.chmod(python, 0o755)
        data = os.path.join(self.data, "test.safetensors")
        for arguments in (["verify", run], ["predict", run, data, "--with", "onnx"]):
            failed = self.fail_with(2, "error: run/export/model.onnx: ONNX Runtime 9.9 cannot load it: [ONNXRuntimeError] : 7 : no model\n",
                                    arguments=[*arguments, "--python", python])
            self.assertNotIn("RuntimeError: ", failed.stderr)

    def test_a_python_that_is_none(self):
        run = self.exported_run()
        for python in ("/bin/echo", "/bin/true", "/nowhere/python3"):
            self.fail_with(2, python + ": no Python with numpy and onnxruntime",
                           arguments=["verify", run, "--python", python])
            self.fail_with(2, python + ": no Python with numpy and onnxruntime",
                           arguments=["predict", run, self.data, "--with", "onnx", "--python", python])
            self.fail_with(2, "predict: --python is for --with onnx", arguments=["predict", run, self.data, "--python", python])


if __name__ == "__main__":
    unittest.main()
