"""What is asked of another broker while it is busy goes into its next request."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from skylog.broker.peer_batches import PeerBatches
from skylog.errors import ErrorCode, KafkaError


class Peer:
    """Answers when it is told to, with the items doubled."""

    def __init__(self) -> None:
        self.sent: list[tuple[int, list[int]]] = []
        self.may_answer = asyncio.Event()
        self.batches = PeerBatches(self.send)

    async def send(self, node_id: int, items: Sequence[int]) -> list[int]:
        self.sent.append((node_id, list(items)))
        await self.may_answer.wait()
        if 13 in items:
            raise KafkaError(ErrorCode.NETWORK_EXCEPTION, "lost")
        return [] if 14 in items else [2 * each for each in items]


async def _steps(count: int = 3) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def test_items_are_collected_per_broker_while_a_request_is_under_way() -> None:
    async def scenario() -> None:
        peer = Peer()
        first = asyncio.gather(peer.batches.ask(1, 1), peer.batches.ask(2, 5))
        await _steps()
        later = asyncio.gather(peer.batches.ask(1, 2), peer.batches.ask(1, 3))
        await _steps()
        assert peer.sent == [(1, [1]), (2, [5])]
        peer.may_answer.set()
        assert list(await first) == [2, 10]
        assert list(await later) == [4, 6]
        assert peer.sent[2:] == [(1, [2, 3])]
        assert await peer.batches.ask(1, 4) == 8

    asyncio.run(scenario())


@pytest.mark.parametrize("item", [13, 14], ids=["an error", "a short answer"])
def test_a_failure_concerns_one_request_only(item: int) -> None:
    async def scenario() -> None:
        peer = Peer()
        peer.may_answer.set()
        with pytest.raises(KafkaError) as failed:
            await peer.batches.ask(1, item)
        assert failed.value.code is ErrorCode.NETWORK_EXCEPTION
        assert await peer.batches.ask(1, 1) == 2

    asyncio.run(scenario())


def test_stopping_fails_everything_that_waits() -> None:
    async def scenario() -> None:
        peer = Peer()
        asked = [asyncio.create_task(peer.batches.ask(1, 1))]
        await _steps()
        asked.append(asyncio.create_task(peer.batches.ask(1, 2)))
        await _steps()
        await peer.batches.stop()
        outcomes = await asyncio.gather(*asked, return_exceptions=True)
        assert [isinstance(each, KafkaError) for each in outcomes] == [True, True]

    asyncio.run(scenario())
