"""The container images' files, as read by those who check them and those who run an image."""

from __future__ import annotations

import re
from pathlib import Path

from tests.deploy.linters import DEPLOY

__all__ = ["IMAGE", "LOCAL_IMAGE", "image_settings", "instructions"]

IMAGE = DEPLOY / "container/Dockerfile"
LOCAL_IMAGE = DEPLOY / "container/Dockerfile.dev"


def instructions(image: Path = IMAGE) -> list[tuple[str, str]]:
    """Return (instruction, rest) of the last stage, in order."""
    text = re.sub(r"^#.*\n", "", image.read_text(encoding="utf-8"), flags=re.MULTILINE)
    lines = text.replace("\\\n", " ").splitlines()
    pairs = [(line.split()[0], line.partition(" ")[2].strip()) for line in lines if line.strip()]
    last = max(number for number, (word, _) in enumerate(pairs) if word == "FROM")
    return pairs[last:]


def image_settings(image: Path = IMAGE) -> dict[str, str]:
    """Return the settings of ours that an image has, as variables of the environment."""
    return dict(re.findall(r"(ROWTIDE_\w+)=(\S+)", dict(instructions(image))["ENV"]))
