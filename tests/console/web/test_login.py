"""Who gets in, for how long, and who does not. On a real server."""

from __future__ import annotations

import json

import pytest

from tests.support.consoles import RunningConsole, Visitor

pytestmark = pytest.mark.system

PLAIN = {"Content-Type": "application/json", "Accept": "application/json"}


@pytest.fixture
def key(console: RunningConsole) -> dict[str, str]:
    """The fields of a log-in with a new key."""
    return console.create_key()


def make_code(visitor: Visitor, key: dict[str, str]) -> str:
    """Return the code of a new one-time link."""
    answer = visitor.send("POST", "/links", json.dumps(key).encode(), PLAIN)
    assert answer.status == 200, answer.text
    return str(answer.document["code"])


def test_a_stranger_is_sent_to_the_log_in_and_back(
    console: RunningConsole, key: dict[str, str]
) -> None:
    visitor = console.visitor()
    answer = visitor.get("/keys?x=1")
    assert (answer.status, answer.location) == (303, "/login?to=%2Fkeys%3Fx%3D1")
    page = visitor.get(answer.location)
    assert 'name="to" value="/keys?x=1"' in page.text
    done = visitor.post("/login", {**key, "to": "/keys?x=1"})
    assert (done.status, done.location) == (303, "/keys?x=1")
    assert visitor.get("/keys").status == 200


def test_a_program_without_a_session_gets_401(console: RunningConsole) -> None:
    answer = console.visitor().get("/health.json")
    assert (answer.status, answer.document["error"]["code"]) == (401, "LoginNeeded")


def test_the_cookie_is_out_of_reach_of_scripts_and_other_sites(
    console: RunningConsole, key: dict[str, str]
) -> None:
    visitor = console.visitor()
    answer = visitor.post("/login", key)
    cookie = answer.headers["Set-Cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert "max-age=43200" in cookie
    assert "secure" not in cookie  # Plain HTTP on this machine.
    through_tls = {"Origin": f"https://{visitor.host}"}
    behind_proxy = visitor.post("/login", {**key, "csrf": visitor.csrf()}, through_tls)
    assert "; secure" in behind_proxy.headers["Set-Cookie"].lower()


@pytest.mark.parametrize(
    "to", ["//evil.example", "https://evil.example", "/\\evil.example", "/\nx", "javascript:x"]
)
def test_the_log_in_leads_nowhere_else(admin: Visitor, to: str) -> None:
    answer = admin.post("/preferences", {"csrf": admin.csrf(), "back": to})
    assert (answer.status, answer.location) == (303, "/")


@pytest.mark.parametrize(
    "wrong", [{"access_key_secret": "wrong"}, {"access_key_id": "absent"}, {"instance": "absent"}]
)
def test_a_wrong_key_is_refused_in_words(
    console: RunningConsole, key: dict[str, str], wrong: dict[str, str]
) -> None:
    visitor = console.visitor()
    answer = visitor.post("/login", {**key, **wrong})
    assert answer.status == 403
    assert "does not accept this access key" in answer.text
    assert key["access_key_secret"] not in answer.text
    assert visitor.get("/").status == 303


@pytest.mark.parametrize(
    ("to", "reached"),
    [("/dashboards/departures", "/dashboards/departures"), ("//evil.example", "/"), ("", "/")],
)
def test_a_link_leads_to_a_page_of_this_console(
    console: RunningConsole, key: dict[str, str], to: str, reached: str
) -> None:
    code = make_code(console.visitor(), key)
    visitor = console.visitor()
    assert f'name="to" value="{reached}"' in visitor.get(f"/link?to={to}").text
    assert visitor.post("/link", {"code": code, "to": to}).location == reached


def test_a_link_logs_in_once(console: RunningConsole, key: dict[str, str]) -> None:
    code = make_code(console.visitor(), key)
    first, second = console.visitor(), console.visitor()
    page = first.get("/link")
    assert page.status == 200
    assert "link.js" in page.text
    assert first.post("/link", {"code": code}).location == "/"
    assert first.get("/").status == 200
    refused = second.post("/link", {"code": code})
    assert refused.status == 403
    assert "was used before" in refused.text
    assert second.get("/").status == 303


def test_a_link_is_made_for_a_key_alone(console: RunningConsole, key: dict[str, str]) -> None:
    visitor = console.visitor()
    wrong = {**key, "access_key_secret": "wrong"}
    assert visitor.send("POST", "/links", json.dumps(wrong).encode(), PLAIN).status == 403
    assert visitor.send("POST", "/links", b"[]", PLAIN).status == 400
    right = json.dumps(key).encode()
    # What a page of another site can send: its Origin, or a form's type of content.
    foreign = {**PLAIN, "Origin": "http://evil.example"}
    assert visitor.send("POST", "/links", right, foreign).status == 403
    form = {**PLAIN, "Content-Type": "text/plain"}
    assert visitor.send("POST", "/links", right, form).status == 403
    assert visitor.send("POST", "/links", right, PLAIN).status == 200


def test_after_a_log_out_the_cookie_is_worth_nothing(admin: Visitor) -> None:
    kept = dict(admin.cookies)
    assert admin.change("/logout").location == "/login"
    admin.cookies = kept
    assert admin.get("/").status == 303


def test_a_new_log_in_ends_the_former_session(
    console: RunningConsole, admin: Visitor, key: dict[str, str]
) -> None:
    kept = dict(admin.cookies)
    assert admin.post("/login", {**key, "csrf": admin.csrf()}).status == 303
    assert admin.cookies != kept
    former = console.visitor()
    former.cookies = kept
    assert former.get("/").status == 303


def test_language_and_colours_are_kept_without_a_log_in(console: RunningConsole) -> None:
    visitor = console.visitor()
    assert '<html lang="en">' in visitor.get("/login").text
    chosen = {"language": "zh", "theme": "dark", "back": "/login?to=/keys"}
    answer = visitor.post("/preferences", chosen)
    assert (answer.status, answer.location) == (303, "/login?to=/keys")
    page = visitor.get("/login").text
    assert '<html lang="zh" data-theme="dark">' in page
    assert "访问密钥" in page
    visitor.post("/preferences", {"language": "xx", "theme": "auto"})
    assert '<html lang="zh">' in visitor.get("/login").text
