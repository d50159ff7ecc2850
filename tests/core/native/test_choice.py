"""Which kernels are used, and that compiled ones are those of this checkout."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hatch_build import sources

from rowtide.core import native
from rowtide.core.shard import plain_write
from rowtide.core.values.limits import Limits
from tests.core.native.test_arguments import ROW
from tests.core.native.ways import KERNELS, needs_kernels

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(autouse=True)
def kernel_choice() -> Iterator[None]:
    before = native.kernels
    yield
    native.kernels = before


@needs_kernels
def test_compiled_kernels_are_those_of_the_checkout() -> None:
    compiled: str = getattr(KERNELS, "SOURCES")  # noqa: B009  # No kernel, so no part of the type.
    assert compiled == sources(ROOT / "core/native"), "compile them again: make native"


@needs_kernels
@pytest.mark.skipif(
    sys.platform != "linux" or shutil.which("nm") is None, reason="nm reads a module's symbols"
)
def test_wheels_for_windows_know_all_that_kernels_need_of_python() -> None:
    module = getattr(KERNELS, "__file__")  # noqa: B009  # As above.
    command = ["nm", "-D", "-u", "-P", module]  # A wheel's module has no other symbols.
    found = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    needed = set(re.findall(r"^(_?Py\w+)", found, re.MULTILINE))
    known = (ROOT / "core/native/python3.def").read_text().split()
    assert needed
    assert needed - set(known) == set()


@needs_kernels
def test_kernels_are_used_unless_python_alone_is_chosen() -> None:
    native.choose(pure=False)
    assert native.kind() == "native"
    assert plain_write.decode_plain(ROW, Limits()) is not None
    native.choose(pure=True)
    assert native.kind() == "Python"
    assert plain_write.decode_plain(ROW, Limits()) is None


@needs_kernels
def test_kernels_of_another_interface_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "INTERFACE", 0)
    native.choose(pure=False)
    assert native.kind() == "Python"


@pytest.mark.parametrize(("value", "pure"), [("1", True), ("0", False), ("", False)])
def test_the_environment_chooses_for_commands(value: str, *, pure: bool) -> None:
    program = (
        "from rowtide.cli.main import main; from rowtide.core import native\n"
        "main(['completion', 'bash'], standalone_mode=False)\n"
        "print(native.kind())"
    )
    finished = subprocess.run(
        [sys.executable, "-c", program],
        env={"ROWTIDE_PURE": value, "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    )
    expected = "Python" if pure or native.load_compiled() is None else "native"
    assert finished.stdout.splitlines()[-1] == expected
