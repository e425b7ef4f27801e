"""PLAIN, and the JAAS settings that have its users."""

from __future__ import annotations

import pytest

from skylog.errors import ConfigError
from skylog.security.jaas import parse_jaas, plain_users
from skylog.security.plain import PlainExchange
from skylog.security.sasl import LoginError

TEXT = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="a" user_bob="b \\"c\\";" user_x=y ;'


def test_jaas_options_may_be_quoted() -> None:
    assert parse_jaas(TEXT) == {"username": "a", "user_bob": 'b "c";', "user_x": "y"}
    assert plain_users(parse_jaas(TEXT)) == {"bob": 'b "c";', "x": "y"}


@pytest.mark.parametrize("text", ["", "a.b", "a required x=1", "a required secret;", 'a required x="secret;'])
def test_invalid_jaas_settings_are_an_error_without_their_text(text: str) -> None:
    with pytest.raises(ConfigError) as raised:
        parse_jaas(text)
    assert "secret" not in str(raised.value)


def test_a_right_password_identifies_the_user() -> None:
    exchange = PlainExchange({"bob": "b"})
    assert exchange.respond(b"\0bob\0b") == b""
    assert exchange.identity is not None
    assert exchange.identity.user == "bob"
    assert PlainExchange({"bob": "b"}).respond(b"bob\0bob\0b") == b""


@pytest.mark.parametrize(
    "token",
    [b"", b"bob", b"\0bob\0x", b"\0eve\0b", b"eve\0bob\0b", b"\0\0", b"\0bob\0b\0", b"\0nopassword\0", b"\xff\0a\0b"],
)
def test_anything_else_is_refused(token: bytes) -> None:
    exchange = PlainExchange({"bob": "b", "nopassword": ""})
    with pytest.raises(LoginError):
        exchange.respond(token)
    assert exchange.identity is None
