"""Heartbeats that Kafka refuses, with its error codes and messages."""

from __future__ import annotations

from typing import Any

import pytest

from skylog.errors import ErrorCode, KafkaError
from skylog.groups.consumer import Heartbeat, check_heartbeat

JOIN = Heartbeat("m", 0, None, None, 60_000, frozenset({"t"}), None, None, {})


def refused(heartbeat: Heartbeat, *, needs_id: bool = True) -> ErrorCode | None:
    try:
        check_heartbeat(heartbeat, needs_id=needs_id, assignors=("uniform", "range"))
    except KafkaError as error:
        return error.code
    return None


@pytest.mark.parametrize(
    "changes",
    [
        {"member_id": ""},
        {"member_id": "", "epoch": 1},
        {"member_id": "", "epoch": -1},
        {"instance_id": ""},
        {"rack_id": ""},
        {"epoch": -2},
        {"epoch": -3},
        {"rebalance_timeout_ms": -1},
        {"owned": None},
        {"owned": {"topic": frozenset({1})}},
        {"topic_names": None, "pattern": None},
    ],
)
def test_an_invalid_heartbeat_is_an_invalid_request(changes: dict[str, Any]) -> None:
    assert refused(JOIN._replace(**changes)) is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"epoch": -2, "instance_id": "one"},
        {"topic_names": None, "pattern": ""},
        {"topic_names": frozenset(), "pattern": None},
        {"epoch": 3, "rebalance_timeout_ms": -1, "owned": None, "topic_names": None},
        {"assignor": "range"},
    ],
)
def test_a_valid_heartbeat_passes(changes: dict[str, Any]) -> None:
    assert refused(JOIN._replace(**changes)) is None


def test_only_a_join_of_version_0_needs_no_member_id() -> None:
    assert refused(JOIN._replace(member_id=""), needs_id=False) is None
    assert refused(JOIN._replace(member_id="", epoch=1), needs_id=False) is ErrorCode.INVALID_REQUEST


def test_an_unknown_assignor_is_unsupported() -> None:
    assert refused(JOIN._replace(assignor="sticky")) is ErrorCode.UNSUPPORTED_ASSIGNOR
