"""The error of every call."""

from __future__ import annotations

INVALID_ARGUMENT = 1
INVALID_INPUT = 2
OUT_OF_MEMORY = 3
NO_DEVICE = 4
NOT_FINITE = 5
FAILED = 6


class Error(RuntimeError):
    """What the library or this package refuses, in one line: what was expected and what was given.

    ``status`` is the library's: 1 an argument, 2 a recipe or file, 3 out of memory, 4 no such device, 5 values that are
    not finite, 6 anything else.
    """

    def __init__(self, message: str, status: int = INVALID_ARGUMENT) -> None:
        super().__init__(message)
        self.status = status

    def __reduce__(self):
        return (Error, (str(self), self.status))
