"""The database of the local log: what the rest of the process does while it writes."""

from __future__ import annotations

import threading
from pathlib import Path

from rowtide.stream.log.local.store import LogStore


def test_other_threads_run_while_a_write_waits_for_the_disk(tmp_path: Path) -> None:
    """The event loop is one of them: it goes on with reads."""
    store, steps, during = LogStore(tmp_path), 0, list[int]()
    store.open()

    def write() -> None:
        for number in range(100):
            batch = store.new_batch()
            batch.put(b"e%d" % number, bytes(600))
            before = steps
            store.write(batch)
            during.append(steps - before)

    writing = threading.Thread(target=write)
    writing.start()
    while writing.is_alive():
        steps += 1
    store.close()
    assert sum(count > 0 for count in during) > 50
