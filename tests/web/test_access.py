"""The rules of access that the console and the registry share. Both are tested with them against listening servers."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from starlette.datastructures import Headers

from skylog.errors import ConfigError
from skylog.web.access import check_access, forbidden_change, foreign_host, foreign_origin


@dataclass(frozen=True)
class Rules:
    host: str = "127.0.0.1"
    read_only: bool = False
    token: str | None = None
    user: str | None = None
    password: str | None = None

    @property
    def requires_credentials(self) -> bool:
        return bool(self.token or self.user)


@pytest.mark.parametrize(
    ("rules", "word"),
    [(Rules(host="0.0.0.0"), "--x-token"), (Rules(user="ada"), "--x-password"), (Rules(password="p"), "--x-user")],
)
def test_unsafe_settings_are_refused_with_the_option_to_set(rules: Rules, word: str) -> None:
    with pytest.raises(ConfigError, match=word):
        check_access(rules, "--x-")


def test_an_open_address_is_accepted_with_credentials() -> None:
    check_access(Rules(host="0.0.0.0", token="t"))
    check_access(Rules(host="0.0.0.0", user="ada", password="p"))


@pytest.mark.parametrize(("host", "refused"), [("evil.example", True), ("127.0.0.1:80", False), ("[::1]:80", False)])
def test_a_foreign_host_is_refused_without_credentials(host: str, refused: bool) -> None:
    refusal = foreign_host(Rules(), Headers({"host": host}), "registry")
    assert (refusal is not None) is refused
    assert foreign_host(Rules(token="t"), Headers({"host": host}), "registry") is None


@pytest.mark.parametrize(
    ("headers", "method", "refused"),
    [
        ({"sec-fetch-site": "cross-site"}, "POST", True),
        ({"origin": "http://evil.example", "host": "127.0.0.1"}, "PUT", True),
        ({"sec-fetch-site": "cross-site", "sec-fetch-mode": "cors"}, "GET", True),
        ({"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}, "GET", False),
        ({"sec-fetch-site": "same-origin"}, "POST", False),
        ({}, "DELETE", False),
    ],
)
def test_pages_of_other_origins_change_nothing(headers: dict[str, str], method: str, refused: bool) -> None:
    assert (foreign_origin(Headers(headers), method) is not None) is refused


def test_a_read_only_server_forbids_changes() -> None:
    refusal = forbidden_change(Rules(read_only=True), "registry")
    assert refusal is not None
    assert refusal.status == 403
    assert forbidden_change(Rules(), "registry") is None
