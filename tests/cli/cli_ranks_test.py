"""One training by several processes: the same bytes for any number of them, stopped, resumed, diverged."""
import json
import os
import re
import shutil
import signal
import subprocess
import unittest

from support import mpirun, namespaces
from cli_case import ADAMW, Case, LAYERS, PROGRAM, QUANTIZE, SGD, write_images

HANG = 300  # seconds after which something hangs, however loaded the machine is

# What a step may hold; 90 samples in batches of 10 or 16, so that the last one has 10 rows for 4 shards.
BAR = {
    "cnn W8A8": "model: {type: cnn, channels: [4, 8], hidden: 8, classes: 4}\n" + SGD + QUANTIZE,
    "resnet W4A4 LSQ, EMA, distillation": """
model: {type: resnet, depth: 8, width: 4, classes: 4}
train: {epochs: 6, optimizer: {type: sgd, lr: 0.02}, ema: {decay: 0.9}, distill: {checkpoint: teacher/last.safetensors, weight: 0.5, temperature: 2}}
quantize:
  groups: [{targets: [Linear, Conv2d], weights: {num_bits: 4, observer: mse}, activations: {num_bits: 4}}]
  algorithm: {method: lsq}
""",
    "mobilenet, oscillations": """
model: {type: mobilenet, classes: 4}
train: {epochs: 6, optimizer: {type: adamw, lr: 0.002}, clip_grad_norm: 1.0}
quantize:
  groups: [{targets: [Linear, Conv2d], weights: {num_bits: 3}, activations: {num_bits: 8}}]
  oscillations: {momentum: 0.1, freeze_threshold: {start: 0.1, end: 0.05}}
""",
    "dropout and augmentation": LAYERS + ADAMW,
    "histogram": LAYERS + ADAMW + QUANTIZE.replace("moving_average", "histogram"),
    "folded batch norm, corrected": LAYERS + SGD + QUANTIZE + "  bn_fold: batch_corrected\n",
    "LSQ+ and entropy": LAYERS + ADAMW + QUANTIZE.replace("moving_average", "entropy") + "  algorithm: {method: lsq_plus}\n",
    "groups of 4-bit weights": LAYERS + ADAMW + """
quantize:
  groups: [{targets: [Linear], weights: {num_bits: 4, strategy: group, group_size: 16}}]
""",
}


def environment(**more):
    return mpirun.environment(OMP_WAIT_POLICY="passive", **more)


@unittest.skipUnless(mpirun.MPIRUN and os.environ.get("STEELYARD_HAVE_MPI"), "built without MPI")
class Ranks(Case):
    def start(self, ranks, *arguments, **variables):
        return self.start_command(mpirun.command(ranks, PROGRAM, *arguments, "--threads", "1"), **variables)

    def start_command(self, command, **variables):
        return subprocess.Popen(command, cwd=self.folder, text=True, env=environment(**variables), stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE)

    def ranks(self, ranks, *arguments, code=0, **variables):
        process = self.start(ranks, *arguments, **variables)
        out, err = process.communicate(timeout=HANG)
        self.assertEqual(process.returncode, code, out + err)
        return out, err

    def ranks_train(self, ranks, recipe, run, *more, code=0, **variables):
        return self.ranks(ranks, "train", recipe, "--run-dir", self.path(run), *more, code=code, **variables)

    def sharded(self, body, name="recipe.yaml", epochs=1):
        return self.recipe(body.replace("epochs: 6", f"epochs: {epochs}, shards: 4"), name)


