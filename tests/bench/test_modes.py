"""The table of the benchmark that sets the modes side by side."""

from __future__ import annotations

from tests.bench.modes import Alone, modes_table
from tests.bench.sdk_turns import Measure, Sample


def puts(server: str, connections: int, *rates: float) -> list[Sample]:
    measure = Measure(server, "a client", "PutRow", connections)
    return [
        Sample(measure, "this tree", turn, rate, 1.5, 3.0, worker_us=70, broker_us=20, client_us=9)
        for turn, rate in enumerate(rates)
    ]


def test_a_server_that_is_not_measured_has_empty_cells() -> None:
    alone = {"local": Alone(0.284, 0.3, 50.6, 0.002, 1)}
    calm = [*puts("local", 1, 900, 7000, 1000), *puts("local", 16, 5000)]
    assert modes_table(alone, calm, puts("local", 1, 200)) == [
        "| | kafka | local | postgres |",
        "|---|---:|---:|---:|",
        "| warm start to ready; after kill -9 |  | 0.28 s; 0.30 s |  |",
        "| memory; idle CPU, of a core; processes |  | 51 MiB; 0.20%; 1 |  |",
        "| put, 1 connection: rate, p50, server's CPU |  | 1,000 /s, 1.50 ms, 90 us |  |",
        "| put, 16 connections |  | 5,000 /s, 1.50 ms, 90 us |  |",
        "| put, 1 connection, beside 20 busy processes |  | 200 /s, 1.50 ms, 90 us |  |",
    ]
