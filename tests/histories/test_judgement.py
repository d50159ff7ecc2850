"""The judgement of a whole run: a store that is right is found right, a planted fault is found."""

from __future__ import annotations

import random

import pytest

from tests.histories.imagined import imagine_evidence
from tests.histories.judgement import judge
from tests.histories.planted import PLANTED, plant_fault


@pytest.mark.parametrize("seed", range(5))
def test_a_store_that_is_right_is_found_right(seed: int) -> None:
    verdict = judge(imagine_evidence(seed))
    assert verdict.anomalies == []
    assert verdict.rows == 4
    assert 0 < verdict.behind < verdict.bounded


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_fault_is_found(name: str, seed: int) -> None:
    evidence = plant_fault(name, imagine_evidence(seed), random.Random(seed))
    kinds = {anomaly.partition(":")[0] for anomaly in judge(evidence).anomalies}
    assert PLANTED[name].found_as in kinds


def test_planting_leaves_the_evidence_as_it_was() -> None:
    evidence = imagine_evidence(1)
    for name in PLANTED:
        plant_fault(name, evidence, random.Random(1))
    assert judge(evidence).anomalies == []
