#!/usr/bin/env python3
"""Writes the seeds of the fuzzers' corpora: corpus/<target>/seed-*, from the formats' descriptions.

Inputs that once failed lie beside them under other names and stay; so do models of `deployed` that the suite's networks
gave (write_onnx_cases FOLDER 31 deployed).
"""
import glob
import gzip
import io
import json
import os
import struct
import sys
import tarfile
import tempfile
import zipfile
import zlib

HERE = os.path.dirname(os.path.abspath(__file__))
FOLDER = os.path.join(HERE, "corpus")
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "support"))

import gguf_files  # noqa: E402
import huggingface_files  # noqa: E402


def write(target, name, data):
    folder = os.path.join(FOLDER, target)
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "seed-" + name), "wb") as file:
        file.write(data if isinstance(data, bytes) else data.encode())


BYTES = {"F64": 8, "I64": 8, "F32": 4, "I32": 4, "F16": 2, "BF16": 2, "I8": 1, "U8": 1, "BOOL": 1}


def header_of(tensors, metadata=None):
    """tensors: [(name, dtype, shape)]. Returns the header's JSON and the bytes behind it."""
    header, position = {}, 0
    if metadata:
        header["__metadata__"] = metadata
    for name, dtype, shape in tensors:
        size = BYTES[dtype]
        for dimension in shape:
            size *= dimension
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [position, position + size]}
        position += size
    return json.dumps(header, separators=(",", ":")), position


def file_of(tensors, metadata=None, data=None):
    text, size = header_of(tensors, metadata)
    text += " " * (-len(text) % 8)
    data = data if data is not None else bytes(i * 7 % 128 for i in range(size))
    return struct.pack("<Q", len(text)) + text.encode() + data


SETS = {
    "empty": ([], None),
    "types": ([(d.lower(), d, [2]) for d in BYTES if d != "BOOL"] + [("bool", "BOOL", [0])], {"a": "b"}),
    "module": ([("weight", "F32", [2, 3]), ("mean", "F32", [2])], None),
    "shapes": ([("scalar", "F32", []), ("rank 8", "U8", [1, 2, 1, 1, 2, 1, 1, 1]), ("none", "I64", [0, 5])],
               {"format": "pt", "\u00e9\"\\": "\n"}),
}


def safetensors():
    for name, (tensors, metadata) in SETS.items():
        text, size = header_of(tensors, metadata)
        write("safetensors_header", name, struct.pack("<H", size) + text.encode())
        write("safetensors", name, file_of(tensors, metadata))
        write("checkpoint", name, b"\x55\x01" + text.encode() + b"\0" + bytes(size))
    marks = {"format": "steelyard-checkpoint", "format_version": "1", "sha256": "0" * 64, "sha256:weight": "0" * 64}
    write("safetensors", "unsealed", file_of([("weight", "F32", [2])], marks))


def training_state():
    tensors = [("weight", "F32", [2, 3]), ("bias", "F32", [2])]
    tensors += [(f"{p}/{s}", "F32", shape) for p, _, shape in tensors for s in ("exp_avg", "exp_avg_sq")]
    tensors += [("weight/step", "I64", []), ("bias/step", "I64", [])]
    metadata = {"optimizer": "adamw", "seed": "0", "epoch": "0", "batch": "1", "step": "1",
                "epoch_loss_sum": "1.8p+0", "epoch_samples": "2"}
    best = {"best_epoch": "0", "best_loss": "1p-1", "best_top1": "1.9p+6"}
    for name, changes in (("middle", {}), ("best", best), ("done", {"epoch": "2", "batch": "0", "step": "4"}),
                          ("end", {"batch": "2", "step": "2"})):
        text, size = header_of(tensors, {**metadata, **changes})
        write("training_state", name, text.encode() + b"\0" + bytes(size))


