"""Rendered text: lines, scenes, pages and captchas, degraded as a camera would; the held part has other fonts, texts and photographs."""
import random
import sys

import numpy as np
from PIL import Image, ImageDraw, ImageFilter, ImageFont

from quantize_inputs import photos, words
from quantize_inputs.sources import found

FONTS = {"inputs": ("dejavu/DejaVuS*.ttf", "freefont/Free*.ttf"), "held": ("liberation/Liberation*.ttf",)}
CHINESE_FONTS = {"inputs": "usr/share/fonts/truetype/wqy/wqy-microhei.ttc", "held": "usr/share/fonts/truetype/arphic/ukai.ttc"}
IMAGENET = np.array([0.485, 0.456, 0.406], np.float32), np.array([0.229, 0.224, 0.225], np.float32)


class Writer:
    """Draws texts of manuals in random fonts and colours."""

    def __init__(self, context, part, chinese=0.4):
        self.random, self.chinese = context.random, chinese
        tree = context.sources.debian("fonts-dejavu-core", "fonts-dejavu-extra", "fonts-freefont-ttf", "fonts-liberation",
                                      "fonts-wqy-microhei", "fonts-arphic-ukai")
        self.latin = found(tree, *("usr/share/fonts/truetype/" + name for name in FONTS[part]), without=("*Math*", "*Symbol*"))
        self.asian = found(tree, CHINESE_FONTS[part])[0]
        self.texts = words.english(context.sources, part), words.chinese(context.sources, part)
        self.photos = photos.photos(context.sources, part)

    def text(self, longest):
        """(text, whether it is Chinese); no longer than so many letters of usual width."""
        if self.random.random() < self.chinese:
            text = self.random.choice(self.texts[1])
            at = self.random.randrange(max(1, len(text) - 4))
            return text[at:at + self.random.randint(2, max(2, longest // 2))], True
        if self.random.random() < 0.2:
            number, code = f"{self.random.randrange(10 ** self.random.randint(3, 8)):,}", f"No. {self.random.randrange(10000)}"
            day, month, year = self.random.randint(1, 28), self.random.randint(1, 12), self.random.randint(1990, 2030)
            return self.random.choice((number, code, f"{day}.{month}.{year}")), False
        every = self.random.choice(self.texts[0]).split()
        at = self.random.randrange(len(every))
        text = every[at]
        for word in every[at + 1:at + self.random.randint(1, 5)]:
            text += " " + word if len(text) + len(word) < longest else ""
        return text[:longest], False

    def font(self, asian, size):
        return ImageFont.truetype(self.asian if asian else self.random.choice(self.latin), size)

    def colours(self):
        """Ink, paper."""
        low = self.random.uniform(0, 150)
        high = self.random.uniform(low + 80, 255)
        pair = [tuple(round(min(255, max(0, level + self.random.uniform(-25, 25)))) for _ in range(3)) for level in (low, high)]
        return pair if self.random.random() < 0.75 else pair[::-1]

    def drawn(self, text, asian, size):
        """RGBA: ink on nothing."""
        font = self.font(asian, size)
        left, top, right, bottom = font.getbbox(text)
        room = size // 6
        image = Image.new("RGBA", (right - left + 2 * room, bottom - top + 2 * room), self.ink + (0,))
        ImageDraw.Draw(image).text((room - left, room - top), text, font=font, fill=self.ink + (255,))
        return image

    def line(self, longest, size=44):
        """(a line as it is cut out of a photograph or scan, text)."""
        text, asian = self.text(longest)
        self.ink, paper = self.colours()
        image = self.drawn(text, asian, size)
        if self.random.random() < 0.4:
            ground = photos.cropped(self.random, self.random.choice(self.photos), image.size, 0.1)
            ground = Image.blend(ground, Image.new("RGB", ground.size, paper), self.random.uniform(0.45, 0.9))
        else:
            ground = Image.new("RGB", image.size, paper)
        ground = ground.convert("RGBA")
        ground.alpha_composite(image)
        ground = ground.convert("RGB").rotate(self.random.uniform(-2, 2), Image.Resampling.BILINEAR, fillcolor=paper)
        share = self.random.uniform(0.35, 1)
        small = ground.resize((max(8, round(ground.width * share)), max(8, round(ground.height * share))), Image.Resampling.BOX)
        return photos.taken(self.random, small.resize(ground.size, Image.Resampling.BILINEAR)), text


def letters_found(outputs, labels, characters):
    """The share of lines that are read as they were written, and that of equal letters."""
    import difflib

    frames = next(iter(outputs.values())).reshape(len(labels), -1, len(characters)).argmax(-1)
    whole, alike = 0, []
    for row, text in zip(frames, labels):
        read = "".join(characters[c] for i, c in enumerate(row) if c and (i == 0 or c != row[i - 1])).replace(" ", "")
        wanted = text.replace(" ", "")
        whole += read == wanted
        alike.append(difflib.SequenceMatcher(None, read, wanted, autojunk=False).ratio())
    return f"{100 * whole / len(labels):.0f} % of the lines read, {100 * np.mean(alike):.0f} % of the letters"


def reading(context, part, count, wide=320):
    """Lines of 48 rows, blue first, from -1 to 1, with 0 behind them, as the package pads."""
    writer, rows, labels = Writer(context, part), [], []
    while len(rows) < count:
        image, text = writer.line(20)
        width = round(image.width * 48 / image.height)
        if width <= wide:
            pixels = photos.pixels_of(image.resize((width, 48), Image.Resampling.BILINEAR))[:, :, ::-1] / 127.5 - 1
            rows.append(np.pad(pixels, ((0, 0), (0, wide - width), (0, 0))))
            labels.append(text)
    return np.array(rows, np.float32), labels


def lines_read(outputs, labels, context):
    import onnxruntime

    session = onnxruntime.InferenceSession(context.model, providers=["CPUExecutionProvider"])
    return letters_found(outputs, labels, ["", *session.get_modelmeta().custom_metadata_map["character"].splitlines(), " "])


def directions(context, part, count):
    """Lines of 48 x 192, half of them upside down: class 1."""
    writer, rows, labels = Writer(context, part), [], []
    for _ in range(count):
        image, _ = writer.line(16)
        width = min(192, max(16, round(image.width * 48 / image.height)))
        turned = context.random.randrange(2)
        pixels = photos.pixels_of(image.resize((width, 48)).rotate(180 * turned))[:, :, ::-1] / 127.5 - 1
        rows.append(np.pad(pixels, ((0, 0), (0, 192 - width), (0, 0))))
        labels.append(turned)
    return np.array(rows, np.float32), labels


def classes_right(outputs, labels):
    scores = next(iter(outputs.values())).reshape(len(labels), -1)
    return f"{100 * (scores.argmax(1) == labels).mean():.1f} % of the classes right"


def scene(context, writer, pages, size):
    """(a photograph with a page or signs in it, boxes of the signs or None): (width, height)."""
    ground = photos.cropped(context.random, context.random.choice(writer.photos), size)
    ink = Image.new("L", size)
    if pages and context.random.random() < 0.4:
        page = photos.cropped_page(context.random, context.random.choice(pages), size)
        return photos.taken(context.random, photos.tilted(context.random, page, ground, size, context.random.uniform(0.8, 1.1)), 0.6), None
    canvas, signs = ground.convert("RGBA"), []
    for _ in range(context.random.randint(1, 7)):
        text, asian = writer.text(22)
        writer.ink, paper = writer.colours()
        image = writer.drawn(text, asian, context.random.randint(14, 44))
        if image.width > size[0] or image.height > size[1]:
            continue
        if context.random.random() < 0.6:
            plate = Image.new("RGBA", image.size, paper + (context.random.randint(120, 255),))
            plate.alpha_composite(image)
            image = plate
        image = image.rotate(context.random.uniform(-12, 12), Image.Resampling.BICUBIC, expand=True)
        at = context.random.randint(0, max(0, size[0] - image.width)), context.random.randint(0, max(0, size[1] - image.height))
        here = ink.crop((*at, at[0] + image.width, at[1] + image.height))
        if np.asarray(here).any():
            continue
        canvas.alpha_composite(image.crop((0, 0, size[0] - at[0], size[1] - at[1])), at)
        signs.append((*at, min(size[0], at[0] + image.width), min(size[1], at[1] + image.height)))
        ink.paste(255, signs[-1])
    return photos.taken(context.random, canvas.convert("RGB"), 0.7), signs


def scenes(context, part, count, size=(480, 320)):
    writer = Writer(context, part)
    pages = photos.pages(context.sources, part)
    every = [scene(context, writer, pages, size) for _ in range(count)]
    return np.array([photos.pixels_of(image) for image, _ in every], np.float32), [signs for _, signs in every]


def text_regions(context, part, count):
    """For PP-OCR: blue first, from -1 to 1."""
    pixels, labels = scenes(context, part, count)
    return pixels[..., ::-1] / np.float32(127.5) - 1, labels


def text_maps(context, part, count):
    """For CRAFT: red first, normalized as ImageNet."""
    pixels, labels = scenes(context, part, count)
    return (pixels / 255 - IMAGENET[0]) / IMAGENET[1], labels


def signs_found(outputs, labels):
    """How many signs have marks, and how much there is of marks elsewhere; of the scenes whose signs are known."""
    values, marked, around = next(iter(outputs.values())), [], []
    for value, signs in zip(values.reshape(len(values), *values.shape[-3:]), labels):
        if signs is not None:
            marks = value[0] > 0.3  # of CRAFT's two maps that of letters
            step, elsewhere = 480 // marks.shape[1], np.ones(marks.shape, bool)
            for left, top, right, bottom in signs:
                place = slice(top // step, -(-bottom // step)), slice(left // step, -(-right // step))
                marked.append(marks[place].mean() > 0.02)
                elsewhere[place] = False
            around.append(marks[elsewhere].mean())
    return f"{100 * np.mean(marked):.0f} % of {len(marked)} signs are marked, and {100 * np.mean(around):.1f} % of what is around them"


def turned_pages(context, part, count):
    """Pages in one of four directions; the shorter side 256, the middle 224, normalized as ImageNet."""
    pages = photos.pages(context.sources, part)
    rows, labels = [], []
    for _ in range(count):
        image = photos.cropped_page(context.random, context.random.choice(pages), None)
        turn = context.random.randrange(4)
        image = photos.taken(context.random, image.rotate(-90 * turn, expand=True), 0.6)
        scale = 256 / min(image.size)
        image = image.resize((round(image.width * scale), round(image.height * scale)), Image.Resampling.LANCZOS)
        left, top = (image.width - 224) // 2, (image.height - 224) // 2
        rows.append((photos.pixels_of(image.crop((left, top, left + 224, top + 224))) / 255 - IMAGENET[0]) / IMAGENET[1])
        labels.append(turn)
    return np.array(rows, np.float32), labels


class CaptchaWriter:
    """The generator of the package captcha, which is what many services use, seeded."""

    def __init__(self, context, part, width, height):
        folder = context.sources.wheel("captcha==0.7.1")
        if folder not in sys.path:
            sys.path.append(folder)
        from captcha.image import ImageCaptcha

        random.seed(context.random.getrandbits(64))  # it draws from the common source, and other systems' secrets from the system's
        self.writer = ImageCaptcha(width, height)

    def next(self, text):
        return self.writer.generate_image(text).convert("RGB")


def captcha_texts(context, part, count):
    """60 x 160, blue first, bytes as they are."""
    writer = CaptchaWriter(context, part, 160, 60)
    labels = ["".join(context.random.choices("123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ", k=4)) for _ in range(count)]
    return np.array([photos.pixels_of(writer.next(text))[:, :, ::-1] for text in labels], np.float32), labels


def captchas_read(outputs, labels):
    scores = outputs["logits"]  # [samples, steps, 1, classes]; the package never chooses class 0
    scores = scores.reshape(len(labels), -1, scores.shape[-1])[:, :19, 1:].argmax(-1) + 1
    listed, right, letters = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ", 0, []
    for row, text in zip(scores, labels):
        read = "".join(listed[c] for i, c in enumerate(row) if c != 36 and (i == 0 or c != row[i - 1]))
        right += read == text
        letters.append(len(read) == len(text) and np.mean([a == b for a, b in zip(read, text)]))
    return f"{100 * right / len(labels):.0f} % of the captchas read, {100 * np.mean(letters):.0f} % of the letters"


def captcha_digits(context, part, count):
    """50 x 155, red first, from 0 to 1: five digits in black on white, bold, as the network reads best: the bank's own pictures are
    not to be had, and rendered ones are read far less surely than those must be."""
    writer, rows, labels = Writer(context, part), [], []
    bold = [path for path in writer.latin if "Bold." in path and "Sans" in path]
    for _ in range(count):
        text = "".join(context.random.choices("0123456789", k=5))
        font = ImageFont.truetype(context.random.choice(bold), context.random.randint(24, 34))
        canvas = Image.new("RGB", (155, 50), "white")
        left, top, right, bottom = font.getbbox(text)
        at = context.random.randint(4, max(5, 150 - right)), (50 - bottom - top) // 2 + context.random.randint(-4, 4)
        ImageDraw.Draw(canvas).text(at, text, font=font, fill=tuple(context.random.randint(0, 40) for _ in range(3)))
        image = canvas.rotate(context.random.uniform(-2, 2), Image.Resampling.BICUBIC, fillcolor="white")
        rows.append(photos.pixels_of(image.filter(ImageFilter.GaussianBlur(context.random.uniform(0, 0.7)))) / 255)
        labels.append(text)
    return np.array(rows, np.float32), labels


def digits_read(outputs, labels):
    read = np.stack([outputs[f"digit_{i}"].reshape(len(labels), 10).argmax(-1) for i in range(5)], axis=1)
    wanted = np.array([[int(c) for c in text] for text in labels])
    sure = np.mean([outputs[f"digit_{i}"].max(-1).mean() for i in range(5)])
    return f"{100 * (read == wanted).mean():.0f} % of the digits read, mean probability of the first {sure:.2f}"


def clicks(context, writer, size):
    """(a photograph with three to six characters to be clicked, their boxes)."""
    canvas = photos.cropped(context.random, context.random.choice(writer.photos), size).convert("RGBA")
    boxes = []
    for _ in range(context.random.randint(3, 6)):
        text, _ = writer.text(8)
        asian = context.random.random() < 0.8
        letter = context.random.choice(context.random.choice(writer.texts[1])) if asian else text[0]
        writer.ink = tuple(context.random.randint(0, 255) for _ in range(3))
        image = writer.drawn(letter, asian, context.random.randint(size[1] // 7, size[1] // 4)).rotate(
            context.random.uniform(-40, 40), Image.Resampling.BICUBIC, expand=True)
        image = image.crop(image.getbbox() or (0, 0, 1, 1))
        at = context.random.randint(0, max(1, size[0] - image.width)), context.random.randint(0, max(1, size[1] - image.height))
        box = (*at, at[0] + image.width, at[1] + image.height)
        if all(box[0] > b[2] + 4 or b[0] > box[2] + 4 or box[1] > b[3] + 4 or b[1] > box[3] + 4 for b in boxes) and image.width > 8:
            outlined(canvas, image, at, tuple(255 - c for c in writer.ink))
            boxes.append(box)
    return canvas.convert("RGB"), boxes


def click_captchas(context, part, count):
    """416 x 416, blue first, bytes as they are, grey below: as the package pads."""
    writer, rows, labels = Writer(context, part), [], []
    for _ in range(count):
        size = context.random.choice(((344, 384), (300, 150), (320, 180), (400, 200), (340, 340)))
        image, boxes = clicks(context, writer, size)
        scale = min(416 / image.width, 416 / image.height)
        canvas = np.full((416, 416, 3), 114, np.float32)
        shape = int(image.width * scale), int(image.height * scale)
        image = photos.taken(context.random, image, 0.4).resize(shape, Image.Resampling.BILINEAR)
        canvas[:image.height, :image.width] = photos.pixels_of(image)[:, :, ::-1]
        rows.append(canvas)
        labels.append(np.array(boxes, np.float32).reshape(-1, 4) * scale)
    return np.array(rows, np.float32), labels


def icon_pairs(context, part, count):
    """60 x 60, twice, red first, from 0 to 1: a character to be clicked and one in a photograph, half of the time another."""
    writer, first, second, labels = Writer(context, part), [], [], []
    for i in range(count):
        letters = context.random.sample(sorted(set(context.random.choice(writer.texts[1]))), 2)
        same = i % 2
        writer.ink = (0, 0, 0)
        image = writer.drawn(letters[0], True, 40)
        shown = Image.new("RGBA", image.size, "white")
        shown.alpha_composite(image)
        writer.ink = (255, 255, 255)
        image = writer.drawn(letters[1 - same], True, 40).rotate(context.random.uniform(-15, 15), Image.Resampling.BICUBIC, expand=True)
        ground = photos.cropped(context.random, context.random.choice(writer.photos), image.size, 0.1).convert("RGBA")
        ground = outlined(ground, image, (0, 0), (0, 0, 0))
        for rows, icon in ((first, shown), (second, ground)):
            rows.append(photos.pixels_of(photos.boxed(icon.convert("RGB"), 60, (128, 128, 128))[0]) / 255)
        labels.append(same)
    return {"input_1": np.array(first, np.float32), "input_2": np.array(second, np.float32)}, labels


def outlined(canvas, letter, at, edge):
    """The canvas with a letter whose outline has another colour."""
    below = Image.new("RGBA", letter.size, edge + (0,))
    below.putalpha(letter.getchannel("A").filter(ImageFilter.MaxFilter(3)))
    for layer in (below, letter):
        canvas.alpha_composite(layer, at)
    return canvas


def pairs_told(outputs, labels):
    scores, same = next(iter(outputs.values())).ravel(), np.array(labels) == 1
    above, right = (scores[same][:, None] > scores[~same]).mean(), ((scores > 0.5) == same).mean()
    return f"{100 * above:.0f} % of the equal pairs score above unequal ones, {100 * right:.0f} % told apart at .5"
