"""Writes files of images, tables, arrays, archives and datasets, and what Pillow, NumPy, Python's csv and tarfile read in them.

usage: write_data_files.py FOLDER; exit code 77 when Pillow or NumPy is not installed.
manifest.json lists the cases; what is expected of images and arrays lies in expected.bin, one behind the other.
"""
import collections
import csv
import gzip
import io
import json
import math
import os
import random
import sys
import tarfile

try:
    import numpy as np
    from PIL import Image, ImageEnhance, ImageOps
except ImportError as error:
    print(f"{error}: skipped")
    sys.exit(77)

IMAGES, TABLES, ARRAYS, ARCHIVES, SIZES = 1000, 1000, 1000, 1000, 120
SAMPLES = 1000  # of each kind of dataset


def picture(rng, height, width, channels):
    """Smooth colours with edges and noise: neither flat nor pure noise."""
    y, x = np.mgrid[0:height, 0:width]
    planes = []
    for _ in range(channels):
        a, b, c = rng.uniform(-9, 9, 3)
        wave = 127 + 90 * np.sin(a * x / width + b * y / height + c) + rng.normal(0, 12, (height, width))
        wave[:: max(1, height // 3)] += 60
        planes.append(np.clip(wave, 0, 255))
    return np.stack(planes, -1).astype(np.uint8)


def exif(orientation, big):
    head, order = (b"MM\0*\0\0\0\x08", "big") if big else (b"II*\0\x08\0\0\0", "little")
    number = lambda value, size: value.to_bytes(size, order)
    entry = number(0x0112, 2) + number(3, 2) + number(1, 4) + number(orientation, 2) + b"\0\0"
    return b"Exif\0\0" + head + number(1, 2) + entry + number(0, 4)


def stored(rng, kind, image):
    """(bytes, what of 16 bits is expected or None) of a file of this kind."""
    height, width = image.shape[:2]
    more, form = {}, kind.split()[0]
    orientation = int(rng.integers(0, 9))
    if orientation and form in ("jpeg", "webp", "png"):
        block = exif(orientation, bool(rng.integers(2)))
        more["exif"] = block if form != "png" else block[6:] if rng.integers(2) else block
    if form == "jpeg":
        more.update(quality=int(rng.integers(5, 100)), progressive=bool(rng.integers(2)))
        if "grey" not in kind:
            more["subsampling"] = int(rng.integers(3))
    expected = None
    pil = Image.fromarray(image)
    if "grey" in kind:
        pil = pil.convert("L")
    if "cmyk" in kind:
        pil = pil.convert("CMYK")
    if "palette" in kind:
        pil = pil.quantize(int(rng.integers(2, 256)))
    if "bilevel" in kind:
        pil = pil.convert("1")
    if "alpha" in kind:
        pil = pil.convert("LA" if "grey" in kind else "RGBA")
        pil.putalpha(Image.fromarray(rng.integers(1, 256, (height, width), dtype=np.uint8)))
    if "palette" in kind and form == "png":
        more["transparency"] = 0
    if "16" in kind:
        deep = rng.integers(0, 65536, (height, width)).astype(np.uint16)
        pil = Image.fromarray(deep)
        expected = ((deep.astype(np.uint32) * 255 * 2 + 65535) // (2 * 65535)).astype(np.uint8)
        more = {}
    if "lossless" in kind:
        more.update(lossless=True, exact=True)
    raw = io.BytesIO()
    pil.save(raw, form, **more)
    return raw.getvalue(), expected


def images(folder, rng, add):
    kinds = ["jpeg", "jpeg grey", "jpeg cmyk", "png", "png grey", "png palette", "png bilevel", "png alpha",
             "png grey alpha", "png 16", "webp", "webp lossless", "webp lossless alpha", "bmp", "bmp grey",
             "bmp palette", "bmp bilevel", "bmp alpha"]
    for i in range(IMAGES):
        kind = kinds[i % len(kinds)]
        raw, expected = stored(rng, kind, picture(rng, int(rng.integers(1, 40)), int(rng.integers(1, 40)), 3))
        path = os.path.join(folder, f"image-{i}")
        with open(path, "wb") as file:
            file.write(raw)
        if expected is None:
            with Image.open(path) as opened:
                pil = ImageOps.exif_transpose(opened).convert("RGB")
            expected, grey = np.asarray(pil), np.asarray(pil.convert("L"))
        else:
            expected, grey = np.repeat(expected[..., None], 3, -1), expected
        add("images", expected.tobytes() + grey.tobytes(), file=os.path.basename(path), kind=kind,
            shape=list(expected.shape))


FILTERS = {"bilinear": Image.BILINEAR, "bicubic": Image.BICUBIC}


def resized(pil, width, height, interpolation):
    """First the width, as Pillow does before version 13, which begins with a height that shrinks much more."""
    return pil.resize((width, pil.height), interpolation).resize((width, height), interpolation)


def resizing(folder, rng, add):
    for i in range(SIZES):
        channels = (1, 3)[i % 2]
        image = picture(rng, int(rng.integers(1, 90)), int(rng.integers(1, 90)), channels)
        height, width = (int(v) for v in rng.integers(1, 90, 2))
        name = list(FILTERS)[i // 2 % 2]
        pil = Image.fromarray(image[..., 0] if channels == 1 else image)
        out = np.asarray(resized(pil, width, height, FILTERS[name]))
        add("resizing", image.tobytes() + out.tobytes(), interpolation=name, image=list(image.shape),
            size=[height, width])


def transforms(folder, rng, add):
    """What evaluation sees: resized, the longer side rounded down, and the centre of it as torchvision cuts it out."""
    for i in range(SIZES):
        image = picture(rng, int(rng.integers(20, 90)), int(rng.integers(20, 90)), 3)
        height, width = image.shape[:2]
        crop, case = [int(v) for v in rng.integers(1, 20, 2)], {}
        if i % 3 == 0:
            case["resize"] = new = [int(v) for v in rng.integers(20, 60, 2)]
        elif i % 3 == 1:
            case["resize_shorter"] = shorter = int(rng.integers(20, 60))
            new = [max(shorter, int(shorter * side / min(height, width))) for side in (height, width)]
        else:
            new = [height, width]
        name = list(FILTERS)[i // 3 % 2]
        pil = resized(Image.fromarray(image), new[1], new[0], FILTERS[name]) if case else Image.fromarray(image)
        top, left = (int(round((all_ - part) / 2.0)) for all_, part in zip(new, crop))
        out = np.asarray(pil.crop((left, top, left + crop[1], top + crop[0])))
        add("transforms", image.tobytes() + out.tobytes(), interpolation=name, image=list(image.shape), centre_crop=crop, **case)


class Philox:
    """Philox4x32-10 of (seed, stream), a word after another: Salmon et al., SC 2011."""

    def __init__(self, seed, stream):
        self.seed, self.stream, self.words = seed, stream, []
        self.blocks = 0

    def word(self):
        if not self.words:
            c = [self.blocks & 0xFFFFFFFF, self.blocks >> 32, self.stream & 0xFFFFFFFF, self.stream >> 32]
            k = [self.seed & 0xFFFFFFFF, self.seed >> 32]
            for _ in range(10):
                a, b = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
                c = [b >> 32 ^ c[1] ^ k[0], b & 0xFFFFFFFF, a >> 32 ^ c[3] ^ k[1], a & 0xFFFFFFFF]
                k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
            self.words, self.blocks = c, self.blocks + 1
        return self.words.pop(0)

    def uniform(self, low, high):
        return low + (high - low) * (self.word() >> 8) / 2**24

    def below(self, n):
        return (self.word() << 32 | self.word()) % n


def crop_box(random, height, width, area, ratio):
    """(top, left, height, width), as torchvision's RandomResizedCrop.get_params draws it."""
    for _ in range(10):
        part = height * width * random.uniform(*area)
        shape = math.exp(random.uniform(math.log(ratio[0]), math.log(ratio[1])))
        w, h = int(round(math.sqrt(part * shape))), int(round(math.sqrt(part / shape)))
        if 0 < w <= width and 0 < h <= height:
            return random.below(height - h + 1), random.below(width - w + 1), h, w
    w, h = width, height
    if width / height < ratio[0]:
        h = int(round(width / ratio[0]))
    elif width / height > ratio[1]:
        w = int(round(height * ratio[1]))
    return (height - h) // 2, (width - w) // 2, h, w


def crops(folder, rng, add):
    for i in range(SIZES):
        image = picture(rng, int(rng.integers(4, 90)), int(rng.integers(4, 90)), 3)
        size = [int(v) for v in rng.integers(4, 60, 2)]
        area, ratio = ([0.08, 1.0], [0.75, 4 / 3]) if i % 2 else ([0.9, 1.0], [1.5, 2.0])
        top, left, height, width = crop_box(Philox(i, 5), *image.shape[:2], area, ratio)
        name = list(FILTERS)[i // 2 % 2]
        out = np.asarray(resized(Image.fromarray(image).crop((left, top, left + width, top + height)), *size[::-1], FILTERS[name]))
        add("crops", image.tobytes() + out.tobytes(), interpolation=name, image=list(image.shape), resize=size, random_area=area,
            random_ratio=ratio, seed=i, stream=5)


def flips(folder, rng, add):
    """Images as they are, mirrored, upside down and both."""
    for channels in (1, 3):
        images = [picture(rng, 7, 6, channels) for _ in range(64)]
        pils = [Image.fromarray(image[..., 0] if channels == 1 else image) for image in images]
        data = b"".join(np.asarray(change(pil)).tobytes() for change in (
            lambda pil: pil, ImageOps.mirror, ImageOps.flip, lambda pil: ImageOps.flip(ImageOps.mirror(pil))) for pil in pils)
        add("flips", data, shape=[len(images), *images[0].shape])


def turned(image, turn):
    """The hue moved in Pillow's 8-bit HSV, as torchvision does."""
    hue, saturation, value = image.convert("HSV").split()
    hue = Image.fromarray((np.asarray(hue).astype(int) + int(turn * 255)).astype(np.uint8))
    return Image.merge("HSV", (hue, saturation, value)).convert("RGB")


def moved(*matrix):
    return lambda image, amount: image.transform(
        image.size, Image.AFFINE, [amount if m is None else m for m in matrix], Image.BILINEAR)


EFFECTS = {
    "brightness": (lambda image, x: ImageEnhance.Brightness(image).enhance(x), 0, 2),
    "contrast": (lambda image, x: ImageEnhance.Contrast(image).enhance(x), 0, 2),
    "saturation": (lambda image, x: ImageEnhance.Color(image).enhance(x), 0, 2),
    "sharpness": (lambda image, x: ImageEnhance.Sharpness(image).enhance(x), 0, 2),
    "hue": (turned, -0.5, 0.5),
    "rotate": (lambda image, x: image.rotate(x, Image.BILINEAR), -170, 170),
    "shear_x": (moved(1, None, 0, 0, 1, 0), -1, 1),
    "shear_y": (moved(1, 0, 0, None, 1, 0), -1, 1),
    "translate_x": (moved(1, 0, None, 0, 1, 0), -20, 20),
    "translate_y": (moved(1, 0, 0, 0, 1, None), -20, 20),
    "solarize": (lambda image, x: ImageOps.solarize(image, x), 0, 256),
    "posterize": (lambda image, x: ImageOps.posterize(image, int(x)), 1, 9),
    "auto_contrast": (lambda image, x: ImageOps.autocontrast(image), 0, 1),
    "equalize": (lambda image, x: ImageOps.equalize(image), 0, 1),
}


def effects(folder, rng, add):
    for name, (effect, least, most) in EFFECTS.items():
        for i in range(12):
            channels = 3 if name == "hue" else (1, 3)[i % 2]
            image = picture(rng, int(rng.integers(2, 70)), int(rng.integers(2, 70)), channels)
            amount = float(rng.uniform(least, most))
            if name in ("posterize", "translate_x", "translate_y"):
                amount = float(int(amount))
            pil = Image.fromarray(image[..., 0] if channels == 1 else image)
            out = np.asarray(effect(pil, amount))
            add("effects", image.tobytes() + out.tobytes(), name=name, amount=amount, image=list(image.shape))


def tables(folder, generator, add):
    pieces = ["", "a", "b c", "0.5", "-1e9", ",", ";", "\t", '"', '""', "\n", "\r\n", "é", "日本", "'", "#", " "]
    for i in range(TABLES):
        delimiter = ",;\t"[i % 3]
        width = generator.randrange(2, 6)
        rows = [["".join(generator.choices(pieces, k=generator.randrange(4))) for _ in range(width)]
                for _ in range(generator.randrange(1, 40))]
        text = io.StringIO(newline="")
        csv.writer(text, delimiter=delimiter, lineterminator=("\n", "\r\n")[i % 2],
                   quoting=(csv.QUOTE_MINIMAL, csv.QUOTE_ALL)[i // 2 % 2]).writerows(rows)
        name = f"table-{i}"
        with open(os.path.join(folder, name), "w", newline="", encoding="utf-8") as file:
            file.write(("\ufeff" if i % 5 == 0 else "") + text.getvalue())
        read = list(csv.reader(io.StringIO(text.getvalue(), newline=""), delimiter=delimiter))
        assert read == rows
        add("tables", b"", file=name, delimiter=delimiter, rows=rows)


def numbers(rng, shape, dtype):
    """Values that float32 holds too."""
    if np.issubdtype(dtype, np.floating):
        return rng.normal(0, 50, shape).astype(dtype)
    limits = np.iinfo(dtype)
    return rng.integers(max(limits.min, -2**24), min(limits.max, 2**24) + 1, shape).astype(dtype)


def as_samples(values):
    return (values if values.dtype == np.uint8 else values.astype(np.float32)).tobytes()


def arrays(folder, rng, add):
    types = ["uint8", "float16", "float32", "float64", "int8", "uint16", "int32", "int64"]
    for i in range(ARRAYS):
        dtype = types[i % len(types)]
        shape = [int(v) for v in rng.integers(1, 7, int(rng.integers(2, 5)))]
        inputs = numbers(rng, shape, dtype)
        labels = rng.integers(0, 100, shape[0]).astype(("int8", "int64", "uint16", "int32", "uint8")[i % 5])
        name = f"array-{i}.npz"
        (np.savez, np.savez_compressed)[i % 2](os.path.join(folder, name), inputs=inputs, targets=labels)
        np.save(os.path.join(folder, f"array-{i}.npy"), inputs)
        with np.load(os.path.join(folder, name)) as stored:
            expected = as_samples(stored["inputs"]) + stored["targets"].astype(np.int64).tobytes()
        add("arrays", expected, file=name, single=f"array-{i}.npy",
            shape=shape, dtype=dtype)


def archives(folder, generator, add):
    for i in range(ARCHIVES):
        members = []
        with tarfile.open(os.path.join(folder, f"archive-{i}.tar"), "w",
                          format=(tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT)[i % 3]) as archive:
            folder_of = tarfile.TarInfo("a")
            folder_of.type = tarfile.DIRTYPE
            archive.addfile(folder_of)
            for k in range(generator.randrange(1, 12)):
                name = f"{k}/" + "/".join("x" * generator.randrange(1, 60) for _ in range(generator.randrange(1, 3 if i % 3 == 0 else 9)))
                member = tarfile.TarInfo(name + ("" if i % 3 == 0 else "\u00e9"))
                data = generator.randbytes(generator.choice((0, 1, 511, 512, 513, 2000)))
                member.size = len(data)
                archive.addfile(member, io.BytesIO(data))
                members.append((member.name, data))
        add("archives", b"".join(data for _, data in members), file=f"archive-{i}.tar", names=[name for name, _ in members],
            sizes=[len(data) for _, data in members])


def idx(folder, rng, add):
    """Folders of MNIST's four files, plain and gzip, read again by NumPy."""
    for i in range(20):
        path, packed, found = f"idx-{i}", i % 2 == 1, b""
        os.makedirs(os.path.join(folder, path), exist_ok=True)
        size = [int(v) for v in rng.integers(1, 9, 2)]
        for split in ("train", "t10k"):
            count, parts = SAMPLES // 40, []
            for name, values in (("images-idx3", rng.integers(0, 256, [count, *size])), ("labels-idx1", rng.integers(0, 10, count))):
                file = os.path.join(folder, path, f"{split}-{name}-ubyte" + (".gz" if packed else ""))
                head = np.array([0x800 + values.ndim, *values.shape], ">u4").tobytes()
                with (gzip.open if packed else open)(file, "wb") as out:
                    out.write(head + values.astype(np.uint8).tobytes())
                with (gzip.open if packed else open)(file, "rb") as read:
                    raw = read.read()
                shape = np.frombuffer(raw, ">u4", raw[3], 4)
                parts.append(np.frombuffer(raw, np.uint8, offset=4 + 4 * raw[3]).reshape(shape))
            found += parts[0].tobytes() + parts[1].astype(np.int64).tobytes()
        add("datasets", found, dataset="fashion_mnist", path=path, shape=[*size, 1])
        add("datasets", found, dataset="idx", path=path, shape=[*size, 1])


def cifar(folder, rng, add):
    for path, labels, train in (("cifar10", 1, [f"data_batch_{n}.bin" for n in range(1, 6)]), ("cifar100", 2, ["train.bin"])):
        found, classes = b"", 10 ** labels
        os.makedirs(os.path.join(folder, path), exist_ok=True)
        for files in (train, ["test_batch.bin" if labels == 1 else "test.bin"]):
            records = []
            for name in files:
                written = rng.integers(0, 256, (SAMPLES // (len(train) + 1) + 1, labels + 3072)).astype(np.uint8)
                written[:, labels - 1] %= classes
                written.tofile(os.path.join(folder, path, name))
                records.append(np.fromfile(os.path.join(folder, path, name), np.uint8).reshape(-1, labels + 3072))
            records = np.concatenate(records)
            found += records[:, labels:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1).tobytes()
            found += records[:, labels - 1].astype(np.int64).tobytes()
        add("datasets", found, dataset=path, path=path, shape=[32, 32, 3])


TENSORS = {"U8": "uint8", "I8": "int8", "I32": "int32", "I64": "int64", "F16": "float16", "F32": "float32", "F64": "float64"}


def write_tensors(path, **tensors):
    header, data = {}, b""
    for name, values in tensors.items():
        kind = next(kind for kind, dtype in TENSORS.items() if dtype == values.dtype)
        header[name] = {"dtype": kind, "shape": values.shape, "data_offsets": [len(data), len(data) + values.nbytes]}
        data += values.tobytes()
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text + data)


def read_tensors(path):
    with open(path, "rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        data = file.read()
    return {name: np.frombuffer(data[slice(*entry["data_offsets"])], TENSORS[entry["dtype"]]).reshape(entry["shape"])
            for name, entry in header.items()}


def safetensors(folder, rng, add):
    """Folders of one file or of shards for each split."""
    for i in range(40):
        path, found = f"safetensors-{i}", b""
        os.makedirs(os.path.join(folder, path), exist_ok=True)
        dtype = list(TENSORS.values())[i % len(TENSORS)]
        shape = [int(v) for v in rng.integers(1, 6, int(rng.integers(1, 4)))]
        for split, count in (("train", 15), ("test", 10)):
            names = [f"{split}-{n:05}-of-00005.safetensors" for n in range(1, 6)] if i % 2 else [split + ".safetensors"]
            parts = []
            for name in names:
                samples = count // len(names)
                labels = rng.integers(0, 4, samples).astype(("int64", "uint8", "int32")[i % 3])
                labels[0] = 3  # the largest label of the training set says how many classes there are
                write_tensors(os.path.join(folder, path, name), inputs=numbers(rng, [samples, *shape], dtype), targets=labels)
                parts.append(read_tensors(os.path.join(folder, path, name)))
            found += b"".join(as_samples(part["inputs"]) for part in parts)
            found += b"".join(part["targets"].astype(np.int64).tobytes() for part in parts)
        add("datasets", found, dataset="safetensors", path=path, shape=shape + [1] * (len(shape) == 2))


def tables_of_samples(folder, rng, add):
    """Columns of numbers and of categories, both with missing values, as Python's csv reads them from tabs."""
    words, classes = ["", "red", "dark blue", "\u00e9tain", 'a "quote"', "a\ttab"], ["rose", "lily", "iris"]
    for i in range(25):
        path = f"tsv-{i}"
        os.makedirs(os.path.join(folder, path), exist_ok=True)
        splits = {}
        for split in ("train", "test"):
            file = os.path.join(folder, path, split + ".tsv")
            with open(file, "w", newline="", encoding="utf-8") as out:
                table = csv.writer(out, "excel-tab", lineterminator=("\n", "\r\n")[i % 2])
                table.writerow(["length", "colour", "id", "kind", "width"])
                for row in range(SAMPLES // 50):
                    length = "NA" if rng.integers(4) == 0 else repr(float(rng.normal(0, 100)))
                    colour = words[row] if row < len(words) else words[rng.integers(len(words))]
                    table.writerow([length, colour, row, classes[row % 3], f"{rng.integers(-9, 9)}e-1"])
            with open(file, newline="", encoding="utf-8") as read:
                splits[split] = list(csv.DictReader(read, dialect="excel-tab"))
        known = [float(np.float32(row["length"])) for row in splits["train"] if row["length"] != "NA"]
        mean, found = np.float32(sum(known) / len(known)), b""
        colours = sorted({row["colour"] for row in splits["train"]}, key=str.encode)  # "" is a missing one, the first
        for rows in splits.values():
            for row in rows:
                length = mean if row["length"] == "NA" else np.float32(row["length"])
                features = [length, *(row["colour"] == colour for colour in colours), np.float32(row["width"])]
                found += np.array(features, np.float32).tobytes()
            found += np.array([sorted(classes).index(row["kind"]) for row in rows], np.int64).tobytes()
        add("datasets", found, dataset="table", path=path, shape=[2 + len(colours)], target="kind", categories=["colour"],
            ignore=["id"], missing=["", "NA"])


def main(folder):
    os.makedirs(folder, exist_ok=True)
    manifest = collections.defaultdict(list)
    with open(os.path.join(folder, "expected.bin"), "wb") as expected:
        def add(section, data, **case):
            manifest[section].append({**case, "offset": expected.tell(), "bytes": len(data)})
            expected.write(data)

        images(folder, np.random.default_rng(1), add)
        resizing(folder, np.random.default_rng(2), add)
        transforms(folder, np.random.default_rng(11), add)
        crops(folder, np.random.default_rng(12), add)
        flips(folder, np.random.default_rng(13), add)
        effects(folder, np.random.default_rng(6), add)
        tables(folder, random.Random(3), add)
        arrays(folder, np.random.default_rng(4), add)
        archives(folder, random.Random(5), add)
        idx(folder, np.random.default_rng(7), add)
        cifar(folder, np.random.default_rng(8), add)
        safetensors(folder, np.random.default_rng(9), add)
        tables_of_samples(folder, np.random.default_rng(10), add)
    with open(os.path.join(folder, "manifest.json"), "w", encoding="utf-8") as file:
        json.dump(manifest, file)


main(sys.argv[1])
