"""A worker of the app in docs/guides/agents.md, as a process: it counts until it is killed.

Its environment says how to reach Kafka and rowtide. The first argument is the name of app and
consumer. The second is a file to which it writes the totals of its shards, again and again, as it
has them in memory. The others are Faust's. Now and then the agent fails.
"""

from __future__ import annotations

import json
import random
import re
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from rowtide.client import Change, FollowerSettings, agents

__all__ = ["PAGE"]

PAGE = Path(__file__).resolve().parents[2] / "docs/guides/agents.md"
NAME = "order-counts"
SETTINGS = FollowerSettings(lease_s=1.0, checkpoint_s=0.1, batch_changes_max=20)
REPORT_S = 0.1
FAILURES = 1 / 500
"""How likely the agent fails before a change."""


class Failure(Exception):
    """The agent fails, as any code may."""


def iterate_or_fail(batch: agents.AgentBatch) -> Iterator[Change]:
    """Return the changes of a batch; the agent may fail between two of them."""
    for change in batch.changes:
        if random.random() < FAILURES:
            raise Failure
        yield change


def run_page(name: str) -> dict[str, Any]:
    """Return the names of the page's app, whose leases are as short as the test needs."""
    agents.AgentBatch.__iter__ = iterate_or_fail  # type: ignore[method-assign]
    agents.change_channel = partial(agents.change_channel, settings=SETTINGS)
    names: dict[str, Any] = {"__name__": "order_counts"}
    text = PAGE.read_text(encoding="utf-8").replace(NAME, name)
    for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
        exec(compile(block, PAGE.name, "exec"), names)
    return names


def main() -> None:
    """Run a worker until it is killed."""
    name, file = sys.argv.pop(1), Path(sys.argv.pop(1))
    names = run_page(name)
    app, counts, total = names["app"], names["counts"], names["total"]
    new = file.with_suffix(".new")

    @app.timer(interval=REPORT_S)  # type: ignore[untyped-decorator]
    async def report() -> None:
        customers = {place.split("/")[1] for place in counts}
        new.write_text(json.dumps({customer: total(customer) for customer in customers}))
        new.rename(file)

    app.main()


if __name__ == "__main__":
    main()
