"""What the model's tests are about: an answer that is not the model's."""

from __future__ import annotations

__all__ = ["Difference", "same"]


class Difference(AssertionError):
    """The server answered otherwise than the model."""


def same(what: str, server: object, model: object) -> None:
    """Raise ``Difference`` unless both print the same: 1, 1.0 and True are three values."""
    if repr(server) != repr(model):
        raise Difference(f"{what}:\n  server: {server!r}\n  model:  {model!r}")