class SameBits(Ranks):
    def test_bar(self):
        self.train(self.recipe("model: {type: resnet, depth: 8, width: 4, classes: 4}\n" + SGD.replace("epochs: 6", "epochs: 1")),
                   "teacher")
        for name, body in BAR.items():
            with self.subTest(name):
                for run in ("r1", "r2", "r4"):
                    shutil.rmtree(self.path(run), ignore_errors=True)
                recipe = self.sharded(body)
                self.train(recipe, "r1", "--threads", "1", "--set", "data.batch_size=16")
                for ranks in (2, 4):
                    out, _ = self.ranks_train(ranks, recipe, f"r{ranks}", "--set", "data.batch_size=16")
                    self.assertNotIn("\033", out, "mpirun gives ranks a terminal, whatever it writes to")
                    for file in ("last.safetensors", "best.safetensors"):
                        self.assertEqual(self.sha(f"r{ranks}", file), self.sha("r1", file), f"{file} of {ranks} ranks")
                    self.assertEqual(self.metrics(f"r{ranks}"), self.metrics("r1"))
                    self.require_rank_seconds(ranks, f"r{ranks}")
                self.require_rank_seconds(1, "r1")
        self.succeed("report", "r4")
        with open(self.path("r4", "report.html")) as file:
            self.assertRegex(file.read(), "(?s)Seconds in the steps of 1 epoch with 4 ranks.*<td class=\"name\">3</td>")

    def require_rank_seconds(self, ranks, run):
        with open(self.path(run, "metrics.jsonl")) as file:
            epochs = [line for line in map(json.loads, file) if line["type"] == "epoch"]
        for epoch in epochs:
            seconds = epoch["rank_seconds"]
            self.assertEqual({name: len(values) for name, values in seconds.items()},
                             dict.fromkeys(("compute", "reduce", "wait", "batches", "making"), ranks))
            for compute, reduce, wait, batches, making in zip(*seconds.values()):
                self.assertLess(0, making)
                self.assertLess(batches, compute)
                self.assertLess(0, compute)
                self.assertLessEqual(compute + wait, epoch["seconds"])
                self.assertEqual((reduce > 0, wait > 0), (ranks > 1, ranks > 1))

    def test_texts_of_one_batch(self):
        """One rank has no batch of the validation samples: it learns from the other how many frames there are."""
        with open(self.path("words.csv"), "w") as file:
            file.write("x,y,word\n" + "".join(f"{i % 7},{i % 5},{('a', 'b', 'ab')[i % 3]}\n" for i in range(40)))
        recipe = self.path("words.yaml")
        with open(recipe, "w") as file:
            file.write("version: 1\nname: words\n"
                       f"data: {{dataset: table, path: {self.path('words.csv')}, batch_size: 8, validation: 4, test: 6, table: {{target: [word]}}}}\n"
                       "model: {classes: 6, layers: [{type: Linear, out_features: 6}]}\n"
                       "train: {loss: ctc, zero_infinity: true, shards: 4, epochs: 1, optimizer: {type: sgd, lr: 0.1}}\n")
        self.train(recipe, "alone", "--threads", "1")
        self.ranks_train(2, recipe, "both")
        self.assertEqual(self.sha("both", "last.safetensors"), self.sha("alone", "last.safetensors"))
        self.assertEqual(self.metrics("both"), self.metrics("alone"))
        self.assertIn("cer", self.metrics("alone")[-1])

    def test_stopped_with_four_ranks_continued_with_two_ended_by_one(self):
        recipe = self.sharded(LAYERS + ADAMW + QUANTIZE, epochs=3)
        self.train(recipe, "whole", "--threads", "1")
        self.ranks_train(4, recipe, "parts", "--set", "train.epochs=1")
        self.ranks_train(2, recipe, "parts", "--resume", "--set", "train.epochs=2")
        self.train(recipe, "parts", "--resume", "--threads", "1")
        self.assertEqual(self.sha("parts", "last.safetensors"), self.sha("whole", "last.safetensors"))


    def test_sensitivity_and_eval(self):
        self.train(self.recipe(LAYERS + ADAMW.replace("epochs: 6", "epochs: 1")), "run")
        expected = self.succeed("eval", "run", "--threads", "1")
        self.assertEqual(self.ranks(4, "eval", "run")[0], expected)
        arguments = ["sensitivity", "run", "--json", "--bits", "8,3,2"]
        expected = self.succeed(*arguments, "--threads", "1")
        for ranks in (2, 4):
            self.assertEqual(self.ranks(ranks, *arguments)[0], expected)
        self.assertIn("there is no folder", "".join(self.ranks(2, *arguments, "--budget-bits", "4", "--out", "none/m.yaml", code=2)))


