"""What a user of a model's outputs would see of a difference: boxes, classes, decisions and masks, instead of numbers.

A judge is what judge.json of a model's folder holds:
    {"kind": "boxes", "layout": "yolov8", "threshold": 0.25, "iou": 0.45, "size": [320, 320], ...}
        boxes above the threshold after non-maximum suppression (classes apart unless "agnostic"); the layouts are below
    {"kind": "classes", "outputs": [...]}               the largest of the last axis: classes, frames of a reader, tags of words
    {"kind": "decisions", "outputs": [...], "threshold": 0.5}   each number is above the threshold or it is not
    {"kind": "mask", "outputs": [...], "threshold": 0.3}        the elements above the threshold, intersection over union
Without "outputs" all outputs are judged. The agreement is that of the worst output.
"""
import numpy

MATCHED = 0.5  # the least overlap of two boxes that are one


def overlaps(box, boxes):
    """Intersection over union of one box with each of [n, 4]; corners."""
    low, high = numpy.maximum(box[:2], boxes[:, :2]), numpy.minimum(box[2:], boxes[:, 2:])
    shared = numpy.prod(numpy.clip(high - low, 0, None), axis=1)
    areas = numpy.prod(numpy.clip(boxes[:, 2:] - boxes[:, :2], 0, None), axis=1)
    return shared / numpy.maximum(areas + numpy.prod(numpy.clip(box[2:] - box[:2], 0, None)) - shared, 1e-9)


def corners(middle):
    """[n, 4] of middles and sizes, as corners."""
    return numpy.concatenate([middle[:, :2] - middle[:, 2:] / 2, middle[:, :2] + middle[:, 2:] / 2], axis=1)


def cells(size, stride):
    """x and y of the cells of a grid, row by row: [n, 2]."""
    y, x = numpy.mgrid[0:-(-size[1] // stride), 0:-(-size[0] // stride)]
    return numpy.stack([x, y], axis=-1).reshape(-1, 2)


def yolov8(judge, outputs):
    """[4 + classes, anchors]: middles and sizes, and scores."""
    rows = next(iter(outputs.values())).reshape(-1, next(iter(outputs.values())).shape[-1]).T
    return corners(rows[:, :4]), rows[:, 4:]


def yolox(judge, outputs):
    """[anchors, 5 + classes] in units of the cells of three strides; scores are products with that of an object."""
    rows = next(iter(outputs.values()))
    rows = rows.reshape(-1, rows.shape[-1])
    grid = numpy.concatenate([numpy.concatenate([cells(judge["size"], s), numpy.full((len(cells(judge["size"], s)), 1), s)], axis=1)
                              for s in judge["strides"]])
    sizes = numpy.exp(numpy.clip(rows[:, 2:4], -20, 20))
    middle = numpy.concatenate([rows[:, :2] + grid[:, :2], sizes], axis=1) * grid[:, 2:]
    return corners(middle), rows[:, 4:5] * rows[:, 5:]


def centerface(judge, outputs):
    """Maps of a fourth of the size: scores of middles, logarithms of sizes (height, width), offsets (y, x)."""
    scores, sizes, offsets = (outputs[name].reshape(outputs[name].shape[-3:]) for name in judge["outputs"])
    y, x = numpy.mgrid[0:scores.shape[1], 0:scores.shape[2]]
    high, wide = numpy.exp(numpy.clip(sizes, -20, 20)) * 4
    middle = numpy.stack([(x + offsets[1] + 0.5) * 4, (y + offsets[0] + 0.5) * 4, wide, high], axis=-1).reshape(-1, 4)
    return corners(middle), scores.reshape(-1, 1)


def picodet(judge, outputs):
    """For each stride scores [cells, classes] and distributions [cells, 4 * bins] of the distances to the four sides."""
    boxes, scores = [], []
    for stride, of_scores, of_sides in zip(judge["strides"], judge["scores"], judge["sides"]):
        sides = outputs[of_sides].reshape(len(cells(judge["size"], stride)), 4, -1)
        weights = numpy.exp(sides - sides.max(-1, keepdims=True))
        distances = (weights * numpy.arange(sides.shape[-1])).sum(-1) / weights.sum(-1) * stride
        middle = (cells(judge["size"], stride) + 0.5) * stride
        boxes.append(numpy.concatenate([middle - distances[:, :2], middle + distances[:, 2:]], axis=1))
        scores.append(outputs[of_scores].reshape(len(middle), -1))
    return numpy.concatenate(boxes), numpy.concatenate(scores)


LAYOUTS = {"yolov8": yolov8, "yolox": yolox, "centerface": centerface, "picodet": picodet}


def boxes_of(judge, outputs):
    """(boxes [n, 4], classes [n]) of one image that remain, the surest first; outputs: arrays by name."""
    boxes, scores = LAYOUTS[judge["layout"]](judge, outputs)
    classes, best = scores.argmax(axis=1), scores.max(axis=1)
    order = numpy.argsort(-best, kind="stable")
    order = order[best[order] > judge["threshold"]][:3000]
    boxes, classes = boxes[order], classes[order]
    boxes = numpy.clip(boxes, 0, numpy.array(judge["size"] * 2))
    kept, open_ = [], numpy.ones(len(boxes), bool)
    for i in range(len(boxes)):
        if open_[i]:
            kept.append(i)
            same = numpy.ones(len(boxes), bool) if judge.get("agnostic") else classes == classes[i]
            open_ &= ~(same & (overlaps(boxes[i], boxes) > judge["iou"]))
    return boxes[kept], classes[kept]


def matches(one, other):
    """How many boxes of one have a partner of the same class in the other: greedily, the surest first, each once."""
    free, count = numpy.ones(len(other[0]), bool), 0
    for box, kind in zip(*one):
        overlap = overlaps(box, other[0]) * (free & (other[1] == kind)) if len(free) else numpy.zeros(1)
        if overlap.max(initial=0) >= MATCHED:
            free[overlap.argmax()] = False
            count += 1
    return count


def of_boxes(judge, expected, found):
    count = {"float": 0, "boxes": 0, "matched": 0}
    for i in range(len(next(iter(expected.values())))):
        first, second = (boxes_of(judge, {name: values[i] for name, values in each.items()}) for each in (expected, found))
        count["float"] += len(first[0])
        count["boxes"] += len(second[0])
        count["matched"] += matches(first, second)
    both = count["float"] + count["boxes"]
    return {"agreement": 200 * count["matched"] / both if both else 100., **count}


def agreement(judge, x, y):
    if judge["kind"] == "classes":
        return float(100 * (x.argmax(-1) == y.argmax(-1)).mean())
    x, y = x > judge["threshold"], y > judge["threshold"]
    if judge["kind"] == "decisions":
        return float(100 * (x == y).mean())
    either = (x | y).sum()
    return float(100 * (x & y).sum() / either) if either else 100.


def judged(judge, expected, found):
    """{"kind", "agreement" in percent, ...}; expected and found: arrays [samples, ...] of outputs by name. None where an output
    that the judge reads is missing."""
    names = judge.get("outputs") or judge.get("scores", []) + judge.get("sides", []) or list(expected)
    if any(name not in found for name in names):
        return None
    if judge["kind"] == "boxes":
        return {"kind": "boxes", **of_boxes(judge, {n: expected[n] for n in names}, {n: found[n] for n in names})}
    return {"kind": judge["kind"], "agreement": min(agreement(judge, expected[name], found[name]) for name in names)}
