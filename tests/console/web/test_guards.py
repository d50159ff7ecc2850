"""What a request must have before anything is done. Each rule is broken once, on a real server."""

from __future__ import annotations

import json
import time

import pytest

from tests.support.consoles import RunningConsole, Visitor

pytestmark = pytest.mark.system


def key_ids(visitor: Visitor) -> set[str]:
    return {key["id"] for key in visitor.get("/keys.json").document["keys"]}


@pytest.fixture
def victim(console: RunningConsole) -> str:
    """The id of a key that forged requests try to revoke."""
    return console.create_key()["access_key_id"]


def test_a_change_with_origin_and_token_is_made(admin: Visitor, victim: str) -> None:
    answer = admin.change(f"/keys/{victim}/revoke")
    assert (answer.status, answer.location) == (303, "/keys")
    assert f"The key {victim} is revoked" in admin.get("/keys").text
    assert f"The key {victim} is revoked" not in admin.get("/keys").text  # Said once.
    assert victim not in key_ids(admin)


@pytest.mark.parametrize(
    "origin",
    [
        "",
        "null",
        "http://evil.example",
        "http://127.0.0.1.evil.example",
        "http://127.0.0.1:1",
        "file://",
    ],
)
def test_a_change_from_another_origin_changes_nothing(
    admin: Visitor, victim: str, origin: str
) -> None:
    fields = {"csrf": admin.csrf()}
    answer = admin.post(f"/keys/{victim}/revoke", fields, {"Origin": origin})
    assert answer.status == 403
    assert "did not come from a page of this console" in answer.text
    assert victim in key_ids(admin)


@pytest.mark.parametrize("token", ["", "wrong", "\u00e4"])
def test_a_change_without_the_sessions_token_changes_nothing(
    console: RunningConsole, admin: Visitor, victim: str, token: str
) -> None:
    assert admin.post(f"/keys/{victim}/revoke", {"csrf": token}).status == 403
    assert admin.post(f"/keys/{victim}/revoke", {}).status == 403
    other = console.log_in().csrf()  # Of another user's session.
    assert admin.post(f"/keys/{victim}/revoke", {"csrf": other}).status == 403
    assert victim in key_ids(admin)


def test_a_program_sends_the_token_as_a_header(admin: Visitor, victim: str) -> None:
    headers = {
        "Origin": f"http://{admin.host}",
        "X-Csrf-Token": admin.csrf(),
        "Accept": "application/json",
    }
    answer = admin.send("POST", f"/keys/{victim}/revoke", None, headers)
    assert (answer.status, answer.document["done"]) == (200, True)


def test_a_change_by_get_is_none(admin: Visitor, victim: str) -> None:
    assert admin.get(f"/keys/{victim}/revoke?csrf={admin.csrf()}").status == 405
    assert victim in key_ids(admin)


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:9087", "127.0.0.1.evil.example", "a b", "localhost.evil"]
)
def test_an_unknown_host_learns_nothing(admin: Visitor, host: str) -> None:
    # A name that was re-bound to this address: the browser sends our cookie's host no more, but a
    # page that anybody may see must not be readable either.
    for path in ("/", "/login", "/health.json", "/static/x/style.css"):
        answer = admin.get(path, {"Host": host})
        assert answer.status in (400, 421), path  # 400: it is no host at all.
        assert 'name="csrf" value=""' in answer.text or "csrf" not in answer.text


@pytest.mark.parametrize(
    "host", ["localhost", "localhost:1", "[::1]:9087", "10.1.2.3", "LOCALHOST"]
)
def test_addresses_and_localhost_are_known(console: RunningConsole, host: str) -> None:
    assert console.visitor().get("/login", {"Host": host}).status == 200


def test_a_read_only_user_sees_no_button_and_changes_nothing(
    console: RunningConsole, admin: Visitor, victim: str
) -> None:
    reader = console.log_in(read_only=True)
    page = reader.get("/keys").text
    assert victim in page
    assert "/revoke" not in page
    assert "Create a key" not in page
    assert "read-only" in page
    forged = reader.change(f"/keys/{victim}/revoke")
    assert forged.status == 403
    assert "may only read" in forged.text
    assert reader.change("/keys", {"rights": "admin"}).status == 403
    assert victim in key_ids(admin)


def test_a_user_without_the_admin_right_learns_only_that_something_is_wrong(
    console: RunningConsole,
) -> None:
    visitor = console.log_in(admin=False)
    health = visitor.get("/health.json").document
    assert health["is_detailed"] is False
    assert (health["workers"], health["slots"], health["faults"]) == ([], [], [])
    assert visitor.get("/").status == 200
    answer = visitor.get("/keys")
    assert answer.status == 403
    assert "OTSNoPermissionAccess" in answer.text


