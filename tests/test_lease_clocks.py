"""The clock of leases stands twice: a client imports nothing of the server, the core no clock."""

from rowtide.client.changes import clock as client_clock
from rowtide.stream.measures import clock as server_clock


def test_client_and_server_read_the_same_clock_for_leases() -> None:
    assert client_clock._CLOCK == server_clock._CLOCK
    before_s = server_clock.lease_clock()
    assert before_s <= client_clock.lease_clock() <= server_clock.lease_clock()