def gguf():
    def text(words):
        return struct.pack("<Q", len(words)) + words

    def entry(key, kind, value):
        return text(key) + struct.pack("<I", kind) + value

    def tensor(name, sizes, kind, offset):
        return text(name) + struct.pack(f"<I{len(sizes)}QIQ", len(sizes), *sizes, kind, offset)

    def file(entries, tensors, data, alignment=32):
        head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(entries)) + b"".join(entries + tensors)
        return head + bytes(-len(head) % alignment) + data

    formats = "BbHhIif?.." + "Qqd"  # of the types 0 to 12; 8 are strings, 9 arrays
    numbers = [entry(b"n%d" % kind, kind, struct.pack("<" + code, 1)) for kind, code in enumerate(formats) if code != "."]
    arrays = [entry(b"a%d" % kind, 9, struct.pack("<IQ2" + code, kind, 2, 0, 1)) for kind, code in enumerate(formats)
              if code != "."]
    texts = [entry(b"s", 8, text(b"word")), entry(b"t", 9, struct.pack("<IQ", 8, 2) + text(b"a") + text(b""))]
    write("gguf", "empty", file([], [], b""))
    write("gguf", "values", file(numbers + arrays + texts, [], b""))
    write("gguf", "tensors", file([], [tensor(b"a", [3, 2], 0, 0), tensor(b"b", [32, 1, 1, 2], 2, 32), tensor(b"c", [64], 42, 96)],
                                  bytes(range(128))))
    write("gguf", "alignment", file([entry(b"general.alignment", 4, struct.pack("<I", 8))], [tensor(b"a", [4], 1, 0)],
                                    bytes(8), 8))
    write("gguf", "claims", b"GGUF" + struct.pack("<IQQ", 3, 1 << 63, 1))


def decoders():
    folder = os.path.join(FOLDER, "decoder")
    os.makedirs(folder, exist_ok=True)
    for name, sizes in (("one", {}), ("heads", {"heads": 4, "key_heads": 2, "blocks": 2})):
        sizes = {"vocabulary": 5, "width": 8, "hidden": 4, "heads": 2, "key_heads": 1, **sizes}
        gguf_files.write_llama(os.path.join(folder, "seed-" + name), 1, **sizes)


def folders():
    """Of transformers: config.json, and the header and the bytes of the weights."""
    sizes = {"vocabulary": 5, "width": 8, "hidden": 4, "heads": 2, "key_heads": 1, "files": 1}
    rotation = {"rope_type": "llama3", "factor": 8, "low_freq_factor": 1, "high_freq_factor": 4,
                "original_max_position_embeddings": 16}
    for name, more in (("one", {}), ("heads", {"heads": 4, "key_heads": 2, "blocks": 2, "tied": False}),
                       ("rotation", {"rope_parameters": rotation, "head_dim": 4})):
        with tempfile.TemporaryDirectory() as folder:
            huggingface_files.write_folder(folder, 1, **{**sizes, **more})
            with open(os.path.join(folder, "config.json"), "rb") as file:
                config = file.read()
            with open(os.path.join(folder, "model-00001-of-00001.safetensors"), "rb") as file:
                data = file.read()
            length, = struct.unpack_from("<Q", data)
            write("huggingface", name, config + b"\0" + data[8:8 + length] + b"\0" + data[8 + length:])
    template = {"type": "Sequence", "processors": [{"type": "ByteLevel"}, {"type": "TemplateProcessing", "single": [
        {"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]}]}
    control = [{"id": 0, "content": "<s>", "special": True}, {"id": 4, "content": "and", "special": False}]
    for name, decoder, token in (("bytes", {"type": "ByteLevel"}, "\u0120a"),
                                 ("pieces", {"type": "Sequence", "decoders": [{"type": "ByteFallback"}]}, "\u2581a")):
        write("tokenizer", name, json.dumps({"post_processor": template, "added_tokens": control, "decoder": decoder,
                                             "model": {"type": "BPE", "vocab": {"<s>": 0, token: 1, "<0x0A>": 2}}}))


def datasets():
    for name, inputs, targets, data in (
            ("labels", ("U8", [3, 2]), ("I64", [3]), bytes(24) + bytes(range(6))),
            ("images", ("U8", [2, 2, 2, 1]), ("U8", [2]), bytes(range(10))),
            ("values", ("F32", [2, 2]), ("F32", [2]), struct.pack("<6f", 1, -2, 0.5, 3, 4, 5)),
            ("halves", ("F16", [2, 2]), ("F16", [2, 1]), struct.pack("<6e", 1, -2, 0.5, 3, 4, 5))):
        tensors = [("inputs", *inputs), ("targets", *targets)]
        tensors.sort(key=lambda t: -BYTES[t[1]])
        write("safetensors_dataset", name, header_of(tensors)[0].encode() + b"\0" + data)


def idx():
    images = struct.pack(">4I", 0x803, 2, 3, 2) + bytes(range(12))
    labels = struct.pack(">2I", 0x801, 3) + bytes([0, 9, 255])
    for name, data in (("images", images), ("labels", labels)):
        write("idx", name, data)
        write("idx", name + "-gzip", gzip.compress(data, mtime=0))
    write("idx", "claims", struct.pack(">4I", 0x803, 65535, 28, 28))


def cifar10():
    write("cifar10", "one", bytes([7]) + bytes(range(64)))
    write("cifar10", "two", bytes([0]) + bytes(64) + bytes([9]) + bytes([255] * 64))
    write("cifar10", "label", bytes([10]) + bytes(64))


def png(width, height, bits, kind, rows, more=b""):
    def chunk(name, body):
        return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))

    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">2I5B", width, height, bits, kind, 0, 0, 0)) + more +
            chunk(b"IDAT", zlib.compress(rows, 9)) + chunk(b"IEND", b""))


