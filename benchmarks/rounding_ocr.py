#!/usr/bin/env python3
"""What do learned rounding and bias correction give back of a network that others trained?

usage: rounding_ocr.py STEELYARD CLS.onnx FOLDER [RESULTS.json]

CLS.onnx is PP-OCR's text direction model (ch_ppocr_mobile_v2.0_cls_infer.onnx of the package
rapidocr-onnxruntime 1.4.4). Renders lines of text upright and upside down in Debian's fonts (Pillow),
blurs them until the float model makes errors, and calibrates the model with weights of few bits in
each of the ways of `calibrate`. Prints a Markdown table: test loss, top-1 in percent and seconds of one core.
"""
import datetime
import glob
import json
import os
import random
import resource
import subprocess
import sys

from PIL import Image, ImageDraw, ImageFilter, ImageFont

from machine import cpu_name

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "tests"))
from support.data_files import i64, write_split  # noqa: E402

WIDTH, HEIGHT = 192, 48
COUNTS = {"train": 512, "test": 1000}
WORDS = ("the quick brown fox jumps over lazy dog invoice total amount due number street city phone order date name "
         "item price tax paid balance account customer service return receipt thank you please keep open monday friday").split()
ADAROUND = "adaround: {iterations: 200, samples: 128, batch_size: 16}"
BIASES = "bias_correction: 128"
# Name, bits of the weights, `calibrate`.
VARIANTS = [(name, bits, ", ".join(["batches: 4", *keys]))
            for bits in (4, 3)
            for name, keys in (("nearest codes", []), ("bias correction", [BIASES]), ("learned rounding", [ADAROUND]),
                               ("learned rounding, then bias correction", [ADAROUND, BIASES]))]


def line(draw, fonts):
    """A degraded line of text and whether it is upside down."""
    font = ImageFont.truetype(draw.choice(fonts), draw.randrange(22, 36))
    text = " ".join(draw.choice(WORDS) for _ in range(draw.randrange(1, 4)))
    if draw.random() < 0.3:
        text = text.upper()
    if draw.random() < 0.4:
        text += f" {draw.randrange(10000)}"
    paper, ink = draw.randrange(150, 256), draw.randrange(0, 110)
    image = Image.new("L", (WIDTH, HEIGHT), paper)
    ImageDraw.Draw(image).text((draw.randrange(2, 12), draw.randrange(2, 10)), text, fill=ink, font=font)
    turned = draw.random() < 0.5
    if turned:
        image = image.rotate(180)
    image = image.rotate(draw.uniform(-4, 4), fillcolor=paper).filter(ImageFilter.GaussianBlur(draw.uniform(0.3, 1.4)))
    noise = Image.effect_noise((WIDTH, HEIGHT), 2)
    noise.putdata([draw.randrange(256) for _ in range(WIDTH * HEIGHT)])
    return Image.blend(image, noise, draw.uniform(0, 0.1)), int(turned)


def write_lines(folder):
    fonts = sorted(path for kind in ("dejavu", "liberation", "freefont")
                   for path in glob.glob(f"/usr/share/fonts/truetype/{kind}/*.ttf") if "Math" not in path)
    for seed, (split, count) in enumerate(COUNTS.items()):
        draw = random.Random(seed)
        pixels, labels = bytearray(), []
        for _ in range(count):
            image, label = line(draw, fonts)
            pixels += Image.merge("RGB", [image] * 3).tobytes()
            labels.append(label)
        write_split(folder, split, ("U8", [count, HEIGHT, WIDTH, 3], bytes(pixels)), i64([count], labels))


def recipe(model, data, bits, calibrate):
    return f"""version: 1
name: ocr
data: {{dataset: safetensors, path: {data}, batch_size: 32, validation: 0, normalize: {{mean: [0.5, 0.5, 0.5], std: [0.5, 0.5, 0.5]}}}}
model: {{onnx: {model}}}
train: {{epochs: 1, optimizer: {{type: sgd, lr: 0.001}}}}
quantize:
  groups:
    - targets: [Conv2d, Linear]
      weights: {{num_bits: {bits}, symmetric: true, strategy: channel}}
      activations: {{num_bits: 8, symmetric: false, strategy: tensor}}
calibrate: {{{calibrate}}}
"""


def measure(command):
    run = command[command.index("--run-dir") + 1]
    if not os.path.isfile(os.path.join(run, "summary.json")):
        start = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        with open(os.path.join(run, "seconds"), "w") as file:
            file.write(str(resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - start))
    final = json.load(open(os.path.join(run, "summary.json")))["final"]
    return {"loss": final["loss"], "top1": final["top1"],
            "seconds": float(open(os.path.join(run, "seconds")).read())}


def main():
    steelyard, model, folder = [os.path.abspath(path) for path in sys.argv[1:4]]
    data = os.path.join(folder, "lines")
    if not os.path.isdir(data):
        write_lines(data)
    results = {"float": measure([steelyard, "import", model, "--set", "data.dataset=safetensors", "--set",
                                 f"data.path={data}", "--set", "data.validation=0", "--set",
                                 "data.normalize={mean: [0.5, 0.5, 0.5], std: [0.5, 0.5, 0.5]}", "--run-dir",
                                 os.path.join(folder, "float")])}
    print("| weights | ranges and biases | test loss | top-1 | seconds |\n|---|---|---|---|---|")
    print(f"| float | | {results['float']['loss']:.4f} | {results['float']['top1']:.1f} | |")
    for name, bits, calibrate in VARIANTS:
        run = os.path.join(folder, f"w{bits}-{name.replace(', ', '-').replace(' ', '-')}")
        path = run + ".yaml"
        with open(path, "w") as file:
            file.write(recipe(model, data, bits, calibrate))
        found = measure([steelyard, "calibrate", path, "--run-dir", run, "--threads", "1"])
        results[f"{bits} bits, {name}"] = found
        print(f"| {bits} bits | {name} | {found['loss']:.4f} | {found['top1']:.1f} | "
              f"{found['seconds']:.0f} |", flush=True)
    if len(sys.argv) > 4:
        with open(sys.argv[4], "w") as file:
            json.dump({"machine": cpu_name(), "date": str(datetime.date.today()), "samples": COUNTS,
                       "results": results}, file, indent=1)
            file.write("\n")


if __name__ == "__main__":
    main()
