"""The Java programs, built once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conformance.program import build_java


@pytest.fixture(scope="session")
def java_program(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Return the folder of the programs, and their class path."""
    return build_java(tmp_path_factory.mktemp("java"))
