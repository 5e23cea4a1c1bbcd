"""Ranks that are processes: under mpirun, killed, stopped, failing, and started in ways that cannot work."""
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

from support import mpirun, namespaces

PROGRAM = os.environ.get("RANKS_PROGRAM", "")
WITHOUT_MPI = os.environ.get("RANKS_PROGRAM_WITHOUT_MPI", "")
HANG = 120  # seconds after which something hangs, however loaded the machine is


class Alone(unittest.TestCase):
    def refused(self, program, *fragments, **variables):
        done = subprocess.run([program], env=mpirun.environment(**variables), capture_output=True, text=True, timeout=HANG)
        self.assertEqual(done.returncode, 2, done.stderr)
        for fragment in fragments:
            self.assertIn(fragment, done.stderr)

    def test_without_a_launcher_there_is_one_rank(self):
        for program in (PROGRAM, WITHOUT_MPI):
            for more in ({}, {"RANK": "0", "WORLD_SIZE": "1"}):
                done = subprocess.run([program], env=mpirun.environment(**more), capture_output=True, text=True, timeout=HANG)
                self.assertEqual((done.returncode, done.stdout), (0, "rank 0 of 1: equal\n"), done.stderr)

    def test_what_cannot_join_the_others_is_refused(self):
        self.refused(WITHOUT_MPI, "OMPI_COMM_WORLD_RANK=0", "rank 0 of 2", "built without MPI", "libopenmpi-dev",
                     OMPI_COMM_WORLD_RANK="0", OMPI_COMM_WORLD_SIZE="2")
        if not os.environ.get("RANKS_HAVE_MPI"):
            self.skipTest("built without MPI")
        self.refused(PROGRAM, "RANK=0 and WORLD_SIZE=4", "rank 0 of 4", "mpirun -n 4", RANK="0", WORLD_SIZE="4")
        if "Open MPI" in os.environ["RANKS_HAVE_MPI"]:  # another library's mpirun started it
            self.refused(PROGRAM, "PMI_RANK=1 and PMI_SIZE=2", "says rank 0 of 1", PMI_RANK="1", PMI_SIZE="2",
                         OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")


class Job:
    """`mpirun -n N` of the program; its folder holds the ranks' logs."""

    def __init__(self, ranks, what, hosts=None):
        self.folder = tempfile.mkdtemp()
        if hosts:
            self.start(ranks, hosts.mpirun(ranks // len(hosts.names), PROGRAM, what, self.folder))
            return
        self.start(ranks, mpirun.command(ranks, PROGRAM, what, self.folder))

    def start(self, ranks, command):
        self.ranks = ranks
        self.process = subprocess.Popen(command, env=mpirun.environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                        text=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.communicate()
        shutil.rmtree(self.folder)

    def wait_for_line(self, pattern):
        for line in self.process.stdout:
            found = re.match(pattern, line)
            if found:
                return found
        raise AssertionError("no line " + pattern + ": " + self.process.stderr.read())

    def process_ids(self):
        ids = {}
        while len(ids) < self.ranks:
            rank, process = self.wait_for_line(r"rank (\d+) process (\d+): started").groups()
            ids[int(rank)] = int(process)
        return ids

    def end(self):
        out, err = self.process.communicate(timeout=HANG)
        return self.process.returncode, out, err

    def log_path(self, rank):
        return os.path.join(self.folder, "rank-%d.log" % rank)

    def log(self, rank):
        with open(self.log_path(rank)) as file:
            return file.read()


@unittest.skipUnless(os.environ.get("RANKS_HAVE_MPI") and mpirun.MPIRUN, "MPI or mpirun is not installed (openmpi-bin)")
class Mpi(unittest.TestCase):
    def require_loss(self, job, lost, reason, err):
        host = os.uname().nodename
        for rank in set(range(job.ranks)) - {lost}:
            said = r"lost: rank %d on %s \(process \d+, last known at step \d+\): %s; rank %d on %s stops at step \d+; " \
                   r"--resume continues from runs/a/last.safetensors \(step \d+\)\n" % (lost, host, reason, rank, host)
            self.assertRegex(job.log(rank), "^" + said + "$")
            self.assertRegex(err, said)

    def test_collectives_equal_those_of_threads(self):
        for ranks in (1, 2, 4):
            with Job(ranks, "collectives") as job:
                code, out, err = job.end()
                self.assertEqual(code, 0, err)
                lines = ["rank %d of %d: equal" % (rank, ranks) for rank in range(ranks)]
                self.assertEqual(sorted(out.splitlines()), lines)

    def test_three_ranks_are_refused(self):
        with Job(3, "collectives") as job:
            code, _, err = job.end()
            self.assertEqual(code, 2)
            self.assertEqual(err.count("must be a power of two, got 3"), 1, err)

    def test_a_killed_rank_ends_all_at_once(self):
        with Job(4, "steps") as job:
            ids = job.process_ids()
            job.wait_for_line("rank 0 step 40")
            os.kill(ids[3], signal.SIGKILL)
            code, _, err = job.end()
            self.assertNotEqual(code, 0)
            self.require_loss(job, 3, "its connection ended", err)

    def test_a_stopped_rank_ends_all_after_the_deadline_but_a_pause_of_all_does_not(self):
        with Job(2, "steps") as job:
            ids = job.process_ids()
            job.wait_for_line("rank 0 step 20")
            for process in ids.values():
                os.kill(process, signal.SIGSTOP)
            try:
                job.process.wait(timeout=3)  # more than the deadline
            except subprocess.TimeoutExpired:
                pass
            for process in ids.values():
                os.kill(process, signal.SIGCONT)
            job.wait_for_line("rank 0 step")  # what was under way
            job.wait_for_line("rank 0 step")
            os.kill(ids[1], signal.SIGSTOP)
            code, _, err = job.end()
            self.assertNotEqual(code, 0)
            self.require_loss(job, 1, "nothing was heard from it for 2500 ms", err)

    def test_a_rank_that_is_killed_at_the_end_is_no_loss(self):
        with Job(2, "end") as job:
            _, _, err = job.end()
            self.assertNotIn("lost:", err)
            self.assertFalse(os.path.exists(job.log_path(0)))

    def test_ranks_of_one_machine_listen_on_the_loopback_alone(self):
        with Job(2, "steps") as job:
            for process in job.process_ids().values():
                self.assertEqual([a for a in mpirun.listening_addresses(process) if a not in mpirun.LOOPBACK], [])

    def test_a_length_that_a_rank_sends_is_bounded(self):
        for what, error in (("announce", "rank 1 announces 4611686018427387904 bytes, expected at most 1048576"),
                            ("longer", "rank 0 expected no more than 8 bytes from rank 1")):
            with Job(2, what) as job:
                code, _, err = job.end()
                self.assertNotEqual(code, 0)
                self.assertIn("failed: " + error, err)

    def test_a_rank_that_fails_tells_the_others_why(self):
        with Job(2, "fail") as job:
            code, _, err = job.end()
            self.assertNotEqual(code, 0)
            self.assertIn("failed: no space on device", err)
            self.require_loss(job, 0, "it left: no space on device", err)


@unittest.skipUnless(os.environ.get("RANKS_HAVE_MPI") and mpirun.MPIRUN, "MPI or mpirun is not installed (openmpi-bin)")
class Hosts(unittest.TestCase):
    def setUp(self):
        reason = mpirun.why_not_open_mpi_4() or namespaces.why_not()
        if reason:
            self.skipTest(reason)
        self.hosts = namespaces.Hosts(2)
        self.addCleanup(self.hosts.close)

    def test_a_link_that_is_down_ends_the_ranks_on_both_sides(self):
        with Job(4, "steps", self.hosts) as job:
            job.process_ids()
            job.wait_for_line("rank 0 step 20")
            self.hosts.set_link(1, "down")
            deadline = time.monotonic() + HANG
            logs = []
            while len(logs) < 4 and time.monotonic() < deadline:  # mpirun itself may hang
                time.sleep(0.1)
                written = [rank for rank in range(4) if os.path.exists(job.log_path(rank))]
                logs = [log for log in map(job.log, written) if log.endswith("\n")]
            for rank, log in enumerate(logs):
                here, there = (1, 2) if rank < 2 else (2, 1)
                self.assertRegex(log, r"^lost: rank \d on host%d .*: nothing was heard from it for 2500 ms; rank %d on "
                                      r"host%d stops at step \d+" % (there, rank, here))
            self.assertEqual(len(logs), 4, logs)
            self.hosts.close()  # ends mpirun


if __name__ == "__main__":
    unittest.main()