def test_an_address_may_try_ten_times_a_minute(console: RunningConsole) -> None:
    visitor = console.visitor()
    for number in range(10):
        wrong = {"access_key_id": f"absent{number}", "access_key_secret": "x"}
        assert visitor.post("/login", wrong).status == 403
    answer = visitor.post("/login", console.create_key())
    assert answer.status == 429
    assert 0 < int(answer.headers["Retry-After"]) <= 60
    assert "Try again in" in answer.text
    assert visitor.post("/link", {"code": "x"}).status == 429


def test_a_key_may_be_tried_ten_times_a_minute(console: RunningConsole) -> None:
    key = console.create_key()
    for _ in range(10):
        wrong = {**key, "access_key_secret": "x"}
        assert console.visitor().post("/login", wrong).status == 403
    assert console.visitor().post("/login", key).status == 429


def test_a_session_changes_twenty_times_a_second(console: RunningConsole) -> None:
    visitor = console.log_in()
    token = visitor.csrf()
    began_s = time.monotonic()
    statuses = [
        visitor.post_once("/preferences", {"csrf": token, "theme": "dark"}).status
        for _ in range(60)
    ]
    allowed_max = 20 + 20 * (time.monotonic() - began_s) + 1
    assert statuses[:20] == [303] * 20
    assert statuses.count(303) <= allowed_max
    if allowed_max < 60:  # A machine that is too slow makes no more than 20 a second.
        refused = visitor.post_once("/preferences", {"csrf": token, "theme": "dark"})
        assert 429 in statuses
        assert refused.status in (303, 429)


def test_a_body_over_a_mebibyte_is_refused(admin: Visitor) -> None:
    form = {"Content-Type": "application/x-www-form-urlencoded", "Origin": f"http://{admin.host}"}
    body = b"csrf=" + b"x" * (1024 * 1024)
    answer = admin.send("POST", "/keys", body, form)
    assert answer.status == 413
    assert "more than 1 MiB" in answer.text


def test_every_answer_forbids_what_browsers_allow(admin: Visitor) -> None:
    style = admin.get("/login").text.partition('rel="stylesheet" href="')[2].partition('"')[0]
    for path in ("/", "/login", "/absent", "/health.json", style, "/keys/x/revoke"):
        headers = admin.get(path).headers
        policy = headers["Content-Security-Policy"]
        assert policy.startswith("default-src 'none'; script-src 'self'; "), path
        assert "require-trusted-types-for 'script'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Referrer-Policy"] == "same-origin"
        assert headers["Cross-Origin-Opener-Policy"] == "same-origin"
        is_file = path == style
        assert headers["Cache-Control"] == (
            "public, max-age=31536000, immutable" if is_file else "no-store"
        )


def test_a_fault_is_words_and_a_status(admin: Visitor) -> None:
    answer = admin.get("/absent")
    assert (answer.status, "There is no such page." in answer.text) == (404, True)
    as_json = admin.get("/absent", {"Accept": "application/json"})
    assert as_json.document["error"] == {
        "status": 404,
        "code": "NotFound",
        "message": "There is no such page.",
    }
    chinese = admin.get("/absent", {"Accept-Language": "zh-CN,zh;q=0.9"})
    assert "没有这个页面" in chinese.text
    assert admin.get("/connectors/absent").status == 404


def test_each_change_leaves_one_audit_line(
    console: RunningConsole, admin: Visitor, victim: str
) -> None:
    before = console.output
    admin.change(f"/keys/{victim}/revoke")
    lines = [line for line in console.output[len(before) :].splitlines() if victim in line]
    assert len(lines) == 1
    assert f"key={admin.key['access_key_id']}" in lines[0]
    assert f"method=POST path=/keys/{victim}/revoke status=303" in lines[0]


def test_a_revoked_key_ends_its_sessions(console: RunningConsole, admin: Visitor) -> None:
    visitor = console.log_in()
    assert visitor.get("/").status == 200
    revoked = visitor.key["access_key_id"]
    assert admin.change(f"/keys/{revoked}/revoke").status == 303
    answer = visitor.get("/")
    assert answer.status == 403
    assert "OTSAuthFailed" in answer.text
    assert visitor.get("/").location.startswith("/login")


def test_a_created_key_is_shown_once_and_works(console: RunningConsole, admin: Visitor) -> None:
    answer = admin.change("/keys", {"rights": "read_only", "instances": "demo"})
    assert answer.status == 200
    assert answer.headers["Cache-Control"] == "no-store"
    before = {"csrf": admin.csrf(), "rights": "read_only"}
    made = admin.post("/keys", before, {"Accept": "application/json"}).document
    secret = made["access_key_secret"]
    fields = {"access_key_id": made["created"]["id"], "access_key_secret": secret}
    visitor = console.visitor()
    assert visitor.post("/login", fields).status == 303
    assert "read-only" in visitor.get("/").text
    assert secret not in json.dumps(admin.get("/keys.json").document)
    assert secret not in console.output
