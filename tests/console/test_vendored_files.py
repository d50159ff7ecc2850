"""The vendored libraries are those that `make vendor` made, with their licences. No network."""

from __future__ import annotations

import gzip
import hashlib
import json
import re
from pathlib import Path

CONSOLE = Path(__file__).resolve().parents[2] / "console"
VENDOR = CONSOLE / "static/vendor"
DECLARATIONS = {"preact.d.ts", "uplot.d.ts"}
"""Written by hand, for tsc alone."""
BYTES_MAX = {"preact.js": 12_000, "uplot.js": 25_000, "pico.css": 13_000, "uplot.css": 1_000}
"""Compressed, as a browser fetches them."""


def read_locked() -> dict[str, str]:
    lines = (VENDOR / "files.sha512").read_text(encoding="utf-8").splitlines()
    return {name: digest for digest, name in (line.split("  ") for line in lines)}


def test_every_file_has_the_checksum_of_the_lock() -> None:
    found = {
        path.relative_to(VENDOR).as_posix(): hashlib.sha512(path.read_bytes()).hexdigest()
        for path in VENDOR.rglob("*")
        if path.is_file() and path.name not in DECLARATIONS | {"files.sha512"}
    }
    assert found == read_locked()


def test_every_package_of_a_file_has_its_version_from_the_lock_and_a_licence() -> None:
    lock = json.loads((CONSOLE / "javascript/package-lock.json").read_text(encoding="utf-8"))
    licences = {path.stem for path in (VENDOR / "licenses").iterdir()}
    named = set[str]()
    for name in BYTES_MAX:
        head = (VENDOR / name).read_text(encoding="utf-8").partition("*/")[0]
        packages = re.findall(r"(@?[\w/-]+) (\d+\.\d+\.\d+) \((MIT|Apache-2.0)\)", head)
        assert packages, f"{name} names no package"
        for package, version, _ in packages:
            assert lock["packages"][f"node_modules/{package}"]["version"] == version
            named.add(package.removeprefix("@").replace("/", "-"))
    assert named == licences


def test_the_lock_of_packages_has_checksums_and_no_addresses() -> None:
    lock = json.loads((CONSOLE / "javascript/package-lock.json").read_text(encoding="utf-8"))
    packages = {name: one for name, one in lock["packages"].items() if name}
    assert packages
    assert [name for name, one in packages.items() if "resolved" in one] == []
    assert [name for name, one in packages.items() if "sha512-" not in one["integrity"]] == []


def test_the_libraries_are_small() -> None:
    sizes = {name: len(gzip.compress((VENDOR / name).read_bytes(), 9)) for name in BYTES_MAX}
    assert [f"{name}: {size}" for name, size in sizes.items() if size > BYTES_MAX[name]] == []


def test_no_library_makes_code_of_text() -> None:
    for path in VENDOR.glob("*.js"):
        assert re.findall(r"\beval\(|new Function|\bFunction\(", path.read_text("utf-8")) == []
