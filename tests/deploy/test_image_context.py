"""What an image copies is enough to build the wheel in it: nothing ignored, nothing forgotten."""

import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from fnmatch import fnmatch
from functools import cache
from pathlib import Path

from tests.deploy.image import IMAGE, LOCAL_IMAGE

ROOT = Path(__file__).resolve().parents[2]


def is_ignored(image: Path, path: str) -> bool:
    """True if the builder does not get a file: the last pattern that fits decides."""
    lines = image.with_name(image.name + ".dockerignore").read_text(encoding="utf-8").splitlines()
    verdict = False
    for line in lines:
        if line and not line.startswith("#"):
            pattern = line.removeprefix("!").removeprefix("**/")
            parents = [path, *map(str, Path(path).parents)]
            names = [*parents, *Path(path).parts] if "**/" in line else parents
            if pattern == "*" or any(fnmatch(name, pattern) for name in names):
                verdict = not line.startswith("!")
    return verdict


def list_copied(image: Path) -> list[str]:
    """Return what the first stage copies from the context."""
    first = image.read_text(encoding="utf-8").partition("\nFROM ")[2].partition("\nFROM ")[0]
    return [
        source
        for line in re.findall(r"^COPY ((?!--).*)$", first, re.MULTILINE)
        for source in line.split()[:-1]
    ]


@cache
def list_context(image: Path) -> frozenset[str]:
    """Return the files that the first stage gets."""
    sources = [ROOT / source for source in list_copied(image)]
    paths = [path for at in sources for path in ([at] if at.is_file() else at.rglob("*"))]
    names = [str(path.relative_to(ROOT)) for path in paths if path.is_file()]
    return frozenset(name for name in names if not is_ignored(image, name))


def test_the_wheel_is_built_from_what_the_image_copies(tmp_path: Path) -> None:
    for name in list_context(IMAGE):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", "dist", "."]
    subprocess.run(build, cwd=tmp_path, check=True, capture_output=True)
    [wheel] = (tmp_path / "dist").glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    folders = project["tool"]["hatch"]["build"]["targets"]["wheel"]["only-include"]
    assert {name.split("/")[1] for name in names if name.startswith("rowtide/")} == {*folders}


def test_the_image_of_local_mode_copies_the_same_and_what_chooses_its_libraries() -> None:
    """So the wheel that is built from the one is built from the other."""
    added = "deploy/container/local_requirements.py"
    assert list_context(LOCAL_IMAGE) == list_context(IMAGE) | {added}
