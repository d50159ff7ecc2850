"""The files of the image for local mode: ``rowtide dev`` runs with them as its root, alone."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rowtide.cli.console_link import CONSOLE_FILE
from rowtide.cli.settings import load_settings
from rowtide.deploy.up import Ready
from tests.deploy.linters import DEPLOY
from tests.deploy.test_local_image import closure, requirements, write_and_read
from tests.support.waiting import until

SCRIPT = DEPLOY / "container/root_files.py"
ENVIRONMENT = "opt/rowtide"
START_S_MAX = 60.0
# As an engine does: devices and processes are there, and all else is the image's.
IN_ROOT = (
    *("unshare", "--map-root-user", "--mount", "sh", "-c"),
    'mount --rbind /dev "$0/dev" && mount --rbind /proc "$0/proc" && exec chroot "$0" "$@"',
)

# Its tests share a root, whose making takes as long as they do: they stay in one process.
pytestmark = [
    pytest.mark.system,
    pytest.mark.xdist_group("image root"),
    pytest.mark.skipif(
        shutil.which("unshare") is None
        or subprocess.run([*IN_ROOT[:3], "true"], check=False).returncode != 0,
        reason="a folder as the root of a process needs user namespaces of Linux",
    ),
]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Return the root of an image: what the last stage of its file begins with."""
    folder = tmp_path_factory.mktemp("image")
    environment, root = folder / ENVIRONMENT, folder / "root"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
    [site] = environment.glob("lib/python3.*/site-packages")
    for found in closure(requirements()).values():
        for file in found.files or ():
            if ".." not in file.parts and "__pycache__" not in file.parts:
                (site / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(str(found.locate_file(file)), site / file)
    package = Path(load_settings.__code__.co_filename).parents[1]
    shutil.copytree(package, site / "rowtide", ignore=shutil.ignore_patterns("__pycache__"))
    subprocess.run([environment / "bin/python", SCRIPT, root], check=True)
    for name in ("tmp", "data", "dev", "proc"):
        (root / name).mkdir(exist_ok=True)
    yield root
    shutil.rmtree(folder)


def command(root: Path, *words: str) -> list[str]:
    """Return a command that runs Python in the root, where nothing of the system is seen."""
    [environment] = (path for path in root.rglob(ENVIRONMENT) if path.is_dir())
    python = "/" / environment.relative_to(root) / "bin/python"
    return [*IN_ROOT, str(root), str(python), *words]


def test_local_mode_runs_on_the_files_of_the_image_alone(root: Path) -> None:
    ready = root / "data/ready"
    child = subprocess.Popen(
        command(
            root,
            *("-c", "from rowtide.cli.main import main; main()", "dev", "--port", "0"),
            *("--data", "/data/rowtide", "--ready-file", "/data/ready"),
        ),
        env={"HOME": "/data", "LANG": "C.UTF-8"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        until(lambda: ready.exists() or child.poll() is not None, s_max=START_S_MAX)
        if child.poll() is None:
            write_and_read(Ready(**json.loads(ready.read_text())))
            until((root / "data/rowtide" / CONSOLE_FILE).exists, "no console", s_max=START_S_MAX)
    finally:
        child.terminate()
        printed, _ = child.communicate(timeout=START_S_MAX)
    assert child.returncode == 0, printed
    assert "Traceback" not in printed


def test_what_a_server_imports_of_the_system_is_in_the_image(root: Path) -> None:
    program = (
        "import ssl, sqlite3, ctypes, zlib, lzma, bz2, uuid, hashlib, socket, uvloop, rocksdict"
    )
    subprocess.run(command(root, "-c", program), check=True, env={}, timeout=60)
    assert not list(root.rglob("bin/sh"))
    assert not list(root.rglob("site-packages/pip"))
