#!/usr/bin/python3
"""Compares whole training steps: ours in float, ours quantized, and PyTorch's, in turn, in one run.

usage: benchmarks/training_step.py PROGRAM [--models cnn,resnet20] [--rounds 15] [--threads 2] [--device cuda] [--out FILE]
       benchmarks/training_step.py PROGRAM --size users [--models resnet18] [--budget SECONDS] [--no-torch] [--out FILE]
PROGRAM is the built training_step_benchmark, --before an earlier one, measured in turn with it. Every figure is a
median over all rounds; only the ratios mean something on another day. On a GPU our steps are CUDA graphs; PyTorch runs
eagerly and compiled, in float32 and with TF32 products. --size users is for a GPU: networks and batches that users
train, and PyTorch as they run it, with TF32 products and with mixed precision in bf16, with torch.ao's QAT, too.
"""
import argparse
import datetime
import json
import math
import os
import subprocess
import threading
import time

from machine import blas_in_use, cpu_name, gpu_name
from steppers import run_rounds, start

USERS = {"resnet18": 64, "mlp4096": 4096, "resnet50": 32, "mobilenet_v3_small": 128}  # the batch of each
PRECISIONS = ("tf32", "bf16")


def cpu_commands(program, model, common, python):
    modes = ("float", "float_frozen_bn", "qat", "qat_fixed_ranges", "w4a4_lsq")
    commands = {mode: [program, model, mode, *common] for mode in modes}
    for mode in ("float", "qat", "qat_fixed_ranges"):
        commands[mode + "_bf16"] = [program, model, mode, *common, "--precision", "bf16"]
    if python:
        for layout in ("contiguous", "channels_last"):
            commands["torch_" + layout] = [*python, model, layout, *common]
        commands["torch_compiled"] = [*python, model, "channels_last", *common, "--compile", "default"]
    return commands


def gpu_commands(program, model, common, python):
    commands = {}
    for precision in ("float32", "tf32"):
        more = [*common, "--precision", precision]
        for mode in ("float", "float_frozen_bn", "qat"):
            commands[f"{mode}_{precision}"] = [program, model, mode, *more]
        if python:
            commands[f"torch_eager_{precision}"] = [*python, model, "channels_last", *more]
            commands[f"torch_compile_{precision}"] = [*python, model, "channels_last", *more, "--compile", "reduce-overhead"]
    return commands


def users_commands(program, model, common, python):
    common = [*common, "--batch", str(USERS[model])]
    commands = {}
    for precision in PRECISIONS:
        modes = ["float", "float_frozen_bn", "qat", "qat_fixed_ranges"] + ["w4a4_lsq"] * (precision == "tf32")
        if model == "mlp4096":
            modes.remove("float_frozen_bn")  # it has no batch norms
        for mode in modes:
            commands[f"{mode}_{precision}"] = [program, model, mode, *common, "--precision", precision]
        if python:
            torch = [*python, model, "channels_last", *common, "--precision", "tf32"] + ["--amp"] * (precision == "bf16")
            commands["torch_eager_" + precision] = torch
            commands["torch_compile_" + precision] = [*torch, "--compile", "default"]
            commands["torch_graphs_" + precision] = [*torch, "--compile", "reduce-overhead"]
    if python:  # its operations refuse the values of mixed precision
        commands["torch_qat_tf32"] = [*python, model, "channels_last", *common, "--precision", "tf32", "--qat"]
    return commands


def all_commands(model, args):
    """By the name of each variant."""
    here = os.path.dirname(os.path.abspath(__file__))
    python = [] if args.no_torch else [args.python, os.path.join(here, "torch_step.py")]
    common = ["--threads", str(args.threads), "--steps", str(args.steps), "--device", args.device]
    make = users_commands if args.size == "users" else gpu_commands if on_gpu(args) else cpu_commands
    commands = make(args.program, model, common, python)
    if args.before:
        commands |= {name + "_before": [args.before, *command[1:]] for name, command in commands.items()
                     if not is_torch(name)}
    return {name: command for name, command in commands.items() if name not in args.without.split(",")}


def on_gpu(args):
    return args.device.startswith("cuda")


def is_torch(name):
    return name.startswith("torch")


