"""Access control, tested against a listening console."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import httpx
import pytest

from skylog.testing import BrokerProcess
from tests.cli.commands import run_skylog
from tests.console.conftest import RunningConsole, running_console

TOKEN = "correct-horse"


@pytest.fixture(scope="module")
def locked(broker: BrokerProcess) -> Iterator[RunningConsole]:
    with running_console(broker, environment={"SKYLOG_CONSOLE_TOKEN": TOKEN}) as running:
        yield running


@pytest.fixture(scope="module")
def with_user(broker: BrokerProcess) -> Iterator[RunningConsole]:
    with running_console(broker, "--user", "ada", "--password", "pass: word") as running:
        yield running


@pytest.fixture(scope="module")
def read_only(broker: BrokerProcess) -> Iterator[RunningConsole]:
    with running_console(broker, "--read-only") as running:
        yield running


# -- the Host header


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8080", "127.0.0.1.evil.example", "", "[::1", "localhost."]
)
def test_a_foreign_host_name_is_refused(console: RunningConsole, host: str) -> None:
    assert console.get("/topics.json", headers={"host": host}).status_code == 421


@pytest.mark.parametrize("host", ["localhost", "localhost:8080", "127.0.0.1", "127.9.9.9:1", "[::1]:8080"])
def test_names_of_this_machine_are_ours(console: RunningConsole, host: str) -> None:
    assert console.get("/topics.json", headers={"host": host}).status_code == 200


def test_with_credentials_every_host_name_is_accepted(locked: RunningConsole) -> None:
    headers = {"host": "console.example", "authorization": f"Bearer {TOKEN}"}
    assert locked.get("/topics.json", headers=headers).status_code == 200


# -- the origin of a request

CREATE = {"action": "create", "name": "never-created", "partitions": "1"}


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "https://127.0.0.1"},
        {"origin": "http://127.0.0.1:1"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"sec-fetch-site": "cross-site", "origin": ""},
    ],
)
def test_a_change_from_a_page_of_another_origin_is_refused(console: RunningConsole, headers: dict[str, str]) -> None:
    answer = console.client.post("/topics", data=CREATE, headers=headers)
    assert answer.status_code == 403
    assert "another origin" in answer.json()["error"]
    assert console.get("/topics/never-created.json").status_code == 404


@pytest.mark.parametrize("path", ["/topics.json", "/topics/t/messages/export", "/topics/t/messages/follow", "/metrics"])
@pytest.mark.parametrize(("mode", "target"), [("no-cors", "image"), ("cors", "empty"), ("navigate", "iframe")])
def test_a_page_of_another_site_cannot_make_the_console_work(
    console: RunningConsole, path: str, mode: str, target: str
) -> None:
    headers = {"sec-fetch-site": "cross-site", "sec-fetch-mode": mode, "sec-fetch-dest": target}
    assert console.get(path, headers=headers).status_code == 403


def test_a_link_on_another_site_leads_to_a_page(console: RunningConsole) -> None:
    headers = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
    assert console.get("/topics", headers=headers).status_code == 200


def test_a_change_from_our_own_page_is_made(console: RunningConsole) -> None:
    answer = console.post("/topics", **(CREATE | {"name": "created-by-form"}))
    assert answer.status_code == 303, answer.text
    assert console.get("/topics/created-by-form.json").status_code == 200


def test_a_program_that_is_no_browser_may_change_things(console: RunningConsole) -> None:
    document = {"action": "create", "name": "created-by-program", "partitions": 1}
    answer = console.client.post("/topics", json=document, headers={"accept": "application/json"})
    assert answer.status_code == 200, answer.text


# -- credentials


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"authorization": "Bearer wrong"},
        {"authorization": "Bearer"},
        {"authorization": f"Bearer {TOKEN}x"},
        {"authorization": f"Basic {TOKEN}"},
        {"cookie": "skylog_session=99999999999.0"},
        {"cookie": "skylog_session="},
        {"cookie": "skylog_session=²."},
    ],
)
@pytest.mark.parametrize("path", ["/", "/topics.json", "/metrics", "/nowhere", "/group?name=x"])
def test_without_the_token_nothing_is_shown(locked: RunningConsole, headers: dict[str, str], path: str) -> None:
    encoded = {name.encode(): value.encode() for name, value in headers.items()}
    answer = locked.client.get(path, headers=encoded)
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"] == "Bearer"


def test_a_browser_is_sent_to_the_login_page_and_back(locked: RunningConsole) -> None:
    with httpx.Client(base_url=locked.url, headers={"accept": "text/html"}) as browser:
        answer = browser.get("/topics?internal=1")
        assert answer.status_code == 303
        page = answer.headers["location"]
        assert browser.get(page).status_code == 200
        assert browser.post(page, data={"token": "wrong"}).status_code == 401
        answer = browser.post(page, data={"token": TOKEN})
        assert (answer.status_code, answer.headers["location"]) == (303, "/topics?internal=1")
        assert {"httponly", "samesite=strict"} <= set(answer.headers["set-cookie"].lower().split("; "))
        assert browser.get("/topics").status_code == 200
        assert browser.post("/logout").status_code == 303
        assert browser.get("/topics").status_code == 303


@pytest.mark.parametrize("target", ["//evil.example", "/\\evil.example", "https://evil.example", "javascript:alert(1)"])
def test_the_login_page_leads_to_no_other_site(locked: RunningConsole, target: str) -> None:
    answer = httpx.post(f"{locked.url}/login", params={"next": target}, data={"token": TOKEN})
    assert (answer.status_code, answer.headers["location"]) == (303, "/")


def test_a_user_logs_in_with_a_password(with_user: RunningConsole) -> None:
    assert with_user.client.get("/topics.json").headers["www-authenticate"] == "Basic"
    assert with_user.client.get("/topics.json", auth=("ada", "pass: word")).status_code == 200
    for user, password in (("ada", "wrong"), ("bob", "pass: word"), ("", ""), ("ada", "")):
        assert with_user.client.get("/topics.json", auth=(user, password)).status_code == 401


def test_health_needs_no_credentials_and_contains_no_names(locked: RunningConsole) -> None:
    assert locked.client.get("/health").json() == {"healthy": True}


def test_secrets_are_not_in_any_page(locked: RunningConsole) -> None:
    page = locked.client.get("/login").text
    assert TOKEN not in page
    assert locked.broker.bootstrap not in page  # the login page is public


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--host", "0.0.0.0"], "give access to everyone"),
        (["--host", "::"], "give access to everyone"),
        (["--host", "192.0.2.7"], "give access to everyone"),
        (["--user", "ada"], "--user and --password go together"),
        (["--password", "secret"], "--user and --password go together"),
    ],
)
def test_a_console_that_would_give_access_to_everyone_does_not_start(options: list[str], expected: str) -> None:
    ended = run_skylog("console", "--port", "0", *options)
    assert ended.returncode == 1
    assert expected in " ".join(ended.stderr.split())


# -- read-only


def test_read_only_shows_and_changes_nothing(read_only: RunningConsole) -> None:
    assert read_only.get("/topics.json").status_code == 200
    answer = read_only.post("/topics", **(CREATE | {"name": "read-only-created"}))
    assert answer.status_code == 403
    assert "read-only" in answer.json()["error"]
    assert read_only.get("/topics/read-only-created.json").status_code == 404


def test_one_can_log_in_and_out_of_a_read_only_console(broker: BrokerProcess) -> None:
    with running_console(broker, "--read-only", environment={"SKYLOG_CONSOLE_TOKEN": TOKEN}) as running:
        assert running.client.post("/login", data={"token": TOKEN}).status_code == 303
        assert running.client.get("/topics.json").status_code == 200
        assert running.client.post("/logout").status_code == 303
        assert running.client.get("/topics.json").status_code == 401


# -- headers of every response


@pytest.mark.parametrize("path", ["/", "/topics.json", "/nowhere", "/static/console.js", "/metrics"])
def test_every_answer_forbids_foreign_scripts_frames_and_guessing_of_types(console: RunningConsole, path: str) -> None:
    headers = console.get(path).headers
    policy = dict(part.split(" ", 1) for part in headers["content-security-policy"].split("; "))
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == "'self'"
    assert policy["frame-ancestors"] == "'none'"
    assert headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize(
    "path",
    [
        "/static/../app.py",
        "/static/..%2fapp.py",
        "/static/%2e%2e/app.py",
        "/static/....//app.py",
        "/static//etc/passwd",
        "/static/..\\app.py",
        "/topics/../static/../guard.py",
    ],
)
def test_no_path_leads_out_of_the_static_files(console: RunningConsole, path: str) -> None:
    """Sent as it is: httpx would tidy it up."""
    host, port = console.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=10) as raw:
        raw.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
        answer = b"".join(iter(lambda: raw.recv(65536), b""))
    assert b"from __future__" not in answer
    assert b"root:" not in answer
    assert answer.split()[1] in (b"404", b"400", b"405")
