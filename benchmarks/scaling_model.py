#!/usr/bin/python3
"""The time of a training step on N ranks: a formula, fitted on N = 1 and 2, and checked on N = 4.

usage: benchmarks/scaling_model.py check STEELYARD [--rounds 5] [--rate 100mbit] [--out FILE]
       benchmarks/scaling_model.py figures

    T(N) = compute + jitter sqrt(2 ln N) + max(0, sums(N) - hidden)
    sums(N) = messages ceil(log2 N) alpha + 2 (N - 1) / N bytes beta

compute: seconds of a rank's own rows. jitter: their standard deviation, of which the slowest of N has sqrt(2 ln N). messages:
those of two ranks. Gradients of so many bytes go in pieces, which are halved and doubled, two messages each; small pieces and
small collectives have one. alpha: seconds a message, beta: seconds a byte. hidden: what proceeds during backward.

`check` measures models of two sizes on hosts that are network namespaces with links of a limited rate. Every rank has rows
of its own (batches grow with N). Four processes always run: four runs of one rank, two of two, one of four, so that each has
the same share of the processors. Figures are medians over rounds in turn. For root, with iproute2 and Open MPI 4.
"""
import argparse
import datetime
import json
import math
import os
import random
import statistics
import subprocess
import sys
import tempfile

from machine import cpu_name

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "tests"))
from support import mpirun, namespaces  # noqa: E402
from support.data_files import f32, i64, write_split  # noqa: E402

HOSTS = 4
FEATURES, CLASSES, SAMPLES, ROWS = 512, 10, 1280, 64  # ROWS: of a rank, in two shards
WIDTHS = (512, 1024)
BUCKET_BYTES = 1 << 20  # GradientBuckets::kBytes
PIECE_BYTES = 4 << 20  # Communicator::kPieceBytes
SMALL_BYTES = 16384  # Collectives::kSmallBytes
SMALL = 3  # collectives of a step in addition to the gradients: the loss, which gradients there are, one control word
EPOCHS = 4
RECIPE = """version: 1
name: scaling
seed: 1
data: {{dataset: safetensors, path: {folder}, validation: 0}}
model: {{classes: 10, layers: [{{type: Linear, out_features: {width}}}, {{type: ReLU}}, {{type: Linear, out_features: {width}}}, {{type: ReLU}},
  {{type: Linear, out_features: {width}}}, {{type: ReLU}}, {{type: Linear, out_features: 10}}]}}
train: {{epochs: {epochs}, optimizer: {{type: sgd, lr: 0.01}}}}
"""


def parameters(width):
    """The bytes of each, in the model's order."""
    inputs = (FEATURES, width, width, width)
    outputs = (width, width, width, CLASSES)
    return [4 * count for i, o in zip(inputs, outputs) for count in (i * o, o)]


def gradient_bytes(width):
    return sum(parameters(width))


