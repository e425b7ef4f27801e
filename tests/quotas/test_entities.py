"""Entities, values and filters of quotas, with Kafka's errors."""

from __future__ import annotations

import math

import pytest

from skylog.errors import ErrorCode, KafkaError
from skylog.quotas import Entity, QuotaFilter, QuotaKey, apply_changes, check_entity, describe_entity

ALICE: Entity = (("user", "alice"),)


def test_the_parts_of_an_entity_are_in_order() -> None:
    assert check_entity([("client-id", None), ("user", "u")]) == (("user", "u"), ("client-id", None))
    assert describe_entity((("user", "u"), ("client-id", None))) == "user u, any client-id"
    assert check_entity([("ip", "::1")]) == (("ip", "::1"),)


@pytest.mark.parametrize(
    "parts",
    [
        [],
        [("group", "g")],
        [("user", "")],
        [("user", "a"), ("user", "b")],
        [("ip", "127.0.0.1"), ("user", "a")],
        [("ip", "no address")],
    ],
)
def test_an_entity_that_cannot_have_quotas_is_invalid(parts: list[tuple[str, str | None]]) -> None:
    with pytest.raises(KafkaError) as error:
        check_entity(parts)
    assert error.value.code is ErrorCode.INVALID_REQUEST


def test_quotas_are_set_replaced_and_removed() -> None:
    quotas = apply_changes(ALICE, {}, [("producer_byte_rate", 5.0), ("request_percentage", 0.5)])
    quotas = apply_changes(ALICE, quotas, [("producer_byte_rate", 6.0), ("request_percentage", None)])
    assert quotas == {QuotaKey.PRODUCER_BYTE_RATE: 6.0}
    assert apply_changes(ALICE, {}, [("consumer_byte_rate", None)]) == {}


@pytest.mark.parametrize(
    "changes",
    [
        [("producer_byte_rate", 0.0)],
        [("producer_byte_rate", -1.0)],
        [("producer_byte_rate", math.nan)],
        [("producer_byte_rate", math.inf)],
        [("producer_byte_rate", 1.5)],
        [("connection_creation_rate", 1.0)],
        [("unknown", 1.0)],
        [("unknown", None)],
        [("producer_byte_rate", 1.0), ("producer_byte_rate", None)],
    ],
)
def test_a_change_that_makes_no_sense_is_invalid(changes: list[tuple[str, float | None]]) -> None:
    with pytest.raises(KafkaError) as error:
        apply_changes(ALICE, {}, changes)
    assert error.value.code is ErrorCode.INVALID_REQUEST


def test_an_address_has_a_rate_of_connections_and_nothing_else() -> None:
    address: Entity = (("ip", None),)
    assert apply_changes(address, {}, [("connection_creation_rate", 3.0)])
    for key, value in (("producer_byte_rate", 1.0), ("connection_creation_rate", 2.0**31)):
        with pytest.raises(KafkaError):
            apply_changes(address, {}, [(key, value)])


def test_filters_select_by_name_by_default_by_type_and_strictly() -> None:
    both: Entity = (("user", "alice"), ("client-id", None))
    assert [each for each in (ALICE, both) if QuotaFilter({"user": "alice"}).matches(each)] == [ALICE, both]
    assert [each for each in (ALICE, both) if QuotaFilter({"user": "alice"}, strict=True).matches(each)] == [ALICE]
    assert [each for each in (ALICE, both) if QuotaFilter({"client-id": None}).matches(each)] == [both]
    assert not QuotaFilter({"user": None}).matches(ALICE)
    assert QuotaFilter({}, frozenset({"user"}), strict=True).matches(ALICE)
    assert not QuotaFilter({}, frozenset({"client-id"})).matches(ALICE)
    assert QuotaFilter({}).matches(both)