def compile_ahead(commands, seconds):
    """Compiles PyTorch's models at once, for its cache, and for so many seconds at most."""
    end = time.monotonic() + seconds
    # Two threads each: all processes together have a core for every one or two.
    processes = [subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                  env=os.environ | {"TORCHINDUCTOR_COMPILE_THREADS": "2"})
                 for command in commands if "--compile" in command]
    for process in processes:
        try:
            process.wait(min(max(end - time.monotonic(), 0), threading.TIMEOUT_MAX))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def compare(model, args):
    steppers, failed = start(all_commands(model, args))
    for name in failed:
        if not is_torch(name):
            raise RuntimeError(f"{model}: {name} failed")
    failed += run_rounds(steppers, args.rounds)
    return (gpu_result if on_gpu(args) else cpu_result)(common_result(model, steppers, failed), steppers)


def compare_users(model, args, seconds):
    """Whatever fails or takes too long is missing, ours too: the rest is worth its time on a GPU."""
    begin = time.monotonic()
    steppers, failed = start(all_commands(model, args), seconds * 2 / 3)
    failed += run_rounds(steppers, args.rounds, seconds - (time.monotonic() - begin))
    return users_result(common_result(model, steppers, failed), steppers)


def medians(steppers):
    return {name: stepper.median for name, stepper in steppers.items()}


def of_ours(steppers, key):
    return {name: stepper.info[key] for name, stepper in steppers.items() if not is_torch(name)}


def common_result(model, steppers, failed):
    median = medians(steppers)
    result = {
        "model": model,
        "median_ms": {name: round(value, 3) for name, value in median.items()},
        "saved_activation_bytes": of_ours(steppers, "saved_activation_bytes"),
        "failed": failed,
    }
    over_before = {name: round(value / median[name + "_before"], 3) for name, value in median.items()
                   if name + "_before" in median}
    if over_before:
        result["over_before"] = over_before
    torch = next((stepper.info["torch"] for name, stepper in steppers.items() if is_torch(name)), None)
    if torch:
        result["torch"] = torch
    return result


def ratio(above, below):
    """None where one of them was not measured."""
    return None if above is None or below is None else round(above / below, 3)


def users_result(result, steppers):
    median, saved = medians(steppers), result["saved_activation_bytes"]
    peak = {name: stepper.info["device_peak_bytes"] for name, stepper in steppers.items()}
    of_torch = [name for name in median if is_torch(name) and not name.startswith("torch_qat")]
    fastest = min(of_torch, key=median.get, default=None)
    least_peak = min((peak[name] for name in of_torch if peak[name] is not None), default=None)
    result |= {"batch": USERS[result["model"]], "torch_fastest": fastest, "device_peak_bytes": peak,
               "graph_nodes": of_ours(steppers, "graph_nodes")}
    for precision in PRECISIONS:
        ours = {mode: mode + "_" + precision for mode in ("float", "qat", "qat_fixed_ranges")}
        times = {mode: median.get(name) for mode, name in ours.items()}
        result[precision] = {mode + "_over_torch_fastest": ratio(time, median.get(fastest)) for mode, time in times.items()}
        result[precision] |= {
            "qat_over_torch_qat": ratio(times["qat"], median.get("torch_qat_tf32")),
            "qat_fixed_ranges_over_float": ratio(times["qat_fixed_ranges"], times["float"]),
            "qat_saved_over_float_saved": ratio(saved.get(ours["qat"]), saved.get(ours["float"])),
            "qat_peak_over_torch_least_peak": ratio(peak.get(ours["qat"]), least_peak),
        }
    return result


def print_users(results):
    """A table of what was measured: milliseconds, then ratios."""
    print("| model, batch, precision | float | W8A8 | W8A8, fixed ranges | torch's fastest float | torch.ao QAT | float / fastest "
          "| W8A8 fixed / fastest | W8A8 / torch.ao QAT | kept bytes / float's | peak memory / torch's |")
    print("|---" * 11 + "|")
    for result in results:
        times = result["median_ms"]
        theirs = [times.get(result["torch_fastest"]), times.get("torch_qat_tf32")]
        for precision in PRECISIONS:
            ratios = [result[precision][name] for name in
                      ("float_over_torch_fastest", "qat_fixed_ranges_over_torch_fastest", "qat_over_torch_qat",
                       "qat_saved_over_float_saved", "qat_peak_over_torch_least_peak")]
            ours = [times.get(f"{mode}_{precision}") for mode in ("float", "qat", "qat_fixed_ranges")]
            cells = ["-" if value is None else str(value) for value in (*ours, *theirs, *ratios)]
            print("|", " | ".join([f"{result['model']}, {result['batch']}, {precision}", *cells]), "|")


