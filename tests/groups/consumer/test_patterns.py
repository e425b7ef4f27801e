"""Regular expressions of subscriptions: RE2's syntax, whole names, in linear time."""

from __future__ import annotations

import pytest

from skylog.errors import ErrorCode, KafkaError
from skylog.groups.consumer.patterns import match


def test_a_pattern_matches_whole_names() -> None:
    assert match("logs-.*", ["logs-a", "xlogs-a", "logs-", "other"]) == {"logs-a", "logs-"}
    assert match("^a|b$", ["a", "b", "ab"]) == {"a", "b"}
    assert match(r"(?i)ORDERS[0-9]{2}", ["orders12", "orders1"]) == {"orders12"}


@pytest.mark.parametrize("pattern", ["(", "a**", "(?=x)", r"(a)\1", "[", "a{1001}"])
def test_what_re2_does_not_know_is_an_invalid_regular_expression(pattern: str) -> None:
    with pytest.raises(KafkaError) as refused:
        match(pattern, ["a"])
    assert refused.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION


def test_a_pattern_that_others_take_exponential_time_for_is_fast() -> None:
    assert match("(a|a)*(a*)*b", ["a" * 200]) == frozenset()
