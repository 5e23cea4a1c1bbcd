"""Steelyard inside a PyTorch training loop: ``model = steelyard.torch.Module(model, example, "recipe.yaml")``."""

from .module import Module
from .ranges import agree_on_ranges
from .schedule import Schedule

__all__ = ["Module", "Schedule", "agree_on_ranges"]
