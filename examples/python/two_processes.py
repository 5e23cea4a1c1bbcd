"""DistributedDataParallel: two processes, gloo, one set of ranges, equal parameters.

usage: two_processes.py
"""
import gc
import sys
import tempfile

from made_up_data import squares, w8a8

import torch
import torch.distributed
import torch.multiprocessing
from torch import nn

import steelyard
import steelyard.torch


def process(rank, world, folder):
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=world)
    torch.manual_seed(0)
    images, _, colours = squares(256, size=24, seed=rank)  # each has data of its own
    model = nn.Sequential(nn.Conv2d(3, 16, 3, stride=2, bias=False), nn.BatchNorm2d(16), nn.ReLU(),
                          nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 3))
    module = steelyard.torch.Module(model.eval(), images[:2], w8a8("Conv2d", "Linear"))
    module.calibrate(images.split(64)).train()
    parallel = nn.parallel.DistributedDataParallel(module)  # the first process's ranges from here on
    optimizer = torch.optim.SGD(parallel.parameters(), lr=0.1, momentum=0.9)
    losses = []
    for _ in range(6):
        for x, y in zip(images.split(32), colours.split(32)):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(parallel(x), y)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    steelyard.torch.agree_on_ranges(parallel)
    result = steelyard.verify(module.eval(), images[:32])
    torch.save({"state": module.state_dict(), "losses": losses, "differing": result.differing}, f"{folder}/{rank}.pt")
    del parallel  # before its group, and while the module's tensors live: older torch may wait for ever otherwise
    gc.collect()
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        torch.multiprocessing.start_processes(process, (2, place), nprocs=2, start_method="spawn")
        first, second = (torch.load(f"{place}/{rank}.pt") for rank in range(2))
    equal = all(torch.equal(value, second["state"][name]) for name, value in first["state"].items())
    losses = first["losses"]
    print(f"loss {losses[0]:.3f} to {losses[-1]:.3f}; {len(first['state'])} tensors, "
          f"{'equal' if equal else 'not equal'} in both processes; {first['differing']} codes differ")
    sys.exit(not (equal and losses[-1] < 0.7 * losses[0] and first["differing"] == 0))
