"""OAUTHBEARER: tokens that are right, and all kinds of tokens that are not."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from joserfc import jwt
from joserfc.jwk import ECKey, KeySet

from skylog.security.oauth import OAuthExchange, TokenRules
from skylog.security.sasl import LoginError

NOW = 1_700_000_000.0
KEY, OTHER = ECKey.generate_key("P-256", {"kid": "one"}), ECKey.generate_key("P-256", {"kid": "one"})
CLAIMS: dict[str, Any] = {"sub": "alice", "exp": NOW + 60, "aud": ["kafka", "x"], "iss": "https://issuer"}
RULES = TokenRules(audiences=("kafka",), issuer="https://issuer", clock_skew_s=5)


def signed(claims: dict[str, Any], key: ECKey = KEY) -> bytes:
    return message(jwt.encode({"alg": "ES256", "kid": "one"}, claims, key))


def message(token: str) -> bytes:
    return b"n,,\x01auth=Bearer " + token.encode() + b"\x01\x01"


def login(token: bytes) -> OAuthExchange:
    exchange = OAuthExchange(KeySet([KEY]), RULES, lambda: NOW)
    exchange.respond(token)
    return exchange


def test_a_signed_token_identifies_the_user_until_it_expires() -> None:
    assert login(signed(CLAIMS)).identity == ("alice", 60.0)


def test_a_token_of_a_moment_ago_is_accepted_within_the_skew_of_clocks() -> None:
    assert login(signed(CLAIMS | {"exp": NOW - 3})).identity == ("alice", 1.0)


def with_header(header: dict[str, Any]) -> bytes:
    parts = [base64.urlsafe_b64encode(json.dumps(each).encode()).decode().rstrip("=") for each in (header, CLAIMS)]
    return message(".".join([*parts, ""]))


@pytest.mark.parametrize(
    "token",
    [
        signed(CLAIMS, OTHER),
        with_header({"alg": "none"}),
        signed(CLAIMS | {"exp": NOW - 6}),
        signed(CLAIMS | {"exp": True}),
        signed(CLAIMS | {"exp": float("inf")}),
        signed(CLAIMS | {"exp": float("nan")}),
        signed(CLAIMS | {"exp": 10**400}),
        signed({key: value for key, value in CLAIMS.items() if key != "exp"}),
        signed(CLAIMS | {"nbf": NOW + 60}),
        signed(CLAIMS | {"aud": "other"}),
        signed(CLAIMS | {"aud": 7}),
        signed(CLAIMS | {"aud": [{"a": "kafka"}]}),
        signed({key: value for key, value in CLAIMS.items() if key != "aud"}),
        signed(CLAIMS | {"iss": "https://else"}),
        signed(CLAIMS | {"sub": ""}),
        signed(CLAIMS | {"sub": 7}),
        signed(CLAIMS).replace(b"n,,", b"n,a=bob,"),
        message("a.b.c"),
        with_header({"alg": "ES256", "kid": "one", "crit": 5}),
        with_header({"alg": "HS256", "kid": "one"}),
        b"",
        b"n,,\x01\x01",
        message("a" * 70_000),
    ],
)
def test_any_other_token_is_refused(token: bytes) -> None:
    with pytest.raises(LoginError):
        login(token)