def images():
    write("image", "grey.png", png(2, 2, 8, 0, b"\0\1\2\0\3\4"))
    write("image", "deep.png", png(1, 1, 16, 4, b"\0\x12\x34\xff\xff"))
    write("image", "palette.png", png(3, 1, 2, 3, b"\0\x18", struct.pack(">I4s9BI", 9, b"PLTE", *range(9), zlib.crc32(
        b"PLTE" + bytes(range(9))))))
    header = struct.pack("<2sIIIIiiHHIIIIII", b"BM", 0, 0, 54, 40, 2, -2, 1, 24, 0, 0, 0, 0, 0, 0)
    write("image", "colour.bmp", header + bytes(range(16)))
    header = struct.pack("<2sIIIIiiHHIIIIII", b"BM", 0, 0, 62, 40, 9, 1, 1, 1, 0, 0, 0, 0, 2, 0)
    write("image", "bilevel.bmp", header + bytes(range(8)) + bytes([0xA5, 0x80, 0, 0]))
    # The smallest baseline JPEG of one block, and a lossless WebP of one pixel.
    write("image", "grey.jpeg", bytes.fromhex(
        "ffd8ffe1002245786966000049492a00080000000100120103000100000006000000000000" "00ffdb004300" + "01" * 64 +
        "ffc0000b080001000101011100ffc40014000100000000000000000000000000000009ffc4001410010000000000000000000000000000"
        "0000ffda0008010100003f0054dfffd9"))
    write("image", "one.webp", bytes.fromhex("524946461a000000574542505650384c0d0000002f00000010071011118888fe0700"))


def tables():
    write("csv", "quotes", 'a,"b ""c""\n",d\r\n1,2,3\r\n,,\n"x"')
    write("csv", "tabs", "\ufeffa\tb\n\n1\t2\r3\t4")
    write("csv", "open", 'a,b\n1,"2\n')

    def table(name, kind, target, categories, ignore, missing, text):
        write("table", name, "\0".join((kind, target, categories, ignore, missing, text)))

    rows = "length,colour,note,kind\n1.5,red,x,rose\nNA,white,,lily\n-2e3,red,\"y, z\",rose\n"
    table("classes", ",c", "kind", "colour", "note", "NA", rows)
    table("semicolons", ";r", "kind", "", "", "", "a;kind\n1;2\n3;4.5\n")
    table("marks", "\tm", "x y", "", "", "", "x\ty\tz\n0\t1\t7\n1\t1\t-7\n")
    table("texts", ",t", "text", "", "", "", "a,text\n1,abc\n2,\n3,\u00e9\n")


def npy(dtype, shape, data):
    header = str({"descr": dtype, "fortran_order": False, "shape": shape}).encode()
    header += b" " * (63 - (10 + len(header)) % 64) + b"\n"
    return b"\x93NUMPY\1\0" + struct.pack("<H", len(header)) + header + data


