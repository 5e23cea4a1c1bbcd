"""Steelyard inside a PyTorch training loop: ``model = steelyard.torch.Module(model, example, "recipe.yaml")`` for whole
models, ``steelyard.torch.quantize_(model, recipe)`` for linear and embedding layers in place."""

from .compressed import export
from .gguf import export_gguf, load_gguf
from .module import Module
from .quantize import QuantizedEmbedding, QuantizedLinear, calibrate, parameter_groups, plan, quantize_, quantizers
from .quantizers import ActivationQuantizer, Quantizer, WeightQuantizer
from .ranges import agree_on_ranges
from .schedule import Schedule

__all__ = [
    "ActivationQuantizer", "Module", "QuantizedEmbedding", "QuantizedLinear", "Quantizer", "Schedule", "WeightQuantizer",
    "agree_on_ranges", "calibrate", "export", "export_gguf", "load_gguf", "parameter_groups", "plan", "quantize_", "quantizers",
]
