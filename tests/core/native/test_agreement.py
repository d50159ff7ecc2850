"""Kernels return what Python returns, whatever they are given."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from random import Random
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rowtide.core import native
from tests.core.native.agreement import AGREEMENTS as ROW_AGREEMENTS
from tests.core.native.damaged_calls import DRAWS, call_damaged
from tests.core.native.edge_agreement import EDGE_AGREEMENTS
from tests.core.native.effect_agreement import EFFECT_AGREEMENTS
from tests.core.native.get_agreement import GET_AGREEMENTS
from tests.core.native.inputs import Inputs
from tests.core.native.log_agreement import LOG_AGREEMENTS
from tests.core.native.test_arguments import CALLS
from tests.core.native.ways import KERNELS, needs_kernels
from tests.core.native.write_agreement import WRITE_AGREEMENTS
from tests.support.searches import examples

pytestmark = needs_kernels
AGREEMENTS = (
    ROW_AGREEMENTS
    | EDGE_AGREEMENTS
    | GET_AGREEMENTS
    | WRITE_AGREEMENTS
    | LOG_AGREEMENTS
    | EFFECT_AGREEMENTS
)
QUICK, ALL = examples(1_000, 2_000), int(os.environ.get("ROWTIDE_INPUTS", "1000000"))

Record = Callable[[str, object], None]


class Tally(NamedTuple):
    """How many inputs a kernel got, how many it answered, and how many were damaged."""

    inputs: int
    answered: int
    damaged: int


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
    tally = _repeat(AGREEMENTS[kernel], seed, QUICK)
    assert tally.answered > QUICK // 5, "most of what is usual is the kernel's to answer"


@pytest.mark.slow
@pytest.mark.parametrize("kernel", AGREEMENTS)
def test_a_kernel_agrees_with_python_on_very_many_inputs(
    kernel: str, seed: int, record_property: Record
) -> None:
    tally = _repeat(AGREEMENTS[kernel], seed, ALL // len(AGREEMENTS) + 1)
    record_property("compared with Python", [kernel, *tally])


def test_every_kernel_gets_damaged_arguments() -> None:
    assert DRAWS.keys() == CALLS.keys()


@pytest.mark.parametrize("kernel", DRAWS)
def test_a_kernel_survives_damaged_arguments(kernel: str, seed: int) -> None:
    tally = _repeat(lambda inputs: call_damaged(kernel, inputs), seed, QUICK)
    assert tally.answered > QUICK // 10, "a quarter of the calls has no damage"


@pytest.mark.slow
@pytest.mark.parametrize("kernel", DRAWS)
def test_a_kernel_survives_very_many_damaged_arguments(
    kernel: str, seed: int, record_property: Record
) -> None:
    tally = _repeat(lambda inputs: call_damaged(kernel, inputs), seed, ALL // len(DRAWS) + 1)
    record_property("called with damaged arguments", [kernel, *tally])


def _repeat(step: Callable[[Inputs], bool], seed: int, count: int) -> Tally:
    inputs, answered, damaged = Inputs(Random(seed)), 0, 0
    for _ in range(count):
        before = inputs.damages
        answered += step(inputs)
        damaged += inputs.damages > before
    return Tally(count, answered, damaged)