def arrays():
    inputs, targets = npy("<f2", (2, 3), bytes(range(12))), npy("|i1", (2,), b"\0\1")
    write("npy", "bytes", npy("|u1", (2, 2, 2), bytes(range(8))))
    write("npy", "doubles", npy("<f8", (1, 1), struct.pack("<d", 0.5)))
    for name, method in (("stored", zipfile.ZIP_STORED), ("packed", zipfile.ZIP_DEFLATED)):
        raw = io.BytesIO()
        with zipfile.ZipFile(raw, "w", method) as archive:
            for member, data in (("inputs.npy", inputs), ("targets.npy", targets)):
                info = zipfile.ZipInfo(member, (1980, 1, 1, 0, 0, 0))
                info.compress_type = method
                with archive.open(info, "w", force_zip64=True) as file:
                    file.write(data)
        write("npy", name, raw.getvalue())


def torch_archives():
    sys.path.insert(0, os.path.join(os.path.dirname(FOLDER), ".."))
    from support import torch_files

    values = struct.pack("<6f", *range(6))
    state, storages = torch_files.state_dict({"w": ("F32", [2, 3], values), "n": ("I64", [], struct.pack("<q", 7))})
    strided = torch_files.entries({"t": torch_files.tensor("F32", "0", 6, [3, 2], [1, 3]),
                                   "c": torch_files.tensor("F32", "0", 6, [2], [3], 1)})
    training = torch_files.entries({"epoch": b"K\x03", "best": b"G?\xf8" + bytes(6), "args": b"](N\x88K\1e", "model": state})
    write("torch_file", "state", torch_files.archive(state, storages))
    write("torch_file", "strided", torch_files.archive(strided, {"0": values}))
    write("torch_file", "packed", torch_files.archive(training, storages, zipfile.ZIP_DEFLATED))
    write("torch_file", "types", torch_files.archive(*torch_files.state_dict(
        {d: (d, [1], b"\1" + bytes(size - 1)) for d, size in torch_files.SIZES.items()})))
    write("torch_file", "refused", torch_files.archive(b"cposix\nsystem\n(" + torch_files.text("true") + b"tR", {}))


def archives():
    for name, form in (("ustar", tarfile.USTAR_FORMAT), ("gnu", tarfile.GNU_FORMAT), ("pax", tarfile.PAX_FORMAT)):
        raw = io.BytesIO()
        with tarfile.open(fileobj=raw, mode="w", format=form) as archive:
            for member, data in (("a.png", b"x"), ("a.cls", b"cat"), ("f/" + "n" * 90 + ".cls" * (5 if name != "ustar" else 1), b"")):
                info = tarfile.TarInfo(member)
                info.size = len(data)
                archive.addfile(info, io.BytesIO(data))
        write("tar", name, raw.getvalue().rstrip(b"\0") + bytes(1024))


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def event_record(data):
    def masked(text):
        crc = crc32c(text)
        return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)
    length = struct.pack("<Q", len(data))
    return length + masked(length) + data + masked(data)


VERSION = event_record(b"\x09" + bytes(8) + b"\x1a\x0dbrain.Event:2")


def events():
    value = b"\x0a\x0atrain/loss\x15" + struct.pack("<f", 0.5)
    scalar = b"\x09" + bytes(8) + b"\x10\x0a\x2a" + bytes([len(value) + 2]) + b"\x0a" + bytes([len(value)]) + value
    whole = VERSION + event_record(scalar)
    write("event_file", "whole", whole)
    write("event_file", "cut", whole[:-3])
    write("event_file", "values", b"\x04\x01\x80\x3f" + b"loss" + b"\x00\x02\x00\x40" + b"\x03\x05")


