"""Lines of text with exact labels: drawn in Debian's fonts, then degraded as a poor camera would."""
import glob
import os
import random

import numpy as np
from PIL import Image, ImageDraw, ImageFilter, ImageFont

FONTS = "/usr/share/fonts/truetype"  # of the packages fonts-dejavu-extra, fonts-liberation and fonts-freefont-ttf
FAMILIES = ("dejavu/DejaVuSans", "dejavu/DejaVuSerif", "liberation/Liberation", "freefont/Free")
TEXTS = "/usr/share/common-licenses"  # of every Debian machine
PRINTABLE = "".join(map(chr, range(33, 127)))


def fonts():
    found = sorted(path for family in FAMILIES for path in glob.glob(os.path.join(FONTS, family + "*.ttf")))
    missing = [family for family in FAMILIES if not any(f"/{family}" in path for path in found)]
    if missing:
        raise SystemExit(f"no fonts {', '.join(missing)} in {FONTS}: Debian's packages fonts-dejavu-extra, fonts-liberation and "
                         "fonts-freefont-ttf have them")
    return [ImageFont.truetype(path, 40) for path in found]


def words():
    """English words as they stand in the licences of Debian's packages."""
    names = sorted(name for name in os.listdir(TEXTS) if not os.path.islink(os.path.join(TEXTS, name)))
    text = " ".join(open(os.path.join(TEXTS, name), encoding="utf-8").read() for name in names)
    return [word for word in text.split() if len(word) <= 14 and all(c in PRINTABLE for c in word) and word.isascii()]


def text_of(generator, known, longest):
    """One to three consecutive words, a number, a date or a code, of at most so many characters."""
    kind = generator.random()
    if kind < 0.08:
        return f"{generator.randrange(10 ** generator.randint(3, 9)):,}"
    if kind < 0.14:
        return f"{generator.randint(1990, 2030)}-{generator.randint(1, 12):02}-{generator.randint(1, 28):02}"
    if kind < 0.2:
        letters = "".join(generator.choices("ABCDEFGHJKLMNPRSTUVWXYZ", k=generator.randint(2, 3)))
        return f"{letters}-{generator.randrange(10000):04}"
    while True:
        first = generator.randrange(len(known) - 3)
        text = " ".join(known[first:first + generator.randint(1, 3)])
        if 4 <= len(text) <= longest:
            return text.upper() if generator.random() < 0.1 else text


def colours(generator, contrast):
    """Those of paper and ink, in this order or, at times, the other; contrast: the least and the largest difference."""
    difference = generator.uniform(*contrast)
    dark = generator.uniform(10, 245 - difference)
    pair = [tuple(min(255, max(0, round(level + generator.uniform(-15, 15)))) for _ in range(3))
            for level in (dark, dark + difference)]
    return pair if generator.random() < 0.2 else pair[::-1]


def drawn(text, font, paper, ink, generator, rotation):
    """The text on its paper, cut out with little room around it: a Pillow image."""
    left, top, right, bottom = font.getbbox(text)
    room = [generator.randint(*limits) for limits in ((0, 4), (0, 4), (2, 10), (2, 10))]
    size = right - left + room[0] + room[1], bottom - top + room[2] + room[3]
    image = Image.new("RGB", size, paper)
    ImageDraw.Draw(image).text((room[0] - left, room[2] - top), text, font=font, fill=ink)
    return image.rotate(generator.uniform(-rotation, rotation), Image.Resampling.BILINEAR, expand=True, fillcolor=paper)


def placed(image, paper, size, generator):
    """The line at the height of its place, squeezed if it is too wide; somewhere on the paper if it is not."""
    width, height = size
    wide = min(width, max(8, round(image.width * height / image.height)))
    canvas = Image.new("RGB", size, paper)
    canvas.paste(image.resize((wide, height), Image.Resampling.BILINEAR), (generator.randint(0, width - wide), 0))
    return canvas


def degraded(image, generator, strength):
    """Loses resolution, is blurred and gets noise; strength 1 is hard to read."""
    share = generator.uniform(1 - 0.85 * strength, 1)
    small = image.resize((max(4, round(image.width * share)), max(4, round(image.height * share))), Image.Resampling.BOX)
    image = small.resize(image.size, Image.Resampling.BILINEAR)
    image = image.filter(ImageFilter.GaussianBlur(generator.uniform(0, 4 * strength)))
    pixels = np.asarray(image, np.float32)
    noise = np.random.default_rng(generator.getrandbits(64)).normal(size=pixels.shape) * generator.uniform(0, 50 * strength)
    return np.clip(np.rint(pixels + noise), 0, 255).astype(np.uint8)


class Lines:
    """A source of lines; test lines have other words than training lines."""

    def __init__(self, split, seed, strength, longest):
        every = words()
        cut = len(every) * 4 // 5
        self.words = every[:cut] if split == "train" else every[cut:]
        self.generator = random.Random(f"{seed} {split}")
        self.fonts, self.strength, self.longest = fonts(), strength, longest

    def text(self):
        return text_of(self.generator, self.words, self.longest)

    def font(self):
        return self.generator.choice(self.fonts)

    def next(self, height, width):
        """(pixels u8 [height, width, 3], text); channels are blue first, as PaddleOCR's models read them."""
        text = self.text()
        paper, ink = colours(self.generator, (150 - 130 * self.strength, 200))
        image = drawn(text, self.font(), paper, ink, self.generator, 6 * self.strength)
        line = placed(image, paper, (width, height), self.generator)
        return degraded(line, self.generator, self.strength)[:, :, ::-1], text
