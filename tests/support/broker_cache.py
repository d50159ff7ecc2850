"""Makes the cache with which brokers of tests start, unless it is there.

The first broker would make it in the background, at the lowest priority: on a busy machine dozens
of brokers start without it meanwhile, each with twice the CPU time.

    python -m tests.support.broker_cache
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from rowtide.deploy.kafka.broker import prepare
from rowtide.deploy.kafka.config import EmbeddedConfig, default_cache_dir
from rowtide.deploy.kafka.errors import EmbeddedKafkaError


def main() -> None:
    """Make it. A failure only means slow starts."""
    named = os.environ.get("ROWTIDE_CACHE")
    cache_dir = Path(named) if named else default_cache_dir(os.environ, sys.platform)
    try:
        prepare(EmbeddedConfig(cache_dir / "unused", cache_dir))
    except EmbeddedKafkaError as error:
        print(f"Without an AOT cache, brokers start slowly: {error}")  # noqa: T201


if __name__ == "__main__":
    main()