LINES = [{"type": "step", "step": 10, "epoch": 1, "loss": 2.5, "lr": 0.02},
         {"type": "step", "step": 20, "epoch": 2, "loss": 1.5, "lr": 1e-05},
         {"type": "epoch", "step": 20, "epoch": 2, "train_loss": 1.25, "validation": {"loss": 1.0, "top1": 50.0},
          "oscillating_weights_percent": 0.5, "frozen_weights_percent": 0.0,
          "rank_seconds": {"compute": [2.5, 2.25], "reduce": [0.5, 0.75], "wait": [0.25, 0.5],
                           "batches": [0.125, 0.25], "making": [1.5, 1.75]}, "seconds": 3.5},
         {"type": "test", "step": 20, "loss": 0.75, "top1": 62.5, "seconds": 4.0}]
DIVERGED = {"type": "diverged", "step": 5, "what": "step 5: loss is nan", "seconds": 1.0}
SUMMARY = {"name": "run", "device": "cpu", "seed": 0, "epochs": 6, "steps": 20, "seconds": 4.0,
           "final": {"loss": 0.75, "top1": 62.5}, "best": {"epoch": 2, "loss": 1.0, "top1": 50.0}}
WORK = {"seconds": 0.001, "kernels": 1, "multiply_adds": 1000, "integer_multiply_adds": 0}
PROFILE = {"run": "run", "device": "cpu", "threads": 1, "batch_size": 10, "first_step": 5, "steps": 2, "seconds": 0.004,
           "data_seconds": 0.0, "batches": {"seconds": 0.02, "waited": 0.005, "making": 0.001},
           "watched_seconds": 0.005, "page_faults": 0.0, "peak_bytes": 1000,
           "rates": {"multiply_adds": 1e9, "integer_multiply_adds": 1e9, "bytes": 1e9},
           "layers": [{"layer": "fc", "type": "Linear", "forward_bound": 1e-6, "backward_bound": 1e-6, "saved_bytes": 40,
                       "forward_bytes": 80, "backward_bytes": 90, "work": {"product": WORK, "update": WORK}}]}


def metrics():
    text = "".join(json.dumps(line) + "\n" for line in LINES)
    for name, steps, epochs, lines, tail in (("all", 255, 255, text, VERSION), ("some", 10, 1, text, b""),
                                             ("cut", 20, 2, text[:-20], VERSION[:-1]),
                                             ("diverged", 9, 9, text + json.dumps(DIVERGED) + "\n", b"")):
        write("metrics_log", name, bytes([steps, epochs]) + lines.encode() + b"\0" + tail)
    write("report", "finished", text + "\0" + json.dumps(SUMMARY) + "\0" + json.dumps(PROFILE))
    write("report", "diverged", text + json.dumps(DIVERGED) + "\n\0")
    write("report", "large", text.replace("2.5", "1e308").replace("1.5", "-1e308") + "\0{}")


def quantization(scale, zero_point=0, dtype="u8"):
    low = -128 if dtype == "i8" else 0
    return {"scale": scale, "zero_point": zero_point, "qmin": low, "qmax": low + 255, "dtype": dtype}


def write_graph(name, graph, tensors, data):
    """For `graph` its parts, for `deployed` the file; each gives the checksums that it needs."""
    text = json.dumps(graph, separators=(",", ":"))
    write("graph", name, b"\0".join([text.encode(), header_of(tensors)[0].encode(), data]))
    write("deployed", name, file_of(tensors, {"kind": "integer-model", "graph_version": "1", "graph": text}, data))


