"""Kernels return what Python returns, whatever they are given."""

from __future__ import annotations

import os
from collections.abc import Iterator
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rowtide.core import native
from tests.core.native.agreement import AGREEMENTS as ROW_AGREEMENTS
from tests.core.native.edge_agreement import EDGE_AGREEMENTS
from tests.core.native.get_agreement import GET_AGREEMENTS
from tests.core.native.inputs import Inputs
from tests.core.native.ways import KERNELS, needs_kernels

pytestmark = needs_kernels
AGREEMENTS = ROW_AGREEMENTS | EDGE_AGREEMENTS | GET_AGREEMENTS
QUICK, LONG = 2_000, int(os.environ.get("ROWTIDE_INPUTS", "1000000")) // len(AGREEMENTS) + 1


@pytest.fixture(autouse=True)
def kernel_use() -> Iterator[None]:
    """Use kernels, also where the suite runs without."""
    before, native.kernels = native.kernels, KERNELS
    yield
    native.kernels = before


@pytest.mark.parametrize("kernel", AGREEMENTS)
@given(chance=st.randoms(use_true_random=False))
def test_a_kernel_agrees_with_python(kernel: str, chance: Random) -> None:
    AGREEMENTS[kernel](Inputs(chance))


@pytest.mark.parametrize("kernel", AGREEMENTS)
def test_a_kernel_agrees_with_python_on_many_inputs(kernel: str, seed: int) -> None:
    answered = _agreements(kernel, seed, QUICK)
    assert answered > QUICK // 5, "most of what is usual is the kernel's to answer"


@pytest.mark.slow
@pytest.mark.parametrize("kernel", AGREEMENTS)
def test_a_kernel_agrees_with_python_on_very_many_inputs(kernel: str, seed: int) -> None:
    answered = _agreements(kernel, seed, LONG)
    print(f"{kernel}: {LONG} inputs, the kernel answered {answered}")  # noqa: T201


def _agreements(kernel: str, seed: int, count: int) -> int:
    """Return how many of so many inputs the kernel answered."""
    inputs, agree = Inputs(Random(seed)), AGREEMENTS[kernel]
    return sum(agree(inputs) for _ in range(count))
