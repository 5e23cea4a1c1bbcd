"""The data of each show: arrays as docs/data.md describes them, with exact labels, made anew from a seed."""
import hashlib
import json
import os

import numpy as np
import PIL

from imported import file_types, pages, text_lines

SPLITS = ("train", "test")


def save(folder, split, inputs, targets):
    """Writes a split; returns the digest of its arrays."""
    os.makedirs(folder, exist_ok=True)
    digest = hashlib.sha256()
    for name, values in (("inputs", inputs), ("targets", targets)):
        values = np.ascontiguousarray(values)
        np.save(os.path.join(folder, f"{split}_{name}.npy"), values)
        digest.update(values.tobytes())
    return digest.hexdigest()


def lines_of(split, seed, strength, longest, count, make):
    """The samples that make(source of lines) gives, as arrays."""
    source = text_lines.Lines(split, seed, strength, longest)
    inputs, targets = zip(*(make(source) for _ in range(count)))
    return np.array(inputs), np.array(targets)


def rendered(folder, seed, counts, strength, longest, make):
    digests = {split: save(folder, split, *lines_of(split, seed, strength, longest, count, make))
               for split, count in zip(SPLITS, counts)}
    return {"samples": dict(zip(SPLITS, counts)), "sha256": digests, "strength": strength, "pillow": PIL.__version__}


def direction(folder, model, seed, counts):
    """Lines, half of them upside down: class 1."""
    def make(source):
        pixels, _ = source.next(48, 192)
        turned = source.generator.randrange(2)
        return (pixels[::-1, ::-1] if turned else pixels), turned

    return rendered(folder, seed, counts, 0.45, 16, make)


def characters_of(model):
    """The number of each character in the model's own list; 0 is the blank, a space comes last."""
    import onnxruntime  # the only data set that needs it

    listed = onnxruntime.InferenceSession(model).get_modelmeta().custom_metadata_map["character"].splitlines()
    return {character: i for i, character in enumerate([*listed, " "], 1)}


def recognition(folder, model, seed, counts):
    """Lines with the numbers of their characters, -1 behind them."""
    number, longest = characters_of(model), 12

    def make(source):
        pixels, text = source.next(48, 160)
        return pixels, [number[c] for c in text] + [-1] * (longest - len(text))

    return rendered(folder, seed, counts, 0.5, longest, make)


def detection(folder, model, seed, counts):
    """Pages with a mark of 0 or 1 for each pixel."""
    def make(source):
        pixels, mask = pages.page(source, 160, 192)
        return pixels, mask.reshape(-1)  # bytes: a sample has 30,720

    return rendered(folder, seed, counts, 0.3, 16, make)


def files(folder, model, seed, counts):
    """Files of this machine; counts: at most so many for training, and for the test."""
    inputs, targets, names = file_types.gather(model.replace(".onnx", ".json"), seed, most=300, least=20)
    test = min(counts[1], len(targets) // 4)
    inputs, targets = inputs[:test + counts[0]], targets[:test + counts[0]]
    parts = {"test": slice(0, test), "train": slice(test, None)}
    digests = {split: save(folder, split, inputs[parts[split]], targets[parts[split]]) for split in SPLITS}
    return {"samples": {split: len(targets[parts[split]]) for split in SPLITS}, "sha256": digests,
            "labels": {names[label]: int((targets == label).sum()) for label in np.unique(targets)}}


def prepare(maker, folder, model, seed, counts):
    """Makes a data set where it is missing; data.json is written last and says that it is whole."""
    described = os.path.join(folder, "data.json")
    if not os.path.isfile(described):
        about = {"seed": seed, **maker(folder, model, seed, counts)}
        with open(described, "w", encoding="utf-8") as file:
            json.dump(about, file, indent=2)
    with open(described, encoding="utf-8") as file:
        return json.load(file)