def graphs():
    """A network of every operation, one packed linear, one in float."""
    values, nodes, tensors, data = [], [], [], b""

    def value(name, shape, **q):
        values.append({"name": name, "shape": shape, **({"quantization": quantization(**q)} if q else {})})
        return len(values) - 1

    def node(op, inputs, output, activation="none", **more):
        nodes.append({"op": op, "name": values[output]["name"], "inputs": inputs, "output": output,
                      "activation": activation, **more})

    def weights(name, *parts):
        nonlocal data
        for suffix, dtype, shape, raw in parts:
            tensors.append((name + suffix, dtype, shape))
            data += raw

    def pair(a, b):
        return {"stride": [1, 1], "padding": [a, b]}

    values_of = struct.pack
    x = value("input", [4, 4, 1])
    q = value("q", [4, 4, 1], scale=0.05, zero_point=60)
    node("quantize", [x], q)
    c = value("conv", [4, 4, 2], scale=0.1)
    node("conv2d", [q], c, "relu", weight_shape=[2, 1, 3, 3], weight_bits=8, product="integer", groups=1,
         dilation=[1, 1], **pair(1, 1))
    weights("conv", (".weight", "I8", [2, 1, 3, 3], bytes((i * 29) % 256 for i in range(18))),
            (".weight_scale", "F32", [2], values_of("<2f", 0.01, 0.02)), (".bias", "I32", [2], values_of("<2i", 40, -40)))
    a = value("add", [4, 4, 2], scale=0.2)
    node("add", [c, c], a, "relu6")
    j = value("concat", [4, 4, 4], scale=0.15, zero_point=3)
    node("concat", [a, c], j)
    m = value("max", [2, 2, 4], scale=0.15, zero_point=3)
    node("max_pool2d", [j], m, kernel=[2, 2], stride=[2, 2], padding=[0, 0])
    p = value("avg", [3, 3, 4], scale=0.1)
    node("avg_pool2d", [m], p, kernel=[2, 2], stride=[1, 1], padding=[1, 1])
    r = value("relu", [3, 3, 4], scale=0.1)
    node("relu", [p], r)
    r6 = value("relu6", [3, 3, 4], scale=0.1)
    node("relu6", [r], r6)
    f = value("flat", [36], scale=0.1)
    node("flatten", [r6], f)
    g = value("global", [4], scale=0.12)
    node("global_avg_pool", [r6], g)
    n = value("narrow", [3], scale=0.3, zero_point=0, dtype="i8")
    node("linear", [g], n, weight_shape=[3, 4], weight_bits=4, product="integer")
    weights("narrow", (".weight", "U8", [6], bytes([0x17, 0xF2, 0x8A, 0x01, 0x33, 0xC5])),
            (".weight_scale", "F32", [3], values_of("<3f", 0.01, 0.02, 0.03)))
    o = value("logits", [2])
    node("linear", [n], o, weight_shape=[2, 3], weight_bits=32, product="float")
    weights("logits", (".weight", "F32", [2, 3], values_of("<6f", 1, -1, 0.5, 2, 0, 1)),
            (".bias", "F32", [2], values_of("<2f", 0.5, -0.5)))
    graph = {"name": "all", "input": x, "output": o, "classifies": True, "values": values, "nodes": nodes,
             "preprocessing": {"dtype": "u8", "mean": [0.5], "stddev": [0.25]}}
    write_graph("all", graph, tensors, data)

    small = {"name": "small", "input": 0, "output": 2, "classifies": False,
             "preprocessing": {"dtype": "f32", "mean": [], "stddev": []},
             "values": [{"name": "input", "shape": [3]}, {"name": "q", "shape": [3], "quantization": quantization(0.1, 7)},
                        {"name": "fc", "shape": [2], "quantization": quantization(0.5, 100)}],
             "nodes": [{"op": "quantize", "name": "q", "inputs": [0], "output": 1, "activation": "none"},
                       {"op": "linear", "name": "fc", "inputs": [1], "output": 2, "activation": "relu",
                        "weight_shape": [2, 3], "weight_bits": 8, "product": "integer"}]}
    small["target"] = "labels"
    small["preprocessing"]["table"] = {"columns": [{"name": "colour", "categories": ["red", "blue"]}, {"name": "x", "missing": 0.5}],
                                       "target": ["a"], "missing": ["NA"], "delimiter": "tab"}
    write_graph("linear", small, [("fc.weight", "I8", [2, 3]), ("fc.weight_scale", "F32", [2])],
                bytes([1, 255, 128, 127, 5, 6]) + values_of("<2f", 0.5, 0.25))


RECORDED = """version: 1
seed: 3
data: {dataset: safetensors, batch_size: 10, normalize: {mean: [0.5], std: [0.25]}}
model: {classes: 4, layers: [{type: Flatten}, {type: Linear, name: fc, out_features: 4}]}
train: {epochs: 6, optimizer: {type: sgd, lr: 0.02}}
"""


