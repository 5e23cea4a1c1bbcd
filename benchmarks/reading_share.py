"""How much of training's time goes into reading photographs that is not hidden behind the steps.

usage: reading_share.py STEELYARD [--photographs 128] [--epochs 3] [--threads 2] [--batch 16] [--model "{type: ...}"]

Trains the same model twice, on JPEG files (500 x 375, decoded, random_resized_crop to 224 x 224, flipped) and on the same number of
224 x 224 images that lie in memory, flipped too, and prints the seconds of an epoch (the first is left out) and the share of the first run
that the second does not need. Needs Pillow and NumPy.
"""
import argparse
import json
import os
import subprocess
import tempfile

import numpy as np
from PIL import Image

HEAD = """version: 1
name: {name}
data: {{{data}, batch_size: {batch}, validation: 0, normalize: {{mean: [0.485, 0.456, 0.406], std: [0.229, 0.224, 0.225]}}}}
model: {model}
train: {{epochs: {epochs}, optimizer: {{type: sgd, lr: 0.001}}}}
"""
DATA = {
    "files": "dataset: images, path: photos, transforms: {resize_shorter: 256, centre_crop: 224}, augment: [random_resized_crop, flip]",
    "memory": "dataset: arrays, path: photos.npz, augment: [flip]",
}


def photograph(rng):
    """Smooth colours with some noise: as large a file as a photograph."""
    y, x = np.mgrid[0:375, 0:500]
    planes = [127 + 90 * np.sin(x * a + y * b + c) + rng.normal(0, 12, x.shape) for a, b, c in rng.uniform(-0.05, 0.05, (3, 3))]
    return np.clip(np.stack(planes, -1), 0, 255).astype(np.uint8)


def write_data(folder, count):
    rng = np.random.default_rng(1)
    for split, number in (("train", count), ("test", 16)):
        for i in range(number):
            place = os.path.join(folder, "photos", split, f"class{i % 2}")
            os.makedirs(place, exist_ok=True)
            Image.fromarray(photograph(rng)).save(os.path.join(place, f"{i}.jpg"), quality=90)
    images = rng.integers(0, 256, (count, 224, 224, 3), dtype=np.uint8)
    labels = np.arange(count) % 2
    np.savez(os.path.join(folder, "photos.npz"), x_train=images, y_train=labels, x_test=images[:16], y_test=labels[:16])


def epoch_seconds(program, folder, name, arguments):
    with open(os.path.join(folder, name + ".yaml"), "w") as file:
        file.write(HEAD.format(name=name, data=DATA[name], batch=arguments.batch, model=arguments.model, epochs=arguments.epochs))
    subprocess.run([program, "train", name + ".yaml", "--threads", str(arguments.threads)], cwd=folder, check=True,
                   stdout=subprocess.DEVNULL, env={**os.environ, "OMP_WAIT_POLICY": "passive"})
    with open(os.path.join(folder, "runs", name, "metrics.jsonl")) as file:
        ends = [line["seconds"] for line in map(json.loads, file) if line["type"] == "epoch"]
    return (ends[-1] - ends[0]) / (len(ends) - 1)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("steelyard")
    parser.add_argument("--photographs", type=int, default=128)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--model", default="{type: mobilenet, stem_stride: 2}")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        write_data(folder, arguments.photographs)
        seconds = {name: epoch_seconds(os.path.abspath(arguments.steelyard), folder, name, arguments) for name in DATA}
    share = 1 - seconds["memory"] / seconds["files"]
    print(json.dumps({"seconds": seconds, "photographs_per_second": arguments.photographs / seconds["files"],
                      "share_of_reading": share}))


main()
