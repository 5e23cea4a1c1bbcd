"""The shows: models that others trained, their data, and the cells that each is measured in."""
import dataclasses

from imported import data_sets, readers


@dataclasses.dataclass(frozen=True)
class Cell:
    """One way to a model: imported, calibrated or trained by the show's recipe with these keys set."""

    name: str
    verb: str  # import, calibrate or train
    sets: tuple = ()
    quantized: bool = True


@dataclasses.dataclass(frozen=True)
class Show:
    name: str  # of its recipe, recipes/<name>.yaml, too
    title: str
    model: str  # a file of tests/import/fetch_models.py
    maker: object  # its data
    samples: tuple  # for training (validation included) and for the test
    metric: object  # of readers.py
    key: str  # the metric in a run's summary
    goal: float  # points that training in W8A8 may lose against the same training in float
    verified: int  # samples of `steelyard verify`, whose interpreter is not made for speed
    cells: tuple


OBSERVERS = ("min_max", "histogram", "percentile", "mse")
CORRECTIONS = {"": "{batches: 16}", "equalized": "{batches: 16, equalize: true}",
               "corrected": "{batches: 16, bias_correction: SAMPLES}",
               "both": "{batches: 16, equalize: true, bias_correction: SAMPLES}"}
RANGES = "calibrate={batches: 16, freeze: true}"  # measured before training, and kept


def eight_bits(observer):
    return (f"quantize.groups.0.activations.observer={observer}",)


def four_bits(observer):
    """Weights of 4 bits, but for the first and the last layer of the direction's model."""
    activations = f"activations: {{num_bits: 8, symmetric: false, observer: {observer}}}"
    return (f"quantize.groups=[{{targets: [conv1, fc_0], weights: {{num_bits: 8}}, {activations}}}, "
            f"{{targets: [Conv2d, Linear], weights: {{num_bits: 4, observer: mse}}, {activations}}}]",)


def calibrated(width, observer, correction="", samples=512):
    name = "-".join(part for part in (f"ptq-{width}", observer, correction) if part)
    widths = {"w8a8": eight_bits, "w4a8": four_bits}
    correct = CORRECTIONS[correction].replace("SAMPLES", str(samples))
    return Cell(name, "calibrate", (*widths[width](observer), f"calibrate={correct}"))


def every_observer(best, samples=512):
    """Calibrated to W8A8 with each observer; the corrections with one of them, of biases by so many samples."""
    return (*(calibrated("w8a8", observer) for observer in OBSERVERS),
            *(calibrated("w8a8", best, correction, samples) for correction in CORRECTIONS if correction))


# Batch norms stay as they are, as in quantized training, which folds them; or are trained with the rest.
TUNED = Cell("float-tuned", "train", ("quantize=null", "schedule.freeze_bn.epoch=0"), quantized=False)
TUNED_NORMS = Cell("float-tuned-norms", "train", ("quantize=null",), quantized=False)
IMPORTED = Cell("float", "import", (), quantized=False)
W8A8 = Cell("qat-w8a8", "train")
W8A8_RANGES = Cell("qat-w8a8", "train", (RANGES,))
W8A8_STARTED = Cell("qat-w8a8", "train", ("calibrate={batches: 16}",))  # measured before training, and followed
W8A8_LEARNED = Cell("qat-w8a8-lsq", "train", (*W8A8_STARTED.sets, "quantize.algorithm.method=lsq"))
W4A8 = Cell("qat-w4a8", "train", ("quantize.groups.0.weights.num_bits=4", "quantize.groups.0.weights.observer=mse"))
W4A8_LEARNED = Cell("qat-w4a8-lsq", "train", (*four_bits("min_max"), "quantize.algorithm.method=lsq"))

SHOWS = {show.name: show for show in (
    Show("direction", "Text direction: PP-OCR's classifier", "ch_ppocr_mobile_v2.0_cls_infer.onnx", data_sets.direction,
         (4500, 4000), readers.Top1, "top1", 0.3, 200,
         (IMPORTED, W8A8, TUNED, W4A8, W4A8_LEARNED, TUNED_NORMS, *every_observer("histogram"),
          *(calibrated("w4a8", "histogram", correction) for correction in CORRECTIONS))),
    Show("recognition", "Reading lines: PP-OCR's recognition v4", "ch_PP-OCRv4_rec_infer.onnx", data_sets.recognition,
         (2300, 600), readers.CharacterErrors, "cer", 0.2, 16, (IMPORTED, W8A8_LEARNED, TUNED, *every_observer("histogram"))),
    Show("file-types", "Types of files: magika", "magika.onnx", data_sets.files,
         (4400, 1500), readers.Top1, "top1", 0.3, 64,
         (dataclasses.replace(IMPORTED, sets=("model.classes=214",)), W8A8_RANGES,
          dataclasses.replace(TUNED, sets=("quantize=null",)),  # it has no batch norm
          *every_observer("histogram"))),
    Show("detection", "Where text is: PP-OCR's detection v4", "ch_PP-OCRv4_det_infer.onnx", data_sets.detection,
         (350, 100), readers.PixelF1, "loss", None, 8, (IMPORTED, W8A8_STARTED, TUNED, *every_observer("histogram", samples=256))),
)}
