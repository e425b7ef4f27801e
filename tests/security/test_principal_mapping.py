"""Principals from the subjects of certificates."""

from __future__ import annotations

import pytest

from skylog.errors import ConfigError
from skylog.security.principal_mapping import distinguished_name, mapper

SUBJECT = ((("countryName", "DE"),), (("organizationName", "Skylog, Inc."),), (("commonName", "alice"),))


def test_the_distinguished_name_is_in_the_order_of_rfc_2253_and_escaped() -> None:
    assert distinguished_name({"subject": SUBJECT}) == r"CN=alice,O=Skylog\, Inc.,C=DE"


def test_a_value_cannot_pose_as_another_part() -> None:
    assert distinguished_name({"subject": ((("commonName", "eve,CN=admin"),),)}) == r"CN=eve\,CN=admin"


@pytest.mark.parametrize(
    ("rules", "name", "mapped"),
    [
        ("DEFAULT", "CN=Alice,O=x", "CN=Alice,O=x"),
        ("RULE:^CN=(.*?),O=x$/$1/, DEFAULT", "CN=Alice,O=x", "Alice"),
        ("RULE:^CN=(.*?), O=x$/$1/L,DEFAULT", "CN=Alice, O=x", "alice"),
        ("RULE:^CN=(.*?),O=(.*?)$/$1@$2/U", "CN=Alice,O=x", "ALICE@X"),
        ("RULE:^CN=(.*?),O=y$/$1/,DEFAULT", "CN=Alice,O=x", "CN=Alice,O=x"),
    ],
)
def test_the_first_rule_that_matches_counts(rules: str, name: str, mapped: str) -> None:
    assert mapper(rules)(name) == mapped


def test_a_name_that_no_rule_matches_is_refused() -> None:
    with pytest.raises(ConfigError, match="no rule"):
        mapper("RULE:^CN=bob$/bob/")("CN=alice")


@pytest.mark.parametrize("rule", ["RULE:(/a/", "RULE:a", "RULE:CN=(.*)/$2/", "nonsense"])
def test_an_invalid_rule_is_an_error(rule: str) -> None:
    with pytest.raises(ConfigError):
        mapper(rule)
