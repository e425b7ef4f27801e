"""Collects what is to be asked of another broker while it is busy with the previous request, and asks it at once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final, Generic, TypeVar

from skylog.errors import ErrorCode, KafkaError

MAX_ITEMS: Final = 500

Item = TypeVar("Item")
Result = TypeVar("Result")


class PeerBatches(Generic[Item, Result]):
    """Sends items to brokers, in one request per broker at a time. Use it on the event loop only.

    `send` gets the id of a broker and items for it, and returns their results in the same order, or raises KafkaError.
    """

    def __init__(self, send: Callable[[int, Sequence[Item]], Awaitable[Sequence[Result]]]) -> None:
        self._send = send
        self._waiting: dict[int, list[tuple[Item, asyncio.Future[Result]]]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def ask(self, node_id: int, item: Item) -> Result:
        """Return the result of an item. Raises KafkaError."""
        future: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        if node_id in self._waiting:
            self._waiting[node_id].append((item, future))
        else:
            self._waiting[node_id] = [(item, future)]
            task = asyncio.create_task(self._serve(node_id))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return await future

    async def _serve(self, node_id: int) -> None:
        """Send to a broker until nothing is left."""
        while waiting := self._waiting[node_id]:
            batch, self._waiting[node_id] = waiting[:MAX_ITEMS], waiting[MAX_ITEMS:]
            try:
                results = await self._send(node_id, [item for item, _ in batch])
                if len(results) != len(batch):
                    raise KafkaError(ErrorCode.NETWORK_EXCEPTION, f"broker {node_id} did not answer everything")
            except Exception as error:  # the waiting callers raise it
                _fail(batch, error)
            except asyncio.CancelledError:
                stopped = KafkaError(ErrorCode.NETWORK_EXCEPTION, "this broker is stopping")
                _fail([*batch, *self._waiting.pop(node_id)], stopped)
                raise
            else:
                for (_, future), result in zip(batch, results, strict=True):
                    if not future.done():
                        future.set_result(result)
        del self._waiting[node_id]

    async def stop(self) -> None:
        """Fail everything that waits."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def _fail(waiting: Iterable[tuple[object, asyncio.Future[Result]]], error: Exception) -> None:
    for _, future in waiting:
        if not future.done():
            future.set_exception(error)