def messages(sizes):
    """Of two ranks in a step, for parameters of these sizes."""
    buckets, room = [], 0
    for size in reversed(sizes):
        if room <= 0:
            buckets.append([])
            room = BUCKET_BYTES
        buckets[-1].append(size)
        room -= size
    pieces = []
    for bucket in buckets:
        for size in [s for s in bucket if s >= PIECE_BYTES] + [sum(s for s in bucket if s < PIECE_BYTES)]:
            pieces += [PIECE_BYTES] * (size // PIECE_BYTES) + [size % PIECE_BYTES] * (size % PIECE_BYTES > 0)
    return SMALL + sum(2 if piece > SMALL_BYTES else 1 for piece in pieces)


def step_seconds(ranks, compute, jitter, size, count, alpha, beta, hidden=0.0):
    if ranks == 1:
        return compute
    sums = count * math.ceil(math.log2(ranks)) * alpha + 2 * (ranks - 1) / ranks * size * beta
    return compute + jitter * math.sqrt(2 * math.log(ranks)) + max(0.0, sums - hidden)


def epochs_of(run):
    """(compute, reduce, wait) of a step of rank 0 in each epoch but the first."""
    with open(os.path.join(run, "metrics.jsonl")) as file:
        lines = [line for line in map(json.loads, file) if line["type"] == "epoch"]
    found, before = [], 0
    for line in lines:
        steps = line["step"] - before
        before = line["step"]
        found.append(tuple(line["rank_seconds"][name][0] / steps for name in ("compute", "reduce", "wait")))
    return found[1:]


def measure(program, hosts, ranks, recipe, folder):
    """The epochs of all runs of so many ranks that fill the hosts together."""
    jobs = []
    for first in range(0, HOSTS, ranks):
        run = tempfile.mkdtemp(dir=folder)
        command = hosts.mpirun(1, program, "train", recipe, "--run-dir", run, "--threads", "1", "--set", f"train.shards={2 * ranks}",
                               "--set", f"data.batch_size={ROWS * ranks}", on=list(range(first, first + ranks)))
        jobs.append((run, subprocess.Popen(command, stdout=subprocess.DEVNULL, env=mpirun.environment(OMP_WAIT_POLICY="passive"))))
    for run, job in jobs:
        if job.wait() != 0:
            raise SystemExit(f"{run}: exit {job.returncode}")
    return [epoch for run, _ in jobs for epoch in epochs_of(run)]


def fitted(times):
    """alpha and beta from the sums of two ranks, with the jitter of one; and what was hidden, by width."""
    jitters = {width: statistics.pstdev(compute for compute, _, _ in times[1][width]) *
               math.sqrt(SAMPLES / ROWS) for width in WIDTHS}
    jitter = statistics.median(jitters.values())
    late = jitter * math.sqrt(2 * math.log(2))
    reduce = {width: statistics.median(r for _, r, _ in times[2][width]) - late for width in WIDTHS}
    small, large = WIDTHS
    counts = {width: messages(parameters(width)) for width in WIDTHS}
    # count alpha + bytes beta = reduce, for both widths
    determinant = counts[small] * gradient_bytes(large) - counts[large] * gradient_bytes(small)
    alpha = (reduce[small] * gradient_bytes(large) - reduce[large] * gradient_bytes(small)) / determinant
    beta = (counts[small] * reduce[large] - counts[large] * reduce[small]) / determinant
    if alpha < 0:
        alpha, beta = 0.0, sum(reduce.values()) / sum(map(gradient_bytes, WIDTHS))
    hidden = {width: max(0.0, statistics.median(r - w for _, r, w in times[2][width])) for width in WIDTHS}
    return {"jitter_s": jitter, "alpha_s": alpha, "beta_s_per_byte": beta, "hidden_s": hidden}


def check(arguments):
    reason = mpirun.why_not_open_mpi_4() or namespaces.why_not()
    if reason:
        raise SystemExit("check: " + reason)
    program = os.path.abspath(arguments.program)
    times = {ranks: {width: [] for width in WIDTHS} for ranks in (1, 2, 4)}
    hosts = namespaces.Hosts(HOSTS, arguments.rate)
    try:
        with tempfile.TemporaryDirectory() as folder:
            generator = random.Random(1)
            inputs = [generator.gauss(0, 1) for _ in range(FEATURES * SAMPLES)]
            for split in ("train", "test"):
                write_split(os.path.join(folder, "data"), split, f32([SAMPLES, FEATURES], inputs),
                            i64([SAMPLES], [generator.randrange(CLASSES) for _ in range(SAMPLES)]))
            for width in WIDTHS:
                with open(os.path.join(folder, f"{width}.yaml"), "w") as file:
                    file.write(RECIPE.format(folder=os.path.join(folder, "data"), width=width, epochs=EPOCHS))
            cases = [(ranks, width) for ranks in times for width in WIDTHS]
            for number in range(arguments.rounds):
                for ranks, width in cases[::-1] if number % 2 else cases:
                    found = measure(program, hosts, ranks, os.path.join(folder, f"{width}.yaml"), folder)
                    times[ranks][width] += found
                    step = statistics.median(c + w for c, _, w in found)
                    print(f"round {number + 1}: {ranks} ranks, width {width}: {step:.4f} s a step", file=sys.stderr)
    finally:
        hosts.close()
    fit = fitted({ranks: times[ranks] for ranks in (1, 2)})
    rows = []
    for width in WIDTHS:
        compute = statistics.median(c for c, _, _ in times[1][width])
        for ranks in times:
            measured = statistics.median(c + w for c, _, w in times[ranks][width])
            predicted = step_seconds(ranks, compute, fit["jitter_s"], gradient_bytes(width), messages(parameters(width)),
                                     fit["alpha_s"], fit["beta_s_per_byte"], fit["hidden_s"][width])
            rows.append({"ranks": ranks, "gradient_bytes": gradient_bytes(width), "messages": messages(parameters(width)), "measured_s": round(measured, 5),
                         "predicted_s": round(predicted, 5), "error": round(predicted / measured - 1, 4)})
    result = {"machine": cpu_name(), "cores": len(os.sched_getaffinity(0)), "date": datetime.date.today().isoformat(),
              "rate": arguments.rate, "rounds": arguments.rounds, "fit": fit, "steps": rows,
              "held_out_error": max(abs(row["error"]) for row in rows if row["ranks"] == 4),
              "seconds": {str(ranks): {str(width): times[ranks][width] for width in WIDTHS} for ranks in times}}
    print(json.dumps({key: value for key, value in result.items() if key != "seconds"}, indent=1))
    if arguments.out:
        with open(arguments.out, "w") as file:
            file.write(json.dumps(result) + "\n")
    return 0 if result["held_out_error"] <= 0.15 else 1


# What: compute, jitter, bytes of gradients, alpha, beta (s). Assumed, not measured.
MACHINES = {
    "resnet20 (1.1 MB), 4 cores a rank, 1 Gbit/s": (0.20, 0.004, 1.09e6, 60e-6, 8 / 0.94e9),
    "resnet50 (102 MB), 16 cores a rank, 10 Gbit/s": (2.0, 0.02, 102e6, 30e-6, 8 / 9.4e9),
    "resnet50 (102 MB), a GPU a rank, 100 Gbit/s": (0.25, 0.002, 102e6, 15e-6, 8 / 94e9),
    "a model of 1 GB, a GPU a rank, 100 Gbit/s": (0.8, 0.005, 1e9, 15e-6, 8 / 94e9),
}


def figures():
    ranks = (1, 2, 8, 64, 512, 4096)
    print("| ranks |" + "".join(f" {n} |" for n in ranks) + "\n|---" + "|---" * len(ranks) + "|")
    for name, (compute, jitter, size, alpha, beta) in MACHINES.items():
        count = messages([BUCKET_BYTES] * math.ceil(size / BUCKET_BYTES))
        cells = []
        for n in ranks:
            seconds = step_seconds(n, compute, jitter, size, count, alpha, beta)
            cells.append(f" {seconds:.3g} s, {compute / seconds:.2f} |")
        print(f"| {name} |" + "".join(cells))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("check", "figures"))
    parser.add_argument("program", nargs="?")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rate", default="100mbit")
    parser.add_argument("--out")
    arguments = parser.parse_args()
    if arguments.what == "figures":
        return figures()
    if not arguments.program:
        parser.error("check needs the program")
    return check(arguments)


if __name__ == "__main__":
    sys.exit(main())