class Together(Ranks):
    def until_a_checkpoint(self, process):
        """The processes of the ranks, by rank. The second epoch has ended: of the first checkpoint some rank may not know yet."""
        def saved():
            metrics = self.path("run", "metrics.jsonl")
            if not os.path.exists(metrics):
                return False
            with open(metrics) as file:
                return len({json.loads(line).get("epoch") for line in file if line.endswith("\n")}) > 2
        self.wait_for(lambda: process.poll() is not None or saved())
        return mpirun.rank_processes(self.path("run"))

    def lose(self, kind, recipe, hosts=None):
        """Rank 1 of two, or the link to it; what standard error and its log have then."""
        arguments = [PROGRAM, "train", recipe, "--run-dir", self.path("run"), "--threads", "1"]
        process = self.start_command(hosts.mpirun(1, *arguments) if hosts else mpirun.command(2, *arguments))
        try:
            processes = self.until_a_checkpoint(process)
            if hosts:
                hosts.set_link(1, "down")
            else:
                os.kill(processes.pop(1), kind)
            seconds = mpirun.seconds_until_gone(processes.values(), HANG)
            self.assertIsNotNone(seconds, "a rank was left")
            self.assertLess(seconds, 2 if kind == signal.SIGKILL else 7)
            if not hosts:
                process.wait(HANG)
        finally:
            process.kill()  # mpirun may not notice that a link is down
            if hosts:
                hosts.close()
        out, err = process.communicate()
        self.assertNotEqual(process.returncode, 0, out + err)
        with open(self.path("run", "rank-1.log")) as file:
            return err + file.read()

    # scripts/campaign ranks does so a hundred times, at random moments.
    def test_a_lost_rank_ends_the_run_which_continues_to_the_same_bits(self):
        recipe = self.sharded(LAYERS + ADAMW + QUANTIZE, epochs=60)
        self.train(recipe, "whole", "--threads", "1")
        faults = [(signal.SIGKILL, "its connection ended", {}), (signal.SIGSTOP, "nothing was heard from it for 5000 ms", {})]
        if not (mpirun.why_not_open_mpi_4() or namespaces.why_not()):
            faults.append(("link", "nothing was heard from it for 5000 ms", {"hosts": namespaces.Hosts(2)}))
        for kind, reason, hosts in faults:
            with self.subTest(kind):
                self.assertRegex(self.lose(kind, recipe, **hosts),
                                 r"lost: rank \d on \S+ \(process \d+, last known at step \d+\): " + reason +
                                 r"; rank \d on \S+ stops at step \d+; --resume continues from \S+/run/last.safetensors \(step \d+\)")
                self.train(recipe, "run", "--threads", "1", "--resume")
                self.assertEqual(self.sha("run", "last.safetensors"), self.sha("whole", "last.safetensors"))
                shutil.rmtree(self.path("run"))

    def test_a_signal_to_one_rank_stops_all_after_the_same_step(self):
        recipe = self.sharded(LAYERS + ADAMW + QUANTIZE, epochs=4000)
        process = self.start(2, "train", recipe, "--run-dir", self.path("run"))
        try:
            os.kill(self.until_a_checkpoint(process)[1], signal.SIGTERM)
            out, err = process.communicate(timeout=HANG)
        finally:
            process.kill()
        self.assertEqual(process.returncode, 130, out + err)
        self.assertIn("is saved; continue with --resume", out)
        with open(self.path("run", "rank-1.log")) as file:
            log = file.read()
        self.ranks_train(2, recipe, "run", code=2)  # not without --resume
        self.ranks_train(2, recipe, "run", "--resume", "--set", "train.epochs=1", code=2)  # more were done
        with open(self.path("run", "rank-1.log")) as file:
            self.assertTrue(file.read().startswith(log))  # a refused start erases nothing

    def test_logs_are_not_written_through_links(self):
        recipe = self.sharded(LAYERS + ADAMW, epochs=1)
        for link, kind in ((os.symlink, "a symbolic link"), (os.link, "a hard link")):
            with open(self.path("precious"), "w") as file:
                file.write("kept")
            os.mkdir(self.path("run"))
            link(self.path("precious"), self.path("run", "rank-1.log"))
            out, err = self.ranks_train(2, recipe, "run", code=2)
            self.assertRegex(out + err, "run/rank-1.log: expected .*, got " + kind)
            with open(self.path("precious")) as file:
                self.assertEqual(file.read(), "kept")
            shutil.rmtree(self.path("run"))

    def test_a_divergence_has_one_message_and_exit_code_1(self):
        recipe = self.sharded(LAYERS + SGD.replace("lr: 0.02", "lr: 1.0e+5"), epochs=3)
        out, err = self.ranks_train(4, recipe, "run", code=1)
        messages = re.findall(r"failed: .*", out + err)  # some mpirun puts both into one
        self.assertEqual(len(messages), 1, err)
        for rank in (1, 2, 3):
            with open(self.path("run", f"rank-{rank}.log")) as file:
                self.assertEqual(re.findall(r"failed: .*", file.read()), messages)

    def test_ranks_that_differ_are_refused_before_training(self):
        recipe = self.sharded(LAYERS + ADAMW)
        for more, what in (("--set train.optimizer.lr=0.5",
                            r"rank 1: another recipe than that of rank 0: train.optimizer.lr \('0.002', here '0.5'\)\n"),
                           ("--set train.shards=1", r"rank 1: another recipe than that of rank 0: train.shards \('4', here '1'\)\n"),
                           ("--dry-run", "rank 1 has another --dry-run than rank 0: given, expected not given\n"),
                           ("--threads 2", "rank 1 has another number of threads than rank 0: 2, expected 1\n"),
                           ("--run-dir other", r"rank 1 has another run folder than rank 0: \S+/other, expected \S+/run\n"),
                           ("--device cuda:7", "rank 1: device 'cuda:7'")):
            run = "" if "--run-dir" in more else "--run-dir run"
            self.differing(f"train {recipe} --run-dir run", f"train {recipe} {run} {more}", what, code=4 if "device" in more else 2)
            self.assertFalse(os.path.exists(self.path("run")))
            self.assertFalse(os.path.exists(self.path("other")))
        self.differing(f"train {recipe}", "eval run", "rank 1 has another command than rank 0: eval, expected train\n", code=2)

    def test_files_that_differ_are_refused(self):
        """Ranks that find other files at the same paths, as on machines with disks of their own."""
        recipe = self.sharded(LAYERS + ADAMW)
        write_images(self.path("others"), seed=9)
        for folder, seed in (("here", "1"), ("there", "2")):
            self.train(recipe, os.path.join(folder, "run"), "--set", "seed=" + seed)
            shutil.copytree(self.data, self.path(folder, "data"))
        shutil.copy(self.path("others", "test.safetensors"), self.path("there", "data", "test.safetensors"))
        train = f"train {recipe} --run-dir {self.path('run')} "
        for arguments, what in (("--set init.checkpoint=run/last.safetensors", "initial checkpoint or teacher"),
                                ("--set train.distill.checkpoint=run/last.safetensors", "initial checkpoint or teacher"),
                                ("--set data.path=data", "test data")):
            self.differing(train + arguments, train + arguments, f"rank 1 has another {what} ", code=2, folders=("here", "there"))
            self.assertFalse(os.path.exists(self.path("run")))
        self.train(recipe, "whole", "--set", "data.path=here/data")
        for folder in ("here", "there"):  # where the run's recipe says
            shutil.copytree(self.path(folder, "data"), self.path(folder, "here", "data"))
        for command, split in (("eval", "test"), ("sensitivity --bits 4", "train")):
            shutil.copy(self.path("others", split + ".safetensors"), self.path("there", "here", "data"))
            whole = f"{command} {self.path('whole')}"
            self.differing(whole, whole, f"rank 1 has another {split}(ing)? data ", code=2, folders=("here", "there"))
        shutil.rmtree(self.path("here", "run"))
        resume = f"train {recipe} --run-dir /proc/self/cwd/run --resume"
        self.differing(resume, resume, r"rank 1: \S+last.safetensors: is not the checkpoint of rank 0, which begins anew", code=2,
                       folders=("here", "there"))
        os.mkdir(self.path("here", "run"))
        self.train(recipe, "here/run", "--set", "seed=3")
        self.differing(resume, resume, r"rank 1: \S+last.safetensors: is not the checkpoint of rank 0, which resumes from another",
                       code=2, folders=("here", "there"))

    def test_a_rank_without_the_checkpoint_of_a_run_with_init_goes_on(self):
        recipe = self.sharded(LAYERS + ADAMW, epochs=2)
        self.train(recipe, "start", "--set", "seed=5")
        init = ["--set", "init.checkpoint=" + self.path("start", "last.safetensors")]
        self.train(recipe, "here/run", *init, "--threads", "1", "--set", "train.epochs=1")
        self.train(recipe, "whole", *init, "--threads", "1")
        os.makedirs(self.path("there", "run"))
        resume = f"train {recipe} --run-dir /proc/self/cwd/run --resume " + " ".join(init)
        done = self.in_folders(resume, resume, ("here", "there"))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.sha("here", "run", "last.safetensors"), self.sha("whole", "last.safetensors"))

    def differing(self, first, second, what, code, folders=(".", ".")):
        """Two ranks with arguments of their own, which are refused."""
        done = self.in_folders(first, second, folders)
        self.assertEqual(done.returncode, code, done.stderr)
        self.require_one_error(done.stdout + done.stderr, what)

    def in_folders(self, first, second, folders):
        """Open MPI 5.0.7 itself fails where its command line has two programs."""
        script = (f'if [ "$OMPI_COMM_WORLD_RANK" = 1 ]; then cd {folders[1]}; exec {PROGRAM} {second}; '
                  f'else cd {folders[0]}; exec {PROGRAM} {first}; fi')
        return subprocess.run(mpirun.command(2, "sh", "-c", script), cwd=self.folder, text=True, capture_output=True,
                              env=environment(OMP_NUM_THREADS="1"), timeout=HANG)

    def require_one_error(self, printed, what):
        self.assertEqual(len(re.findall("(?:error|failed|lost): ", printed)), 1, printed)
        self.assertRegex(printed, "error: " + what)

    def test_what_is_wrong_for_all_is_said_once(self):
        recipe = self.sharded(LAYERS + ADAMW)
        for arguments, what in ((("train", recipe, "--run-dir", f"{recipe}/run"), r"\S+recipe.yaml/run: cannot create: Not a directory"),
                                (("train", "none.yaml"), "no recipe file and no preset 'none.yaml'"),
                                (("train", recipe, "--bogus"), "unknown option '--bogus'"),
                                (("sensitivity", "none"), "none: expected a run's folder, there is none"),
                                (("report", "run"), "report is for one process: start it without mpirun or srun")):
            with self.subTest(arguments):
                self.require_one_error("".join(self.ranks(2, *arguments, code=2)), what)

    def test_numbers_that_do_not_divide_are_refused(self):
        recipe = self.sharded(LAYERS + ADAMW)
        for ranks, what in ((3, ".*must be a power of two, got 3"), (8, ".*train.shards.*4 shards cannot be divided among 8 ranks")):
            out, err = self.ranks_train(ranks, recipe, "run", code=2)
            self.require_one_error(out + err, what)


