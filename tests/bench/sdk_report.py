"""What the benchmark with the Go SDK prints: figures, a comparison of two trees, JSON."""

from __future__ import annotations

from collections.abc import Sequence

from tests.bench.sdk_turns import Compared, Sample, compare, medians

__all__ = ["comparison_table", "document", "figures_table"]

SDK, POSTGRES, PGX = "Go SDK", "postgres", "pgx"
COMPARED = ("rate", "p50_ms", "worker_us", "broker_us")
UNITS = {
    "rate": "/s",
    "p50_ms": " ms at p50",
    "worker_us": " us, worker",
    "broker_us": " us, broker",
}


def figures_table(samples: Sequence[Sample], tree: str) -> str:
    """Return the medians of one tree, the rate also as a part of PostgreSQL's in the same run."""
    found = medians(samples, tree)
    lines = [
        "| server | client | operation | connections | rate | of PostgreSQL's | p50 ms | p99 ms "
        "| worker us | broker us | client us |",
        "|---|---|---|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for measure, figures in found.items():
        peer = found.get(measure._replace(server=POSTGRES, client=PGX))
        ratio = peer and measure.client == SDK and figures["rate"] / peer["rate"]
        cells = [
            *(str(part) for part in measure),
            f"{figures['rate']:,.0f} /s",
            f"{ratio:.2f}" if ratio else "",
            f"{figures['p50_ms']:.2f}",
            f"{figures['p99_ms']:.2f}",
            *(_microseconds(figures[name]) for name in ("worker_us", "broker_us", "client_us")),
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def comparison_table(samples: Sequence[Sample], this: str, other: str, twin: str) -> str:
    """Return this tree's medians beside another's, and which differences may be claimed."""
    lines = [
        f"| measured (server, client, operation, connections) | {this} | {other} "
        "| change | spread | claimed |",
        "|---|---:|---:|---:|---:|---|",
    ]
    for one in compare(samples, this, other, twin, COMPARED):
        cells = [
            ", ".join(str(part) for part in one.measure),
            *(_figure(one, value) for value in (one.this, one.other)),
            f"{one.change:+.1%}",
            f"{one.spread:.1%}",
            "yes" if one.claimed else "no",
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def document(samples: Sequence[Sample], about: dict[str, str]) -> dict[str, object]:
    """Return everything for machines: the circumstances, every turn, and the medians by tree."""
    trees = dict.fromkeys(sample.tree for sample in samples)
    return {
        "about": about,
        "samples": [sample.document() for sample in samples],
        "medians": [
            {"tree": tree, **measure._asdict(), **figures}
            for tree in trees
            for measure, figures in medians(samples, tree).items()
        ],
    }


def _figure(one: Compared, value: float) -> str:
    number = f"{value:,.0f}" if value >= 100 else f"{value:.2f}"
    return number + UNITS[one.figure]


def _microseconds(value: float) -> str:
    return f"{value:.1f}" if 0 < value < 100 else f"{value:.0f}" if value else ""