def gpu_result(result, steppers):
    median, saved = medians(steppers), result["saved_activation_bytes"]
    for precision in ("float32", "tf32"):
        of = {name.removesuffix("_" + precision): value for name, value in median.items() if name.endswith(precision)}
        result[precision] = {"qat_over_" + name: round(of["qat"] / value, 3) for name, value in of.items()
                             if name != "qat"}
        result[precision].update({"float_over_" + name: round(of["float"] / value, 3) for name, value in of.items()
                                  if is_torch(name)})
    result["qat_saved_over_float_saved"] = round(saved["qat_float32"] / saved["float_float32"], 3)
    result["graph_nodes"] = of_ours(steppers, "graph_nodes")
    return result


def cpu_result(result, steppers):
    median, saved = medians(steppers), result["saved_activation_bytes"]
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
    of_torch = [name for name in steppers if is_torch(name)]
    if of_torch:
        result["float_over_torch"] = round(median["float"] / median["torch_contiguous"], 3)
        result["float_over_torch_fastest"] = round(median["float"] / min(median[name] for name in of_torch), 3)
    return result


def write(results, path):
    with open(path, "w") as file:
        json.dump(results, file, indent=1)
        file.write("\n")


def measured_models(models, args):
    """The result of each model, as soon as it is there; those for which no time is left have none."""
    if args.size == "small":
        yield from (compare(model, args) for model in models)
    elif args.budget > 0:
        yield from users_in_turn(models, args)


def users_in_turn(models, args):
    """Each model has an equal share of the time that the ones before it left."""
    end = time.monotonic() + args.budget
    compile_ahead([command for model in models for command in all_commands(model, args).values()], args.budget / 3)
    for number, model in enumerate(models):
        left = end - time.monotonic()
        if left > 0:
            yield compare_users(model, args, left / (len(models) - number))


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--before", metavar="PROGRAM")
    parser.add_argument("--size", choices=("small", "users"), default="small")
    parser.add_argument("--models", help=f"default: cnn,resnet20; with --size users: {','.join(USERS)}")
    parser.add_argument("--rounds", type=int, help="default: 15; with --size users: 5")
    parser.add_argument("--steps", type=int, help="of a round; default: 5; with --size users: 20")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--device", help="default: cpu; with --size users: cuda")
    parser.add_argument("--budget", type=float, default=math.inf, metavar="SECONDS",
                        help="of --size users: what needs longer is left out, and named in `failed`")
    parser.add_argument("--without", default="", metavar="NAMES", help="variants to leave out: float_frozen_bn_tf32,...")
    parser.add_argument("--no-torch", action="store_true")
    parser.add_argument("--python", default="/usr/bin/python3", help="one that has torch")
    parser.add_argument("--out")
    args = parser.parse_args()
    small = {"models": "cnn,resnet20", "rounds": 15, "steps": 5, "device": "cpu"}
    users = {"models": ",".join(USERS), "rounds": 5, "steps": 20, "device": "cuda"}
    for name, value in (users if args.size == "users" else small).items():
        if getattr(args, name) is None:
            setattr(args, name, value)
    if args.size == "users" and not (on_gpu(args) and USERS.keys() >= set(args.models.split(","))):
        parser.error(f"--size users is for a GPU and the models {', '.join(USERS)}")
    return args


def main():
    args = arguments()
    models = args.models.split(",")
    results = {"machine": gpu_name() if on_gpu(args) else cpu_name(), "threads": args.threads,
               "date": datetime.date.today().isoformat(), "blas": [] if args.no_torch else blas_in_use(), "rounds": args.rounds,
               "steps_per_round": args.steps, "results": [], "not_measured": models}
    if args.out:
        write(results, args.out)
    for number, result in enumerate(measured_models(models, args)):
        print(json.dumps(result, indent=1), flush=True)
        results["results"].append(result)
        results["not_measured"] = models[number + 1:]
        if args.out:  # whoever has no time for the next model keeps this one
            write(results, args.out)
    if args.size == "users":
        print_users(results["results"])


if __name__ == "__main__":
    main()
