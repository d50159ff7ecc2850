"""Flights depart on the demo's dashboard, a worker is killed, and no number differs.

It is the second half of ``make demo`` with ``ONCE=1``, over a small load, with a broker of its own.
"""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from demo.board import Board
from demo.departures import FLIGHTS
from demo.flights import JANUARY, create_tables, show_departures
from demo.follow import connect
from demo.load import Loader
from demo.source import Change, Source
from rowtide.deploy.up import Up

pytestmark = [pytest.mark.kafka, pytest.mark.system]

LOADED = 2000


def test_flights_depart_on_the_dashboard_and_every_number_is_right(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data_dir = tmp_path / "data"
    with (
        (tmp_path / "output").open("wb") as output,
        Up(data_dir, options=("--port", "0"), output=output) as server,
    ):
        ready = server.start()
        board = Board(ready)
        board.remove()  # There is none yet.
        with connect(ready) as client:
            create_tables(client)
        loader = Loader(ready, lambda _rows: None)
        rows = list(itertools.islice(Source(JANUARY).rows(FLIGHTS), LOADED))
        loader.load(FLIGHTS, rows)
        assert show_departures(ready, server, data_dir, once=True)
        printed = capsys.readouterr().out
        assert ": 0 differences" in printed
        assert "kill -9 of worker" in printed
        assert "the dashboard moves again" in printed
        assert "is silent" in printed
        # It goes on with changes of the loaded flights, and takes deletes back.
        shown = board.count()
        loader.change(FLIGHTS, [Change(row.key, {}, ()) for row in rows[:10]])
        assert board.verify()
        assert board.count()["all"] == shown["all"] - 10
        board.remove()
        assert board.count().total() == 0
