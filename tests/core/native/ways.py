"""Both ways to do a step: the kernel with nothing beside it, and Python alone."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable
from typing import TypeVar, cast

import pytest

from rowtide.core import native
from rowtide.core.native import Kernels
from rowtide.core.records.record import CorruptRecord
from rowtide.core.values.errors import StoreError

__all__ = ["KERNELS", "needs_kernels", "outcome", "python"]

T = TypeVar("T")


def _kernels() -> Kernels | None:
    """Return the compiled module, or the copy of it that ROWTIDE_KERNELS names."""
    path = os.environ.get("ROWTIDE_KERNELS")
    if not path:
        return native.load_compiled()
    spec = importlib.util.spec_from_file_location("rowtide.core.native._kernels", path)
    assert spec is not None, path
    assert spec.loader is not None, path
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return cast(Kernels, module)


_FOUND = _kernels()
KERNELS = cast(Kernels, _FOUND)
needs_kernels = pytest.mark.skipif(_FOUND is None, reason="no compiled kernels are installed")


def python(step: Callable[[], T]) -> T:
    """Return what Python alone makes of a step."""
    before = native.kernels
    native.choose(pure=True)
    try:
        return step()
    finally:
        native.kernels = before


def outcome(step: Callable[[], object]) -> object:
    """Return what a step returns, or the text of its refusal."""
    try:
        return step()
    except (StoreError, CorruptRecord) as error:
        return f"{type(error).__name__}: {error}"