class Gpus(Ranks):
    """On the emulated GPU, of which each process has as many as it is told."""

    def test_each_rank_has_its_own(self):
        recipe = self.sharded(LAYERS + ADAMW + QUANTIZE)
        self.train(recipe, "one", "--threads", "1")
        out, err = self.ranks_train(2, recipe, "two", STEELYARD_EMULATED_GPUS="2")
        self.assertIn("through the memory of the hosts: built without NCCL", out + err)
        self.assertEqual(self.sha("two", "last.safetensors"), self.sha("one", "last.safetensors"))
        for device, rank, why in (("cuda", "", "rank 0 and rank 1 have the same one"),
                                  ("cuda:0", "rank 1: ", "device 'cuda:0' is one for all, 'cuda' is one for each")):
            out, err = self.ranks_train(2, recipe, "refused", "--device", device, code=2)
            self.assertIn(f"error: {rank}each rank needs a GPU of its own: {why}", out + err)
        # Each process sees one, as where srun shares them out.
        script = f"STEELYARD_EMULATED_UUID=$OMPI_COMM_WORLD_RANK exec {PROGRAM} train {recipe} --run-dir {self.path('shown')}"
        done = subprocess.run(mpirun.command(2, "sh", "-c", script), cwd=self.folder, text=True, capture_output=True,
                              env=environment(OMP_NUM_THREADS="1"), timeout=HANG)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.sha("shown", "last.safetensors"), self.sha("one", "last.safetensors"))
        self.assertFalse(os.path.exists(self.path("refused", "last.safetensors")))