def records():
    image = {"dtype": "u8", "sample": [6, 6, 1], "classes": 4, "mean": [0.5], "std": [0.25], "sha256": "0" * 64}
    plain = {"dtype": "f32", "sample": [3], "classes": 0, "mean": [], "std": [], "sha256": ""}
    quantize = "quantize: {groups: [{targets: [Linear], weights: {num_bits: 4}, activations: {}}]}\n"
    for name, data, recipe in (("image", image, RECORDED), ("quantized", image, RECORDED + quantize),
                               ("values", plain, RECORDED.replace("train: {", "train: {distill: {checkpoint: a}, "))):
        write("run_record", name, json.dumps(data, separators=(",", ":")) + "\0" + recipe)


def quantizer_states():
    observers = ("min_max", "moving_average", "histogram", "percentile", "moving_percentile", "mse", "fixed", "entropy")
    for kind, name in enumerate(observers):  # in the order of observers/registry.cpp
        for group, way in ((0, "calibrated"), (2, "clipping"), (5, "weights")):
            write("quantizer_state", f"{name}-{way}", bytes([kind + group * len(observers), 0, 3, 0x3F, 1, 0, 1]))


def texts():
    for i, text in enumerate(("12", "-0", "1e-08", "9223372036854775808", "true", "cuda:1", "auto", "num_bit", "0.5E+300",
                              "\x1b[31m\u00e9\xff")):
        write("scalars", str(i), text)
    write("yaml", "kinds", "a: 1\nb: [x, 'y', \"z\\n\", null]\nc: {d: {}, e: []}\nf:\n  - g: 1e-8\n    h: |\n      text\n  - - 2\n")
    write("yaml", "refused", "a: &x 1\nb: *x\n")
    write("overrides", "values", "train.epochs=3\ndata.augment=[flip, random_crop]\nquantize.groups.0.weights.num_bits=4\n")
    write("overrides", "tables", "model.layers.3.out_features=7\nschedule.freeze_bn.epoch=2\nexport=null\n--seed=5\n")
    write("overrides", "options", "train.optimizer={type: adamw, lr: 1e-3}\ntrain.clip_grad_norm=1\ninit.checkpoint=a b\n")


