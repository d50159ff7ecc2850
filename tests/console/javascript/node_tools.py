"""Node.js packages that judge the console's modules: those of the lock, fetched once by npm.

They are in the cache, under the checksum of the lock, and serve all later runs without a network.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
from pathlib import Path

from demo.servers.made_once import make_once

__all__ = ["JAVASCRIPT", "STATIC", "NoNodeTools", "fetch_packages", "run_node", "write_tsconfig"]

ROOT = Path(__file__).resolve().parents[3]
JAVASCRIPT = ROOT / "console/javascript"
STATIC = ROOT / "console/static"
NPM_S_MAX = 300


class NoNodeTools(Exception):
    """Node.js, npm or the packages are not to be had; the text says which."""


def fetch_packages(cache_dir: Path) -> Path:
    """Return ``node_modules`` with the packages of the lock. Raises ``NoNodeTools``."""
    for program in ("node", "npm"):
        if shutil.which(program) is None:
            raise NoNodeTools(f"{program} is not on the PATH")
    lock = (JAVASCRIPT / "package-lock.json").read_bytes()
    home = cache_dir / f"javascript-{hashlib.sha256(lock).hexdigest()[:12]}"
    return make_once(home, _install) / "node_modules"


def _install(folder: Path) -> None:
    for name in ("package.json", "package-lock.json", "eslint.config.mjs"):
        shutil.copy(JAVASCRIPT / name, folder)
    command = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
    try:
        subprocess.run(
            command, cwd=folder, check=True, capture_output=True, text=True, timeout=NPM_S_MAX
        )
    except subprocess.CalledProcessError as error:
        raise NoNodeTools(f"npm ci failed: {error.stderr[-500:]}") from error
    except subprocess.TimeoutExpired as error:
        raise NoNodeTools(f"npm ci took longer than {NPM_S_MAX} s") from error


def run_node(*arguments: str | Path, cwd: Path = ROOT) -> str:
    """Run ``node`` and return what it printed, with an exit code that is not 0 first."""
    done = subprocess.run(
        ["node", *map(str, arguments)], cwd=cwd, capture_output=True, text=True, timeout=240
    )
    said = done.stdout + done.stderr
    return f"exit code {done.returncode}\n{said}" if done.returncode else said


def write_tsconfig(folder: Path, modules: Path) -> Path:
    """Write the settings of tsc that find the packages, and return the file."""
    settings = {
        "extends": str(JAVASCRIPT / "tsconfig.json"),
        "compilerOptions": {"paths": {"*": [f"{modules}/*"]}},
        "include": [f"{STATIC}/**/*"],
        "exclude": [f"{STATIC}/vendor/*.js"],
    }
    path = folder / "tsconfig.json"
    path.write_text(json.dumps(settings), encoding="utf-8")
    return path