class Examples(Ranks):
    """What examples/ranks/ shows, as far as one machine can run it."""
    FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, os.pardir, "examples", "ranks")

    def example(self, name, *arguments, code=0, **variables):
        done = subprocess.run([os.path.join(self.FOLDER, name), *arguments], cwd=self.folder, text=True, capture_output=True,
                              env=environment(**variables), timeout=HANG)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)

    def program(self, name, *lines):
        with open(self.path("bin", name), "w") as file:
            file.write("\n".join(["#!/bin/sh", *lines]) + "\n")
        os.chmod(self.path("bin", name), 0o755)

    def test_over_ssh(self):
        recipe = self.sharded(LAYERS + ADAMW)
        with open(self.path("hosts"), "w") as file:
            file.write("localhost slots=2\n")
        self.train(recipe, "one", "--threads", "1")
        self.example("over_ssh.sh", "hosts", recipe, "--run-dir", "two", STEELYARD=PROGRAM, OMPI_MCA_rmaps_base_oversubscribe="1")
        self.assertEqual(self.sha("two", "last.safetensors"), self.sha("one", "last.safetensors"))
        self.assertTrue(os.path.exists(self.path("two", "rank-1.log")))
        self.example("over_ssh.sh", code=2)

    def test_slurm(self):
        recipe = self.sharded(LAYERS + ADAMW)
        os.makedirs(self.path("bin"))
        self.program("srun", 'echo "$@" > srun.txt', 'while [ "${1#-}" != "$1" ]; do shift; done', 'exec "$@"')
        self.program("scontrol", 'echo "$@" > scontrol.txt')
        os.symlink(PROGRAM, self.path("bin", "steelyard"))
        slurm = {"PATH": self.path("bin") + ":" + os.environ["PATH"], "SLURM_CPUS_PER_TASK": "1", "SLURM_JOB_ID": "7"}
        self.example("slurm.sbatch", recipe, "--run-dir", "run", **slurm)
        self.assertTrue(os.path.exists(self.path("run", "summary.json")))
        self.assertFalse(os.path.exists(self.path("scontrol.txt")))
        self.program("srun", "exit 5")
        self.example("slurm.sbatch", recipe, code=5, **slurm, SLURM_RESTART_COUNT="5")
        self.assertFalse(os.path.exists(self.path("scontrol.txt")))
        self.example("slurm.sbatch", recipe, code=5, **slurm, SLURM_RESTART_COUNT="4")
        with open(self.path("scontrol.txt")) as file:
            self.assertEqual(file.read(), "requeue 7\n")

    def test_mpijob(self):
        manifest = os.path.join(self.FOLDER, "mpijob.yaml")
        self.fail_with(2, "unknown key 'apiVersion'", arguments=["validate", manifest])  # YAML, and no recipe
        with open(manifest) as file:
            text = file.read()
        arguments = json.loads("[" + re.search(r"args: \[(.*?)\]", text, re.DOTALL)[1] + "]")
        workers = int(re.search(r"Worker:\n *replicas: (\d+)", text)[1]) * int(re.search(r"slotsPerWorker: (\d+)", text)[1])
        self.assertEqual(int(arguments[arguments.index("-n") + 1]), workers)
        train = arguments[arguments.index("steelyard") + 1:]
        recipe = self.recipe(LAYERS + ADAMW)
        self.succeed(*[{"/training/recipe.yaml": recipe, "/training/run": self.path("run")}.get(word, word) for word in train], "--dry-run")


class Shards(Case):
    def test_refusals(self):
        for body, message in (
                (ADAMW.replace("epochs: 6", "epochs: 6, shards: 3"), "train.shards: expected a power of two, got 3"),
                (ADAMW.replace("epochs: 6", "epochs: 6, shards: 16"), "at most the data.batch_size of 10, got 16"),
                (ADAMW.replace("epochs: 6", "epochs: 6, shards: 2") + QUANTIZE + "  ranges: current\n",
                 "quantize.ranges: current needs one shard, train.shards is 2"),
                (ADAMW.replace("epochs: 6", "epochs: 6, shards: 2") + QUANTIZE.replace("moving_average", "mse"),
                 "the observer mse of activations measures whole batches")):
            self.fail_with(2, message, arguments=["validate", self.recipe(LAYERS + body)])

    def test_delayed_ranges_of_one_shard(self):
        recipe = self.recipe(LAYERS + ADAMW.replace("epochs: 6", "epochs: 2") + QUANTIZE + "  ranges: delayed\n")
        self.train(recipe, "run")
        self.assertLess(self.summary("run")["final"]["loss"], 1.5)


if __name__ == "__main__":
    unittest.main()
