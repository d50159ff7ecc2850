"""Programs of Debian packages without installation: downloaded by apt, unpack into the cache.

This needs no root and changes nothing outside the given folder. It uses the versions of this
machine's package sources. Packages that are installed already are not downloaded.

The lists of packages are fetched once for all folders of a cache, and again after some hours.

For another suite of the same archive, no installed package counts. Everything that a package needs
is unpack, including the C library, and its programs are run by that loader (``by_own_loader``).
"""

from __future__ import annotations

import fcntl
import os
import platform
import re
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

__all__ = ["NotToBeHad", "by_own_loader", "library_path", "unpack"]

KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
INDEX_S_MAX = 6 * 3600
"""Age of the lists of packages. The archive may have dropped what older ones name."""


class NotToBeHad(Exception):
    """A program is neither installed nor can it be downloaded; the text has the reason."""


def unpack(folder: Path, *packages: str, suite: str = "") -> Path:
    """Return a folder with ``usr`` etc. of the packages and of their missing dependencies.

    With ``suite``, it has the packages of that suite and all that they need. It is created once;
    several processes may call this at the same time. Raises NotToBeHad.
    """
    root = folder / "root"
    if not root.exists():
        _require("apt-get", "dpkg-deb")
        folder.mkdir(parents=True, exist_ok=True)
        with _lock(folder / "lock"):
            if not root.exists():
                _unpack(folder, packages, suite)
    return root


def library_path(root: Path, environment: Mapping[str, str]) -> str:
    """Return LD_LIBRARY_PATH for programs of an unpack folder."""
    folders = [root / "usr" / "lib", *(root / "usr" / "lib").glob("*-linux-gnu")]
    known = environment.get("LD_LIBRARY_PATH")
    return os.pathsep.join([*map(str, folders), *([known] if known else [])])


def by_own_loader(root: Path) -> list[str]:
    """Return the words before a program of a folder that has its own C library."""
    loader = next((root / "usr").glob("lib*/ld-linux*.so.*"), None)
    if loader is None:
        raise NotToBeHad(f"{root} has no loader of programs.")
    return [str(loader), "--library-path", library_path(root, {})]


def _unpack(folder: Path, packages: tuple[str, ...], suite: str) -> None:
    staging = folder / "incoming"
    shutil.rmtree(staging, ignore_errors=True)  # A killed process may have left it.
    for name in ("debs", "root"):
        (staging / name).mkdir(parents=True)
    index, options = _prepare_index(folder.parent, suite)
    wanted = ("install", "--simulate", "--no-install-recommends", *packages)
    plan = _run("apt-get", *options, *wanted, where=index)
    lacking = [line.split()[1] for line in plan.splitlines() if line.startswith("Inst ")]
    _run("apt-get", *options, "download", *(lacking or packages), where=staging / "debs")
    for package in sorted((staging / "debs").glob("*.deb")):
        _run("dpkg-deb", "--extract", str(package), str(staging / "root"), where=staging)
    os.replace(staging / "root", folder / "root")
    shutil.rmtree(staging)


def _prepare_index(cache_dir: Path, suite: str) -> tuple[Path, list[str]]:
    """Return the folder with the lists of packages, and the options with which apt uses it.

    To fetch and parse them takes most of the CPU time of a small package.
    """
    index = cache_dir / f"apt-{suite or 'own'}"
    for name in ("lists/partial", "archives/partial"):
        (index / name).mkdir(parents=True, exist_ok=True)
    # The machine's own lists may be missing (images drop them), outdated, or not writable for us.
    options = [
        *("-o", f"Dir::State::Lists={index / 'lists'}", "-o", f"Dir::Cache={index}"),
        *("-o", "Dir::Cache::pkgcache=pkgcache.bin", "-o", "APT::Sandbox::User=", "-qq"),
        *("-o", "Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false"),
    ]
    fetched = index / "fetched"
    with _lock(index / "lock"):
        is_old = not fetched.exists() or time.time() - fetched.stat().st_mtime > INDEX_S_MAX
        if suite:
            options += _only(suite, index, rewrite=is_old)
        if is_old:
            _run("apt-get", *options, "update", where=index)
            fetched.touch()
    return index, options


def _only(suite: str, index: Path, *, rewrite: bool) -> list[str]:
    """Return options with which apt knows one suite of this machine's archive and no package."""
    signed = f"[signed-by={KEYRING}] " if KEYRING.exists() else ""
    sources, status = index / "sources.list", index / "status"
    if rewrite:
        sources.write_text(f"deb {signed}{_archive(index)} {suite} main\n", encoding="utf-8")
    status.touch()
    return [
        *("-o", f"Dir::Etc::SourceList={sources}", "-o", "Dir::Etc::SourceParts=-"),
        *("-o", f"Dir::State::Status={status}"),
    ]


def _archive(staging: Path) -> str:
    """Return the archive of this machine's own release."""
    release = platform.freedesktop_os_release().get("VERSION_CODENAME", "")
    uris = _run("apt-get", "--print-uris", "update", where=staging)
    found = re.search(rf"^'(\S+)/dists/{re.escape(release)}/(?:In)?Release'", uris, re.M)
    if not release or not found:
        raise NotToBeHad("This machine's package sources have no archive of its own release.")
    return found[1]


def _run(*command: str, where: Path) -> str:
    done = subprocess.run(command, cwd=where, capture_output=True, text=True, check=False)
    if done.returncode:
        raise NotToBeHad(f"{' '.join(command[:1])} failed: {done.stderr.strip()[-500:]}")
    return done.stdout


def _require(*programs: str) -> None:
    lacking = [program for program in programs if shutil.which(program) is None]
    if lacking:
        raise NotToBeHad(f"{', '.join(lacking)} is missing: this is no Debian machine.")


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    """Hold an exclusive lock between processes."""
    with path.open("ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
