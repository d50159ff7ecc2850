"""Chromium for tests: that of the machine, or Debian's package, unpacked into the cache.

The headless shell is preferred: it draws no window around a page, and takes a third of the CPU
time. Fonts with Latin and Chinese letters come along, so that pictures are the same everywhere.
Nothing is installed, and nobody needs to be root.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from demo.servers.debian import NotToBeHad, library_path, unpack

__all__ = ["ARGUMENTS", "Chromium", "NotToBeHad", "find_chromium"]

SHELL = "chromium-headless-shell"
PROGRAMS = (SHELL, "chromium", "chromium-browser")
"""Names of Chromium on the PATH, the best first."""
FONTS = ("fonts-liberation", "fonts-dejavu-core", "fonts-wqy-zenhei")
ARGUMENTS = (
    "--no-sandbox",  # Tests may run as root, which Chromium's sandbox refuses.
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-dev-shm-usage",
    "--disable-gpu",
    "--disable-quic",
    "--disable-sync",
    "--font-render-hinting=none",
    "--no-first-run",
)

FONT_SETTINGS = """<?xml version="1.0"?>
<!DOCTYPE fontconfig SYSTEM "fonts.dtd">
<fontconfig>
  <dir>{fonts}</dir>
  <dir>/usr/share/fonts</dir>
  <cachedir>{cache}</cachedir>
  {aliases}
</fontconfig>
"""
ALIAS = "<alias><family>{name}</family><prefer>{families}</prefer></alias>"
PREFERRED = {
    "sans": ("Liberation Sans", "WenQuanYi Zen Hei"),
    "sans-serif": ("Liberation Sans", "WenQuanYi Zen Hei"),
    "system-ui": ("Liberation Sans", "WenQuanYi Zen Hei"),
    "monospace": ("DejaVu Sans Mono", "WenQuanYi Zen Hei Mono"),
}


class Chromium(NamedTuple):
    """What starts a browser."""

    executable: Path
    environment: dict[str, str]


def find_chromium(
    cache_dir: Path, environment: Mapping[str, str], *, has_window: bool = False
) -> Chromium:
    """Return Chromium, fetched once if need be. Raises ``NotToBeHad``.

    A benchmark of what a user sees wants one that has a window.
    """
    fonts = unpack(cache_dir / "browser-fonts", *FONTS)
    own = {**environment, "FONTCONFIG_FILE": str(_write_font_settings(cache_dir, fonts))}
    installed = next(filter(None, map(shutil.which, PROGRAMS[has_window:])), None)
    if installed:
        return Chromium(Path(installed), own)
    root, program = _unpack_chromium(cache_dir, has_window=has_window)
    # Of PulseAudio one library has a folder of its own.
    libraries = [library_path(root, {}), *map(str, root.glob("usr/lib/*-linux-gnu/pulseaudio"))]
    own["LD_LIBRARY_PATH"] = os.pathsep.join(libraries)
    return Chromium(root / "usr/lib/chromium" / program, own)


def _unpack_chromium(cache_dir: Path, *, has_window: bool) -> tuple[Path, str]:
    """Return the folder of a package, and the name of its program."""
    # Releases before Debian 12 lack the package of the shell.
    with suppress(NotToBeHad):
        if not has_window:
            return unpack(cache_dir / SHELL, SHELL), SHELL
    return unpack(cache_dir / "chromium", "chromium"), "chromium"


def _write_font_settings(cache_dir: Path, fonts: Path) -> Path:
    aliases = [
        ALIAS.format(name=name, families="".join(f"<family>{one}</family>" for one in families))
        for name, families in PREFERRED.items()
    ]
    path = cache_dir / "browser-fonts" / "fonts.conf"
    text = FONT_SETTINGS.format(
        fonts=fonts / "usr/share/fonts", cache=path.parent / "cache", aliases="\n  ".join(aliases)
    )
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        # Put into place whole: several processes of a test run may do so at once.
        draft = path.with_suffix(f".{os.getpid()}")
        draft.write_text(text, encoding="utf-8")
        draft.replace(path)
    return path
