"""Prints tests/framework/metric_values.h: small predictions, and what scikit-learn 1.9.1 says of them.

usage: write_metric_values.py > tests/framework/metric_values.h; needs scikit-learn.
"""
import random

import sklearn
from sklearn import metrics

N, CLASSES, LABELS, COLUMNS = 60, 7, 4, 3
rng = random.Random(11)


def array(name, values, kind):
    body = ", ".join(repr(value) if kind == "double" else f"{float(value)}F" if kind == "float" else f"{value}" for value in values)
    print(f"inline constexpr {kind} {name}[] = {{{body}}};")


def number(name, value):
    print(f"inline constexpr double {name} = {float(value)!r};")


print("// Written by tests/reference/write_metric_values.py with scikit-learn", sklearn.__version__)
print("#pragma once\n\n#include <cstdint>\n\n// clang-format off\nnamespace steelyard::testing::metric_values {\n")
# Scores of classes with ties; the last class is predicted and never there.
labels = [rng.randrange(CLASSES - 1) for _ in range(N)]
scores = [[round(rng.random() + 0.4 * (c == label), 1) for c in range(CLASSES)] for label in labels]
predicted = [row.index(max(row)) for row in scores]
array("kLabels", labels, "std::int64_t")
array("kScores", sum(scores, []), "float")
# Ties go to the class that comes first, as ours do: scikit-learn orders equal scores by their place too, from behind.
nudged = [[value - 1e-9 * c for c, value in enumerate(row)] for row in scores]
number("kTop1", metrics.accuracy_score(labels, predicted))
number("kTop5", metrics.top_k_accuracy_score(labels, nudged, k=5, labels=range(CLASSES)))
for name, f in (("Precision", metrics.precision_score), ("Recall", metrics.recall_score), ("F1", metrics.f1_score)):
    number(f"k{name}", f(labels, predicted, average="macro", zero_division=0))
    array(f"k{name}OfClasses", [float(v) for v in f(labels, predicted, average=None, labels=range(CLASSES), zero_division=0)], "double")
array("kConfusion", metrics.confusion_matrix(labels, predicted, labels=range(CLASSES)).ravel().tolist(), "std::int64_t")
# Marks of several labels, and logits with ties.
marks = [[rng.randrange(3) // 2 for _ in range(LABELS)] for _ in range(N)]
logits = [[round(rng.gauss(2 * mark - 1, 1.5), 1) for mark in row] for row in marks]
said = [[int(value > 0) for value in row] for row in logits]
array("kMarks", sum(marks, []), "float")
array("kLogits", sum(logits, []), "float")
number("kMap", metrics.average_precision_score(marks, logits, average="macro"))
for name, f in (("Precision", metrics.precision_score), ("Recall", metrics.recall_score), ("F1", metrics.f1_score)):
    number(f"kMarks{name}", f(marks, said, average="macro", zero_division=0))
# Regression.
targets = [[round(rng.gauss(0, c + 1), 2) for c in range(COLUMNS)] for _ in range(N)]
outputs = [[round(value + rng.gauss(0, 0.7), 2) for value in row] for row in targets]
array("kTargets", sum(targets, []), "float")
array("kOutputs", sum(outputs, []), "float")
number("kR2", metrics.r2_score(targets, outputs))
print("\n}  // namespace steelyard::testing::metric_values\n// clang-format on")
