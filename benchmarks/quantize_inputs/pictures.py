"""Photographs and pages, as the models of images read them."""
import io

import numpy as np
from PIL import Image

from quantize_inputs import photos
from quantize_inputs.lines import IMAGENET

CAFFE = np.array([104, 117, 123], np.float32)


def mixed(context, part, count, size, with_people):
    """Photographs: so large a share of them with people; of things that were cut out, some before other photographs."""
    people, others = photos.people(context.sources, part), photos.photos(context.sources, part)
    things = photos.stamps(context.sources) if part == "inputs" else []
    for i in range(count):
        if i < with_people * count:
            image = photos.opened_up(context.random, people[i % len(people)], others, size)
        elif things and context.random.random() < 0.5:
            thing = context.random.choice(things)
            image = photos.cropped(context.random, context.random.choice(others), size)
            image = photos.tilted(context.random, thing, image, size, context.random.uniform(0.4, 0.95))
        else:
            image = photos.cropped(context.random, others[i % len(others)], size)
        yield photos.taken(context.random, image, 0.6)


def nudenet(context, part, count):
    """320 x 320, red first, from 0 to 1, black on the right or below."""
    rows = [photos.boxed(image, 320, (0, 0, 0), corner=True)[0] for image in mixed(context, part, count, (320, 256), 0.8)]
    return np.array([photos.pixels_of(image) for image in rows], np.float32) / 255, None


def faces(context, part, count):
    """320 x 320, red first, bytes as they are."""
    return np.array([photos.pixels_of(image) for image in mixed(context, part, count, (320, 320), 0.85)], np.float32), None


def decent(context, part, count):
    """224 x 224, blue first, the mean of ImageNet taken off, after a loss of JPEG."""
    rows = []
    for image in mixed(context, part, count, (256, 256), 0.3):
        stored = io.BytesIO()
        image.crop((16, 16, 240, 240)).save(stored, "JPEG")
        rows.append(photos.pixels_of(Image.open(stored))[:, :, ::-1] - CAFFE)
    return np.array(rows, np.float32), None


def layouts(context, part, count, make):
    pages = photos.pages(context.sources, part)
    pages = context.random.sample(pages, len(pages))
    return np.array([make(photos.taken(context.random, pages[i % len(pages)], 0.3)) for i in range(count)], np.float32), None


def doclaynet(context, part, count):
    """1024 x 1024, red first, from 0 to 1, the page in the middle of grey."""
    return layouts(context, part, count, lambda page: photos.pixels_of(photos.boxed(page, 1024, (114, 114, 114))[0]) / 255)


def cdla(context, part, count):
    """800 x 608, stretched, blue first, normalized as ImageNet."""
    def make(page):
        pixels = photos.pixels_of(page.resize((608, 800), Image.Resampling.BILINEAR))[:, :, ::-1]
        return (pixels / 255 - IMAGENET[0]) / IMAGENET[1]

    return layouts(context, part, count, make)


def boxes_found(outputs, labels, judge):
    """How many boxes there are, in how many images; with labels how many of them are found."""
    from quantize_judge import boxes_of, overlaps

    boxes = [boxes_of(judge, {name: values[i] for name, values in outputs.items()})[0] for i in range(len(next(iter(outputs.values()))))]
    text = f"{sum(map(len, boxes))} boxes in {sum(len(b) > 0 for b in boxes)} of {len(boxes)} images"
    if labels:
        right = [overlaps(wanted, got).max(initial=0) > 0.5 for all_wanted, got in zip(labels, boxes) for wanted in all_wanted]
        text += f"; {100 * np.mean(right):.0f} % of those drawn"
    return text


def verdicts(outputs, labels):
    scores = next(iter(outputs.values())).reshape(-1, 2)[:, 1]
    return f"{100 * (scores < 0.5).mean():.0f} % of the photographs are called decent, scores from {scores.min():.3f} to {scores.max():.3f}"