def networks():
    sys.path.insert(0, os.path.join(os.path.dirname(FOLDER), ".."))
    from support import onnx_files as onnx

    whole = onnx.squeeze_excite()
    write("onnx", "squeeze-excite", b"\x01" + whole)
    write("onnx", "truncated", b"\x01" + whole[:900])
    rows = [onnx.port("x", ["N", 2])], [onnx.port("y", ["N", 2])]
    write("onnx", "shapes", b"\x00" + onnx.model(
        [onnx.node("Shape", ["x"], "s"), onnx.node("Slice", ["s", "zero", "one"], "n"),
         onnx.node("Concat", ["n", "two"], "to", axis=0), onnx.node("Reshape", ["x", "to"], "r"),
         onnx.node("Mul", ["r", "w"], "y")],
        [onnx.tensor("zero", [1], [0]), onnx.tensor("one", [1], [1]), onnx.tensor("two", [1], [2]),
         onnx.tensor("w", [2], [0.5, -2.0])], *rows))
    # What an export says of its data.
    images = '{"dtype":"u8","scale":"1/255","mean":[0.5],"stddev":[0.25],"transforms":{"resize_shorter":8,"centre_crop":[4,4],' \
        '"interpolation":"bilinear","grey":true}}'
    table = '{"dtype":"f32","mean":[0.5,1.0],"stddev":[0.25,2.0],"table":{"columns":[{"name":"a","missing":1.5},' \
        '{"name":"b","categories":["x"]}],"target":["y"],"missing":["?"],"delimiter":"semicolon"}}'
    for name, preprocessing, others in (("data", images, [("class_names", '["a","b"]')]), ("table", table, [("target", "values")])):
        write("onnx", name, b"\x00" + onnx.model([onnx.node("Relu", ["x"], "y")], [], *rows, producer="steelyard",
                                                 metadata=[("preprocessing", preprocessing), *others]))
    write("onnx", "cycle", b"\x00" + onnx.model([onnx.node("Relu", ["z"], "y"), onnx.node("Relu", ["y"], "z")], [], *rows))
    write("onnx", "huge", b"\x00" + onnx.model(
        [onnx.node("ConstantOfShape", ["s"], "c"), onnx.node("Add", ["x", "c"], "y")],
        [onnx.tensor("s", [2], [1 << 40, 1 << 40])], *rows))
    write("onnx", "images", b"\x02" + onnx.model(
        [onnx.node("Transpose", ["x"], "t", perm=[0, 2, 3, 1]), onnx.node("ReduceMean", ["t"], "m", axes=[1], keepdims=0),
         onnx.node("Pad", ["m", "pads"], "p"), onnx.node("Softmax", ["p"], "y", axis=-1)],
        [onnx.tensor("pads", [6], [0, 1, 0, 0, 0, 2])], [onnx.port("x", ["N", 3, "h", "w"])], [onnx.port("y", ["N", 5, 5])]))
    # What no file may have, or has in another type or size than its name says.
    write("onnx", "domain", b"\x00" + onnx.model([onnx.node("Linear", ["x", "w"], "y", domain="steelyard")],
                                                 [onnx.tensor("w", [2], [0.5, -2.0])], *rows))
    write("onnx", "constant", b"\x00" + onnx.model([onnx.node("Constant", [], "c", value_float=3), onnx.node("Mul", ["x", "c"], "y")], [], *rows))
    write("onnx", "folded", b"\x00" + onnx.model(
        [onnx.node("Constant", [], "c", value_ints=[2, 0]), onnx.node("Neg", ["c"], "n"), onnx.node("Cast", ["n"], "b", to=9),
         onnx.node("Range", ["from", "to", "step"], "r"), onnx.node("Gather", ["x", "r"], "g", axis=1),
         onnx.node("Where", ["b", "g", "zero"], "y")],
        [onnx.tensor("from", [], [0]), onnx.tensor("to", [], [2]), onnx.tensor("step", [], [1]), onnx.tensor("zero", [], [0.0])], *rows))
    image = [onnx.port("x", ["N", 2, 4, 4])], [onnx.port("y", ["N", 2, 8, 8])]
    write("onnx", "conv_transpose", b"\x01" + onnx.model(
        [onnx.node("ConvTranspose", ["x", "w"], "y", strides=[2, 2], pads=[0, 0, 0, 0], dilations=[1, 1], output_padding=[0, 0], group=2)],
        [onnx.tensor("w", [2, 1, 2, 2], [0.5] * 8)], *image))
    for name, opset, inputs in (("resize", 13, ["x", "", "s"]), ("resize10", 10, ["x", "s"])):
        attributes = {"coordinate_transformation_mode": "half_pixel", "nearest_mode": "floor"} if opset > 10 else {}
        write("onnx", name, b"\x01" + onnx.model([onnx.node("Resize", inputs, "y", mode="nearest", **attributes)],
                                                 [onnx.tensor("s", [4], [1.0, 1.0, 2.0, 1.5])], *image, opset=opset))
    port = {"name": "x", "batch": "N", "channels_last": False}
    node = {"name": "a", "type": "Clamp", "inputs": ["input"], "options": {"lo": -1.0, "hi": 2.5}}
    network = {"format": 1, "input": port, "output": port, "sample": [3], "output_sample": [3], "head": "Softmax", "nodes": [node]}
    write("network", "clamp", json.dumps(network))
    axis = {"height_repeats": 2, "height_in": 2, "height_out": 4, "width_repeats": 0, "width_in": 1, "width_out": 2,
            "width_weights": {"reals": [1, 1]}}
    network.update(sample=[2, 1, 1], output_sample=[4, 2, 1], head="", nodes=[{**node, "type": "Resize", "options": axis}])
    write("network", "resize", json.dumps(network))
    network.update(input={**port, "free": [[0, "height"], [1, ""]]}, output={**port, "free": [[0, ""]]})
    write("network", "free_sizes", json.dumps(network))


if __name__ == "__main__":
    for old in glob.glob(os.path.join(FOLDER, "*", "seed-*")):
        os.remove(old)
    for make in (safetensors, training_state, gguf, decoders, folders, datasets, idx, cifar10, images, tables, arrays, torch_archives, archives, events, metrics, records, quantizer_states, graphs, texts, networks):
        make()
