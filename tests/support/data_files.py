"""Small data sets for tests, campaigns and benchmarks, written by the formats' descriptions alone."""
import json
import os
import random
import struct
import zlib


def write_safetensors(path, tensors):
    """tensors: {name: (dtype, shape, bytes)}."""
    header, data = {}, b""
    for name, (dtype, shape, raw) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


def write_split(folder, split, inputs, targets):
    """One file of a data set: inputs and targets are (dtype, shape, bytes)."""
    write_named_split(folder, split, {"inputs": inputs, "targets": targets})


def write_named_split(folder, split, tensors):
    """The same of samples with several inputs: tensors by name."""
    os.makedirs(folder, exist_ok=True)
    write_safetensors(os.path.join(folder, split + ".safetensors"), tensors)


def f32(shape, values):
    return "F32", shape, struct.pack(f"<{len(values)}f", *values)


def i64(shape, values):
    return "I64", shape, struct.pack(f"<{len(values)}q", *values)


def write_gradients(folder, seed, side, step, counts):
    """Images of four kinds of gradients with noise, side x side pixels; counts: (train, test)."""
    generator = random.Random(seed)
    for split, count in zip(("train", "test"), counts):
        pixels, labels = bytearray(), []
        for _ in range(count):
            label = generator.randrange(4)
            labels.append(label)
            for y in range(side):
                for x in range(side):
                    pixels.append(step * (x, y, side - 1 - x, side - 1 - y)[label] + generator.randrange(60))
        write_split(folder, split, ("U8", [count, side, side, 1], bytes(pixels)), i64([count], labels))


def write_uniform(folder, seed, outputs, counts, largest_target=1):
    """Three features in [-1, 1] and random targets that do not depend on them; counts: (train, test)."""
    generator = random.Random(seed)
    for split, count in zip(("train", "test"), counts):
        values = [generator.uniform(-1, 1) for _ in range((3 + outputs) * count)]
        write_split(folder, split, f32([count, 3], values[:3 * count]),
                    f32([count, outputs], [largest_target * v for v in values[3 * count:]]))


def png(width, height, pixels):
    """RGB bytes as a PNG file."""
    def chunk(name, body):
        return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))

    rows = b"".join(b"\0" + pixels[3 * width * y:3 * width * (y + 1)] for y in range(height))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">2I5B", width, height, 8, 2, 0, 0, 0)) +
            chunk(b"IDAT", zlib.compress(rows, 1)) + chunk(b"IEND", b""))


def write_npy(path, shape, values):
    """f32, version 1.0 of the format."""
    header = "{'descr': '<f4', 'fortran_order': False, 'shape': (%s,), }" % ", ".join(map(str, shape))
    header += " " * (63 - (10 + len(header)) % 64) + "\n"
    with open(path, "wb") as file:
        file.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode())
        file.write(struct.pack(f"<{len(values)}f", *values))
