"""Chromium for tests: that of the machine, or Debian's package, unpacked into the cache.

Fonts with Latin and Chinese letters come along, so that pictures are the same everywhere. Nothing
is installed, and nobody needs to be root.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from demo.servers.debian import NotToBeHad, library_path, unpack

__all__ = ["ARGUMENTS", "Chromium", "NotToBeHad", "find_chromium"]

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


def find_chromium(cache_dir: Path, environment: Mapping[str, str]) -> Chromium:
    """Return Chromium, fetched once if need be. Raises ``NotToBeHad``."""
    fonts = unpack(cache_dir / "browser-fonts", *FONTS)
    own = {**environment, "FONTCONFIG_FILE": str(_write_font_settings(cache_dir, fonts))}
    installed = shutil.which("chromium") or shutil.which("chromium-browser")
    if installed:
        return Chromium(Path(installed), own)
    root = unpack(cache_dir / "chromium", "chromium")
    # Of PulseAudio one library has a folder of its own.
    libraries = [library_path(root, {}), *map(str, root.glob("usr/lib/*-linux-gnu/pulseaudio"))]
    own["LD_LIBRARY_PATH"] = os.pathsep.join(libraries)
    return Chromium(root / "usr/lib/chromium/chromium", own)


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
