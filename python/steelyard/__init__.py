"""Steelyard: quantization-aware training whose integer model computes what was trained.

``steelyard.Network`` takes NumPy's and DLPack's arrays, ``steelyard.torch.Module`` stands in a PyTorch training loop,
``steelyard.verify`` compares with the deployed model, ``steelyard.report`` makes a run's page. The command line is
``steelyard`` or ``python3 -m steelyard``.
"""

import importlib
from typing import Any

from ._error import Error
from ._library import version as __version__
from ._program import report, run, verify
from ._tensor import Tensor
from .network import Network, Pass, Verification



def __getattr__(name: str) -> Any:
    if name == "torch":  # loaded where it is asked for: NumPy alone is enough for the rest
        return importlib.import_module(".torch", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = ["Error", "Network", "Pass", "Tensor", "Verification", "__version__", "report", "run", "verify"]
