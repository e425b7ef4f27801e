"""A registry that is no longer elected."""

from __future__ import annotations

import asyncio
from typing import Any
from unittest.mock import AsyncMock, MagicMock

import pytest
from confluent_kafka import KafkaError, KafkaException

from skylog.registry import registry as registry_module
from skylog.registry.changes import Change
from skylog.registry.errors import RegistryError
from skylog.registry.registry import Registry
from skylog.registry.settings import RegistrySettings


def test_it_reads_to_the_end_before_it_says_that_something_is_missing() -> None:
    """Until then its writer is open, but others may have written."""

    async def run() -> None:
        registry: Any = Registry(RegistrySettings("127.0.0.1:1"), "http://127.0.0.1:1")
        registry._follower = MagicMock(reach_end=AsyncMock())
        registry._is_elected, registry._writer = True, MagicMock()
        await registry.refresh()
        assert registry._follower.reach_end.await_count == 0, "nobody else writes"
        registry._elected(False)
        await registry.refresh()
        assert registry._follower.reach_end.await_count == 1

    asyncio.run(run())


def test_a_change_that_was_under_way_does_not_make_its_state_complete() -> None:
    """Another registry may have written between its two elections."""

    async def run() -> None:
        registry: Any = Registry(RegistrySettings("127.0.0.1:1"), "http://127.0.0.1:1")
        registry._prepare = AsyncMock()
        registry._follower = MagicMock(position=7, reach=AsyncMock())
        registry._elected(True)
        assert await registry._append(MagicMock(), Change((), {}))
        assert registry._is_settled
        registry._follower.reach.side_effect = lambda end: registry._elected(False)
        assert await registry._append(MagicMock(), Change((), {}))
        registry._elected(True)
        assert not registry._is_settled

    asyncio.run(run())


def test_a_topic_that_was_deleted_is_named_and_does_not_keep_changes_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry_module, "RETRY_S", 0.0)
    monkeypatch.setattr(registry_module, "Writer", MagicMock())

    async def run() -> None:
        registry: Any = Registry(RegistrySettings("127.0.0.1:1"), "http://127.0.0.1:1")
        missing = KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))
        registry._follower = MagicMock(position=7, reach_end=AsyncMock(side_effect=missing), reach=AsyncMock())
        registry._is_elected = True
        with pytest.raises(RegistryError, match="topic '_schemas' was deleted") as failed:
            await registry.write(AsyncMock())
        assert failed.value.code == 50001
        assert registry._follower.reach_end.await_count == registry_module.MISSES
        registry._follower.reach_end.side_effect = None
        assert await registry.write(AsyncMock(return_value=Change((), {})))
        assert registry.problem is None

    asyncio.run(run())
