#!/usr/bin/python3
"""Compares whole training steps: ours in float, ours quantized, and PyTorch's, in turn, in one run.

usage: benchmarks/training_step.py PROGRAM [--models cnn,resnet20] [--rounds 15] [--threads 2] [--device cuda] [--out FILE]
PROGRAM is the built training_step_benchmark, --before an earlier one, measured in turn with it. Every figure is a
median over all rounds; only the ratios mean something on another day. On a GPU our steps are CUDA graphs; PyTorch runs
eagerly and compiled, in float32 and with TF32 products.
"""
import argparse
import datetime
import json
import os
import statistics
import subprocess

from machine import blas_in_use, cpu_name, gpu_name


class Stepper:
    """One process that runs a few steps whenever asked. All are started before any is waited for: PyTorch compiles."""

    def __init__(self, command, **environment):
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                        env=os.environ | environment)
        self.times = []

    def wait_until_ready(self):
        """False where the process ended instead."""
        self.info = self.answer("{")
        return self.info is not None

    def answer(self, begin):
        """The next line that begins so, as JSON: libraries print, too. None at the end."""
        line = next((line for line in self.process.stdout if line.startswith(begin)), "null")
        return json.loads(line)

    def round(self):
        self.process.stdin.write("go\n")
        self.process.stdin.flush()
        self.times += self.answer("[")

    def close(self):
        self.process.stdin.close()
        self.process.wait()

    @property
    def median(self):
        return statistics.median(self.times)


def cpu_commands(program, model, common, python):
    modes = ("float", "float_frozen_bn", "qat", "qat_fixed_ranges", "w4a4_lsq")
    commands = {mode: [program, model, mode, *common] for mode in modes}
    for mode in ("float", "qat", "qat_fixed_ranges"):
        commands[mode + "_bf16"] = [program, model, mode, *common, "--precision", "bf16"]
    if python:
        for layout in ("contiguous", "channels_last"):
            commands["torch_" + layout] = [*python, model, layout, *common]
        commands["torch_compiled"] = [*python, model, "channels_last", *common, "--compile"]
    return commands


def gpu_commands(program, model, common, python):
    commands = {}
    for precision in ("float32", "tf32"):
        more = [*common, "--precision", precision]
        for mode in ("float", "float_frozen_bn", "qat"):
            commands[f"{mode}_{precision}"] = [program, model, mode, *more]
        if python:
            commands[f"torch_eager_{precision}"] = [*python, model, "channels_last", *more]
            commands[f"torch_compile_{precision}"] = [*python, model, "channels_last", *more, "--compile"]
    return commands


def compare(program, model, args):
    here = os.path.dirname(os.path.abspath(__file__))
    python = [] if args.no_torch else [args.python, os.path.join(here, "torch_step.py")]
    common = ["--threads", str(args.threads), "--steps", str(args.steps), "--device", args.device]
    on_gpu = args.device.startswith("cuda")
    commands = (gpu_commands if on_gpu else cpu_commands)(program, model, common, python)
    if args.before:
        commands |= {name + "_before": [args.before, *command[1:]] for name, command in commands.items()
                     if not name.startswith("torch")}
    rounds = args.rounds
    steppers = {name: Stepper(command) for name, command in commands.items()}
    failed = [name for name, stepper in steppers.items() if not stepper.wait_until_ready()]
    for name in failed:
        if not name.startswith("torch"):
            raise RuntimeError(f"{model}: {name} failed")
        del steppers[name]
    for _ in range(rounds):
        for stepper in steppers.values():
            stepper.round()
    for stepper in steppers.values():
        stepper.close()
    median = {name: stepper.median for name, stepper in steppers.items()}
    saved = {name: s.info["saved_activation_bytes"] for name, s in steppers.items() if not name.startswith("torch")}
    result = {
        "model": model,
        "median_ms": {name: round(value, 3) for name, value in median.items()},
        "saved_activation_bytes": saved,
        "failed": failed,
    }
    if args.before:
        result["over_before"] = {name: round(value / median[name + "_before"], 3) for name, value in median.items()
                                 if name + "_before" in median}
    if on_gpu:
        for precision in ("float32", "tf32"):
            of = {name.removesuffix("_" + precision): value for name, value in median.items() if name.endswith(precision)}
            result[precision] = {"qat_over_" + name: round(of["qat"] / value, 3) for name, value in of.items()
                                 if name != "qat"}
            result[precision].update({"float_over_" + name: round(of["float"] / value, 3) for name, value in of.items()
                                      if name.startswith("torch")})
        result["torch"] = next((s.info["torch"] for name, s in steppers.items() if name.startswith("torch")), None)
        result["qat_saved_over_float_saved"] = round(saved["qat_float32"] / saved["float_float32"], 3)
        result["graph_nodes"] = {name: s.info["graph_nodes"] for name, s in steppers.items() if not name.startswith("torch")}
        return result
    result.update({
        "qat_over_float": round(median["qat"] / median["float"], 3),
        "qat_over_float_frozen_bn": round(median["qat"] / median["float_frozen_bn"], 3),
        "qat_fixed_ranges_over_float": round(median["qat_fixed_ranges"] / median["float"], 3),
        "qat_fixed_ranges_over_float_frozen_bn": round(median["qat_fixed_ranges"] / median["float_frozen_bn"], 3),
        "w4a4_lsq_over_float": round(median["w4a4_lsq"] / median["float"], 3),
        "qat_bf16_over_float": round(median["qat_bf16"] / median["float"], 3),
        "qat_bf16_over_float_frozen_bn": round(median["qat_bf16"] / median["float_frozen_bn"], 3),
        "qat_fixed_ranges_bf16_over_float_frozen_bn": round(median["qat_fixed_ranges_bf16"] / median["float_frozen_bn"], 3),
        "float_bf16_over_float": round(median["float_bf16"] / median["float"], 3),
        "qat_saved_over_float_saved": round(saved["qat"] / saved["float"], 3),
        "peak_bytes": {name: stepper.info["peak_bytes"] for name, stepper in steppers.items()},
    })
    of_torch = [name for name in steppers if name.startswith("torch")]
    if of_torch:
        result["float_over_torch"] = round(median["float"] / median["torch_contiguous"], 3)
        result["float_over_torch_fastest"] = round(median["float"] / min(median[name] for name in of_torch), 3)
        result["torch"] = steppers[of_torch[0]].info["torch"]
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--before", metavar="PROGRAM")
    parser.add_argument("--models", default="cnn,resnet20")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--no-torch", action="store_true")
    parser.add_argument("--python", default="/usr/bin/python3", help="one that has torch")
    parser.add_argument("--out")
    args = parser.parse_args()
    on_gpu = args.device.startswith("cuda")
    results = {"machine": gpu_name() if on_gpu else cpu_name(), "threads": args.threads, "date": datetime.date.today().isoformat(),
               "blas": [] if args.no_torch else blas_in_use(), "rounds": args.rounds, "steps_per_round": args.steps,
               "results": []}
    for model in args.models.split(","):
        result = compare(args.program, model, args)
        print(json.dumps(result, indent=1), flush=True)
        results["results"].append(result)
        if args.out:  # whoever has no time for the next model keeps this one
            with open(args.out, "w") as file:
                json.dump(results, file, indent=1)
                file.write("\n")


if __name__ == "__main__":
    main()
