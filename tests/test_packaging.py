"""The root folders become one import package, ``rowtide``, in a checkout and in a wheel alike.

Three lists must agree: the folders, the links under ``.src/rowtide`` that serve a checkout, and
the lines of pyproject.toml that serve a wheel.
"""

import shutil
import subprocess
import sys
import tomllib
import zipfile
from importlib.metadata import version
from pathlib import Path

import pytest
from hatchling.builders.wheel import WheelBuilder

from rowtide.core.release import VERSION

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = [
    *("cli", "client", "connectors", "console", "core", "dashboards", "deploy", "stream"),
    "testing",
]

KINDS = {".py", ".typed", ".avsc", ".json", ".html", ".css", ".js", ".svg"}


def packaged(folder: str) -> set[str]:
    """Return what a wheel must hold of ``folder``: every module and every data file."""
    # What is deployed from a checkout is no part of the package.
    skipped = {"__pycache__", "DESIGN.md", "alerts", "compose", "container", "helm", "javascript"}
    return {
        f"rowtide/{path.relative_to(ROOT)}"
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and path.suffix in KINDS
        if not skipped & set(path.parts)
    }


def test_links_and_project_file_name_the_same_folders() -> None:
    links = {path.name: path.readlink() for path in (ROOT / ".src/rowtide").iterdir()}
    assert links == {folder: Path("../..") / folder for folder in FOLDERS}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert sorted(wheel["only-include"]) == FOLDERS
    assert wheel["sources"] == {folder: f"rowtide/{folder}" for folder in FOLDERS}


def test_the_version_that_the_code_has_is_that_of_the_wheel() -> None:
    assert version("rowtide") == VERSION


def build_wheel(folder: Path) -> Path:
    return Path(next(iter(WheelBuilder(str(ROOT)).build(directory=str(folder)))))


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel that was built as it is here."""
    return build_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.mark.filterwarnings("default")
def test_a_wheel_holds_every_module_once_and_nothing_beside(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert len(names) == len(set(names))
    project_version = "-".join(wheel.name.split("-")[:2])
    assert {name.split("/")[0] for name in names} == {"rowtide", f"{project_version}.dist-info"}
    assert set().union(*map(packaged, FOLDERS)) <= set(names)
    assert {name.split("/")[1] for name in names if name.startswith("rowtide/")} == set(FOLDERS)


@pytest.fixture(scope="module")
def without_a_compiler(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel that was built where the compiler that CC names is not there."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CC", "/nowhere/cc")
        return build_wheel(tmp_path_factory.mktemp("pure"))


@pytest.mark.filterwarnings("default")
def test_a_wheel_without_a_compiler_is_pure(without_a_compiler: Path) -> None:
    names = zipfile.ZipFile(without_a_compiler).namelist()
    assert without_a_compiler.name.endswith("-py3-none-any.whl")
    assert not [name for name in names if name.endswith((".so", ".c", ".h"))]


@pytest.mark.filterwarnings("default")
def test_a_wheel_without_kernels_uses_python(without_a_compiler: Path, tmp_path: Path) -> None:
    zipfile.ZipFile(without_a_compiler).extractall(tmp_path)
    assert kind_in(tmp_path) == "Python"


@pytest.mark.skipif(not any(map(shutil.which, ("cc", "gcc", "clang"))), reason="no C compiler")
@pytest.mark.filterwarnings("default")
def test_a_wheel_brings_kernels_for_every_later_python(wheel: Path, tmp_path: Path) -> None:
    assert "-cp311-abi3-" in wheel.name
    compiled = [name for name in zipfile.ZipFile(wheel).namelist() if name.endswith(".so")]
    assert compiled == ["rowtide/core/native/_kernels.abi3.so"]
    zipfile.ZipFile(wheel).extractall(tmp_path)
    assert kind_in(tmp_path) == "native"


def kind_in(folder: Path) -> str:
    """Return which kernels the package unpacked in a folder uses."""
    program = (
        f"import sys; sys.path.insert(0, {str(folder)!r}); "
        "from rowtide.core import native; print(native.__file__, native.kind())"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], cwd=folder, capture_output=True, text=True, check=True
    )
    path, kind = result.stdout.split()
    assert path.startswith(str(folder))
    return kind


@pytest.mark.parametrize("name", [*FOLDERS, "tests", "demo"])
def test_no_generic_name_can_be_imported_elsewhere(name: str, tmp_path: Path) -> None:
    program = (
        f"import importlib.util, sys; sys.exit(importlib.util.find_spec({name!r}) is not None)"
    )
    assert subprocess.run([sys.executable, "-c", program], cwd=tmp_path).returncode == 0
