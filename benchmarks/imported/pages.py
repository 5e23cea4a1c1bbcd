"""Small pages of lines of text with the mask of their text, shrunk as PaddleOCR's detection expects it."""
import numpy as np
from PIL import Image, ImageDraw

from imported.text_lines import colours, degraded, drawn

SHRINK = 0.4  # of regions of text: arXiv:1911.08947, section 3.4


def shrunk(left, top, right, bottom):
    """The box without a border as wide as area * (1 - SHRINK ^ 2) / perimeter."""
    width, height = right - left, bottom - top
    border = width * height * (1 - SHRINK ** 2) / (2 * (width + height))
    return left + border, top + border, right - border, bottom - border


def page(lines, height, width):
    """(pixels u8 [height, width, 3], mask u8 [height, width]) with one to four lines of a source of lines."""
    generator = lines.generator
    paper, ink = colours(generator, (150 - 130 * lines.strength, 200))
    image, mask = Image.new("RGB", (width, height), paper), Image.new("L", (width, height), 0)
    row = generator.randint(4, 20)
    while True:
        rows = generator.randint(14, 32)
        if row + rows + 4 > height:
            break
        line = drawn(lines.text(), lines.font(), paper, ink, generator, 0)
        line = line.resize((min(width - 8, max(8, round(line.width * rows / line.height))), rows), Image.Resampling.BILINEAR)
        left = generator.randint(4, width - 4 - line.width)
        image.paste(line, (left, row))
        inside = [round(edge) for edge in shrunk(left, row, left + line.width, row + rows)]
        ImageDraw.Draw(mask).rectangle((inside[0], inside[1], inside[2] - 1, max(inside[1], inside[3] - 1)), fill=1)
        row += rows + generator.randint(6, 30)
    return degraded(image, generator, lines.strength)[:, :, ::-1], np.asarray(mask)
