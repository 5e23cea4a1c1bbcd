"""Programs that run training steps on demand, in turn: each prints a JSON line when it is ready, then the steps'
milliseconds for every line that it reads."""
import json
import math
import os
import statistics
import subprocess
import threading
import time


class Stepper:
    """One process that runs a few steps whenever asked. All are started before any is waited for: PyTorch compiles."""

    def __init__(self, command, **environment):
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                        env=os.environ | environment)
        self.times = []

    def wait_until_ready(self, seconds=math.inf):
        """False where the process ended instead, or was ended after so many seconds."""
        # A second at least: one that is ready has said so.
        limit = threading.Timer(min(max(seconds, 1), threading.TIMEOUT_MAX), self.process.kill)
        limit.daemon = True
        limit.start()
        self.info = self.answer("{")
        limit.cancel()
        return self.info is not None

    def answer(self, begin):
        """The next line that begins so, as JSON: libraries print, too. None at the end."""
        line = next((line for line in self.process.stdout if line.startswith(begin)), "null")
        return json.loads(line)

    def round(self):
        """Throws an OSError where the process ended instead."""
        self.process.stdin.write("go\n")
        self.process.stdin.flush()
        times = self.answer("[")
        if times is None:
            raise ChildProcessError("ended within a round")
        self.times += times

    def close(self):
        self.process.stdin.close()
        self.process.wait()

    @property
    def median(self):
        return statistics.median(self.times)


def start(commands, seconds=math.inf):
    """The steppers that were ready within so many seconds, by name, and the names of the others."""
    end = time.monotonic() + seconds
    steppers = {name: Stepper(command) for name, command in commands.items()}
    failed = [name for name, stepper in steppers.items() if not stepper.wait_until_ready(end - time.monotonic())]
    for name in failed:
        del steppers[name]
    return steppers, failed


def run_rounds(steppers, rounds, seconds=math.inf):
    """Runs the steppers in turn, for so many seconds or one round. Those that end are taken out; returns their names."""
    end = time.monotonic() + seconds
    failed = []
    for number in range(rounds):
        if number > 0 and time.monotonic() > end:
            break
        for name, stepper in list(steppers.items()):
            try:
                stepper.round()
            except OSError:
                failed.append(name)
                del steppers[name]
    for stepper in steppers.values():
        stepper.close()
    return failed
