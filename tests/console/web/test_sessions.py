"""How long sessions, links and counts of attempts last, on a clock that the test moves."""

from __future__ import annotations

import pytest

from rowtide.console.web.attempts import LoginAttempts
from rowtide.console.web.console_settings import ConsoleSettings, parse_hidden_columns
from rowtide.console.web.links import OneTimeLinks
from rowtide.console.web.origins import OriginRules
from rowtide.console.web.refusals import RequestRefused
from rowtide.console.web.rights import KeyRights
from rowtide.console.web.sessions import SESSIONS_MAX, WebSession, WebSessions
from rowtide.console.workers.calls import KeyPair

KEY = KeyPair("id", "secret-of-the-key")
RIGHTS = KeyRights(KEY, ("demo",), is_admin=True, is_read_only=False)
MINUTE_S, HOUR_S = 60.0, 3600.0


class Clock:
    """Seconds that pass when the test says so."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def sessions(clock: Clock) -> WebSessions:
    return WebSessions(clock)


def begin(sessions: WebSessions) -> WebSession:
    return sessions.begin(KEY, ("demo",), is_admin=True, is_read_only=False)


def test_a_session_ends_after_an_hour_without_use(sessions: WebSessions, clock: Clock) -> None:
    session = begin(sessions)
    clock.now_s += HOUR_S
    assert sessions.find(session.id) is session
    clock.now_s += HOUR_S + 1
    assert sessions.find(session.id) is None
    assert len(sessions) == 0


def test_a_session_that_is_used_ends_after_twelve_hours(
    sessions: WebSessions, clock: Clock
) -> None:
    session = begin(sessions)
    for _ in range(24):
        clock.now_s += HOUR_S / 2
        assert sessions.find(session.id) is session
    clock.now_s += 1
    assert sessions.find(session.id) is None


def test_a_page_that_renews_itself_is_no_use(sessions: WebSessions, clock: Clock) -> None:
    session = begin(sessions)
    for _ in range(60):
        clock.now_s += MINUTE_S
        assert sessions.find(session.id, touch=False) is session
        assert sessions.has(session)
    clock.now_s += 1
    assert not sessions.has(session)


def test_sessions_are_bounded_and_the_oldest_goes(sessions: WebSessions) -> None:
    first = begin(sessions)
    for _ in range(SESSIONS_MAX):
        last = begin(sessions)
    assert len(sessions) == SESSIONS_MAX
    assert sessions.find(first.id) is None
    assert sessions.find(last.id) is last


def test_a_session_shows_no_secret(sessions: WebSessions) -> None:
    session = begin(sessions)
    for secret in (session.id, session.csrf, session.access_key_secret):
        assert secret not in repr(session)
        assert len(secret) >= 16
    assert KEY.access_key_secret not in repr(RIGHTS)


def test_a_link_is_good_for_a_minute_and_once(clock: Clock) -> None:
    links = OneTimeLinks(clock)
    late, used = links.make(RIGHTS), links.make(RIGHTS)
    assert links.take(used) == RIGHTS
    assert links.take(used) is None
    assert links.take("") is None
    clock.now_s += 60.1
    assert links.take(late) is None


def test_attempts_are_counted_by_the_minute(clock: Clock) -> None:
    attempts = LoginAttempts(clock)
    for _ in range(10):
        attempts.require("address a", "key k")
        clock.now_s += 1
    with pytest.raises(RequestRefused) as refusal:
        attempts.require("address a", "key other")
    assert (refusal.value.status, refusal.value.retry_after_s) == (429, 50)
    with pytest.raises(RequestRefused):
        attempts.require("address b", "key k")
    attempts.require("address b", "key other")
    clock.now_s += 50.1
    attempts.require("address a", "key k")  # The first attempt is a minute old.


HOSTS = """
host                      allowed
127.0.0.1                 yes
127.0.0.1:9087            yes
[::1]:9087                yes
localhost:9087            yes
LOCALHOST                 yes
192.168.1.5:1             yes
console.example.org       yes
node-7                    yes
evil.example              no
127.0.0.1.evil.example    no
localhost.evil.example    no
127.0.0.1:x               no
[::1                      no
1.2.3.4.5                 no
console.example.org.      no
"""


@pytest.mark.parametrize("line", HOSTS.strip().splitlines()[1:])
def test_hosts(line: str) -> None:
    host, allowed = line.split()
    rules = OriginRules({"node-7", "0.0.0.0"}, "https://console.example.org")
    assert rules.allows_host(host) is (allowed == "yes")


ORIGINS = """
origin                       host             allowed
http://127.0.0.1:9087        127.0.0.1:9087   yes
https://127.0.0.1:9087       127.0.0.1:9087   yes
https://console.example.org  127.0.0.1:9087   yes
HTTPS://Console.Example.Org  127.0.0.1:9087   yes
http://console.example.org   127.0.0.1:9087   no
http://127.0.0.1:8087        127.0.0.1:9087   no
http://localhost:9087        127.0.0.1:9087   no
null                         127.0.0.1:9087   no
-                            127.0.0.1:9087   no
"""


@pytest.mark.parametrize("line", ORIGINS.strip().splitlines()[1:])
def test_origins(line: str) -> None:
    origin, host, allowed = line.split()
    rules = OriginRules({"127.0.0.1"}, "https://console.example.org/")
    assert rules.allows_origin(origin.strip("-"), host) is (allowed == "yes")


def test_without_a_public_address_an_empty_origin_is_refused() -> None:
    rules = OriginRules({"127.0.0.1"}, "")
    assert not rules.allows_origin("", "127.0.0.1:9087")
    assert not rules.allows_host("")


def test_settings_say_what_is_wrong() -> None:
    with pytest.raises(ValueError, match="console_url must be https://HOST"):
        ConsoleSettings("http://h:1", "demo", KEY, public_url="https://h/path")
    with pytest.raises(ValueError, match="port must be 0 to 65535, not -1"):
        ConsoleSettings("http://h:1", "demo", KEY, port=-1)
    with pytest.raises(ValueError, match=r"console_hide must be TABLE\.COLUMN"):
        parse_hidden_columns("orders")
    assert parse_hidden_columns("orders.card, people.home.phone") == {
        ("orders", "card"),
        ("people", "home.phone"),
    }
