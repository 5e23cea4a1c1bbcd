"""Files of the machine with their types by extension, as the numbers that magika reads: its first and last bytes."""
import hashlib
import json
import os
import random

import numpy as np

ROOTS = ("/usr", "/etc", "/var/lib")
BLOCK, KEPT, PADDING = 4096, 1024, 256
SMALLEST = 32  # bytes of a file; magika itself asks for 8
# magika's label by extension, where the extension leaves no doubt.
LABELS = {"bat": "batch", "c": "c", "cc": "cpp", "cmake": "cmake", "cpp": "cpp", "crt": "pem",
          "css": "css", "csv": "csv", "el": "lisp", "exe": "pebin", "f": "fortran", "f90": "fortran", "gif": "gif", "go": "go",
          "gz": "gzip", "hpp": "cpp", "html": "html", "ini": "ini", "jar": "jar", "java": "java", "jpg": "jpeg", "js": "javascript",
          "json": "json", "lua": "lua", "m4": "m4", "md": "markdown", "mk": "makefile", "npy": "npy", "npz": "npz", "otf": "otf",
          "pas": "pascal", "pem": "pem", "php": "php", "pl": "perl", "pm": "perl", "png": "png", "po": "po", "pod": "perl",
          "pp": "pascal", "proto": "proto", "ps": "postscript", "ps1": "powershell", "py": "python", "pyc": "pythonbytecode",
          "pyi": "python", "rb": "ruby", "rst": "rst", "sh": "shell", "so": "elf", "sql": "sql", "svg": "svg", "tcl": "tcl",
          "tar": "tar", "toml": "toml", "ts": "typescript", "ttf": "ttf", "wav": "wav", "whl": "zip", "xml": "xml", "xsd": "xml",
          "xz": "xz", "yaml": "yaml", "yml": "yaml", "zip": "zip"}


def numbers_of(path):
    """The first and the last bytes other than white space, with PADDING where a file has fewer."""
    with open(path, "rb") as file:
        first = file.read(BLOCK)
        file.seek(max(0, os.path.getsize(path) - BLOCK))
        last = file.read(BLOCK)
    first, last = first.lstrip()[:KEPT], last.rstrip()[-KEPT:]
    return [*first, *[PADDING] * (KEPT - len(first)), *[PADDING] * (KEPT - len(last)), *last]


def paths_by_label(known):
    """Regular files of ROOTS with an extension of the table, sorted."""
    found = {}
    for root in ROOTS:
        for folder, _, names in os.walk(root):
            for name in names:
                label = LABELS.get(os.path.splitext(name)[1][1:].lower())
                path = os.path.join(folder, name)
                if label in known and not os.path.islink(path) and os.path.isfile(path) and os.path.getsize(path) >= SMALLEST:
                    found.setdefault(label, []).append(path)
    return {label: sorted(paths) for label, paths in sorted(found.items())}


def gather(config, seed, most, least):
    """Inputs f32 [N, 2048], targets i64 [N] and the labels' names, shuffled: at most so many files of a label, none of labels
    with too few or of content that was there already. config: magika's, with the order of its outputs."""
    with open(config, encoding="utf-8") as file:
        order = json.load(file)["target_labels_space"]
    generator, seen, chosen = random.Random(seed), set(), []
    for label, paths in paths_by_label(order).items():
        generator.shuffle(paths)
        rows = []
        for path in paths:
            try:
                numbers = numbers_of(path)
            except OSError:
                continue
            digest = hashlib.sha256(repr(numbers).encode()).digest()
            if digest not in seen and len(rows) < most:
                seen.add(digest)
                rows.append((numbers, order.index(label)))
        chosen += rows if len(rows) >= least else []
    generator.shuffle(chosen)
    return np.array([row for row, _ in chosen], np.float32), np.array([label for _, label in chosen], np.int64), order
