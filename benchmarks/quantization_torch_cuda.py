#!/usr/bin/env python3
"""Compares the results of quantization_cuda_benchmark with PyTorch's kernels on the same GPU, run right after it.

usage: benchmarks/quantization_torch_cuda.py RESULTS.json [--rounds 21] [--out FILE]
Every figure is a median of event times; inputs rotate, so that no call finds its data in a cache. An operation that
torch does not have for bf16 goes through float there and is marked so. `--device cpu --mib 1` only tries the program
where no GPU is.
"""
import argparse
import json
import statistics
import time

import torch

FORWARD = "fake_quantize forward, "
BACKWARD = "fake_quantize backward, "
# Name -> the rows of ours that do the same work.
OURS = {
    "forward, tensor": [FORWARD + "tensor"],
    "forward + backward, tensor": [FORWARD + "tensor", BACKWARD + "tensor"],
    "forward, channel": [FORWARD + "channel of 7x7 planes"],
    "forward + backward, channel": [FORWARD + "channel of 7x7 planes", BACKWARD + "channel of 7x7 planes"],
    "forward + LSQ backward, tensor": [FORWARD + "tensor", BACKWARD + "LSQ, tensor"],
    "observe + forward, tensor": ["observe + fake_quantize, current, tensor"],
    "quantize u8, tensor": ["quantize u8, tensor"],
}
ROTATION = 4


class Torch:
    """The same work on tensors of the same size."""

    def __init__(self, device, dtype, mib):
        self.device = device
        self.through_float = False
        planes = mib * 2**20 // (torch.finfo(dtype).bits // 8) // 3136
        shape = (planes, 64, 7, 7)
        self.x = [(torch.rand(shape, device=device) * 2).to(dtype).requires_grad_() for _ in range(ROTATION)]
        self.grad = torch.rand(shape, device=device).to(dtype)
        self.scale = torch.full((64,), 0.01, device=device)
        self.zero_point = torch.zeros(64, dtype=torch.int32, device=device)
        self.learned = [torch.tensor([value], device=device, requires_grad=True) for value in (0.01, 0.0)]
        # What FusedMovingAvgObsFakeQuantize holds: switches, range, scale, zero point. The module is leaving torch.
        on = torch.ones(1, dtype=torch.long, device=device)
        self.state = [on, on, *(torch.tensor([value], device=device) for value in (float("inf"), float("-inf"), 1.0)),
                      torch.zeros(1, dtype=torch.int32, device=device)]

    def apply(self, quantize, x):
        return quantize(x.float()).to(x.dtype) if self.through_float else quantize(x)

    def per_tensor(self, x):
        return self.apply(lambda v: torch.fake_quantize_per_tensor_affine(v, 0.01, 0, 0, 255), x)

    def per_channel(self, x):
        return self.apply(
            lambda v: torch.fake_quantize_per_channel_affine(v, self.scale, self.zero_point, 1, 0, 255), x)

    def learnable(self, x):
        return self.apply(
            lambda v: torch._fake_quantize_learnable_per_tensor_affine(v, *self.learned, 0, 255, 1.0), x)

    def observed(self, x):
        return self.apply(lambda v: torch.fused_moving_avg_obs_fake_quant(v, *self.state, 0.01, 0, 255, -1), x)

    def codes(self, x):
        return torch.quantize_per_tensor(x.float() if self.through_float else x, 0.01, 0, torch.quint8)

    def backward(self, forward, x):
        x.grad = None
        forward(x).backward(self.grad)

    def works(self):
        return dict(zip(OURS, (
            lambda x: self.per_tensor(x.detach()),
            lambda x: self.backward(self.per_tensor, x),
            lambda x: self.per_channel(x.detach()),
            lambda x: self.backward(self.per_channel, x),
            lambda x: self.backward(self.learnable, x),
            lambda x: self.observed(x.detach()),
            lambda x: self.codes(x.detach()))))

    def milliseconds(self, work, x):
        if self.device == "cpu":
            start = time.perf_counter()
            work(x)
            return (time.perf_counter() - start) * 1e3
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        work(x)
        end.record()
        end.synchronize()
        return begin.elapsed_time(end)

    def median(self, work, rounds):
        """None where this torch does not have the operation."""
        for self.through_float in (False, True):
            try:
                work(self.x[0])
                break
            except (AttributeError, RuntimeError, TypeError) as error:
                print(f"     {'through float: ' if self.through_float else ''}{error}".splitlines()[0])
        else:
            return None
        for x in self.x:
            work(x)
        return statistics.median(self.milliseconds(work, self.x[i % ROTATION]) for i in range(rounds))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results")
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--mib", type=int, default=256)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--out")
    options = parser.parse_args()
    with open(options.results) as file:
        ours = {(row["type"], row["name"]): row["milliseconds"] for row in json.load(file)["rows"]}
    rows = []
    for kind, dtype in (("f32", torch.float32), ("bf16", torch.bfloat16)):
        theirs = Torch(options.device, dtype, options.mib)
        for name, work in theirs.works().items():
            mine = sum(ours[kind, part] for part in OURS[name])
            other = theirs.median(work, options.rounds)
            if other is None:
                continue
            rows.append({"type": kind, "name": name, "milliseconds": mine, "torch_milliseconds": other,
                         "torch_through_float": theirs.through_float, "times_faster": other / mine})
            print(f"{kind:4} {name:32} ours {mine:8.3f} ms   torch {other:8.3f} ms   {other / mine:6.2f} times faster"
                  + ("   (torch through float)" if theirs.through_float else ""))
        del theirs
    if options.out:
        device = torch.cuda.get_device_name() if options.device == "cuda" else "cpu"
        with open(options.out, "w") as file:
            json.dump({"benchmark": "quantization_torch_cuda", "gpu": device, "torch": torch.__version__,
                       "unix_time": int(time.time()), "mib": options.mib, "rounds": options.rounds, "rows": rows},
                      file, indent=2)
            file.write("\n")


if __name__ == "__main__":
    main()
