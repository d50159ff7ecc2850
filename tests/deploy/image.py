"""The container image's file, as read by those who check it and those who run its image."""

from __future__ import annotations

import re

from tests.deploy.linters import DEPLOY

__all__ = ["IMAGE", "image_settings", "instructions"]

IMAGE = DEPLOY / "container/Dockerfile"


def instructions() -> list[tuple[str, str]]:
    """Return (instruction, rest) of the last stage, in order."""
    text = re.sub(r"^#.*\n", "", IMAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    lines = text.replace("\\\n", " ").splitlines()
    pairs = [(line.split()[0], line.partition(" ")[2].strip()) for line in lines if line.strip()]
    last = max(number for number, (word, _) in enumerate(pairs) if word == "FROM")
    return pairs[last:]


def image_settings() -> dict[str, str]:
    """Return the settings of ours that the image has, as variables of the environment."""
    return dict(re.findall(r"(ROWTIDE_\w+)=(\S+)", dict(instructions())["ENV"]))
