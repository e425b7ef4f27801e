"""What one request uses of its client's quotas: bytes, changes, and time of the event loop.

The response says how long the client must wait. The router then holds the connection for that time, so a client that
ignores it waits all the same (KIP-219).
"""

from __future__ import annotations

from collections.abc import Awaitable, Generator
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

from skylog.errors import ErrorCode, KafkaError
from skylog.protocol.apis import ApiKey

if TYPE_CHECKING:
    from skylog.broker.api import Api, Context
    from skylog.broker.quotas.active import ActiveQuotas
    from skylog.broker.session import Session
    from skylog.protocol.schema import Message

_EXEMPT: Final = frozenset({ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE, ApiKey.WRITE_TXN_MARKERS})
"""Logins, and what only brokers send."""

_MAX_WAIT_MS: Final = (1 << 31) - 1
_PERCENT: Final = 100.0


class Usage:
    """Made for each request while there are quotas. `wait_s` is how long the client must wait after the response."""

    __slots__ = ("_busy_s", "_quotas", "_resumed_at", "_session", "wait_s")

    def __init__(self, quotas: ActiveQuotas, session: Session) -> None:
        self._quotas = quotas
        self._session = session
        self._busy_s = 0.0
        self._resumed_at = perf_counter()  # 0 while the request waits for something else
        self.wait_s = 0.0

    def pause(self) -> None:
        """The request leaves the event loop to others."""
        if self._resumed_at:
            self._busy_s += perf_counter() - self._resumed_at
            self._resumed_at = 0.0

    def resume(self) -> None:
        self._resumed_at = perf_counter()

    def produced(self, size_bytes: int) -> None:
        """Count the bytes of a produce request."""
        limits = self._quotas.limits_of(self._session)
        if limits is not None and limits.produce is not None:
            self._wait(limits.produce.charge(size_bytes, self._quotas.now_s()))

    def fetched(self, size_bytes: int) -> bool:
        """Count the bytes of a response to a consumer. Return whether they may be sent now.

        If not, the response is empty, and the consumer fetches them again after its wait.
        """
        limits = self._quotas.limits_of(self._session)
        self.settle()
        if limits is None or limits.fetch is None:
            return not self.wait_s
        now_s = self._quotas.now_s()
        may_send, wait_s = limits.fetch.try_charge(size_bytes, now_s)
        if may_send and self.wait_s and not wait_s:
            limits.fetch.give_back(size_bytes, now_s)
            may_send = False  # too much time was used
        self._wait(wait_s)
        return may_send

    def largest_fetch(self) -> int | None:
        """Return how much a consumer can fetch without a wait, None without a limit."""
        limits = self._quotas.limits_of(self._session)
        return None if limits is None or limits.fetch is None else int(limits.fetch.burst())

    def mutated(self, count: int, *, strict: bool) -> None:
        """Count partitions that are created or deleted. Raises THROTTLING_QUOTA_EXCEEDED if `strict`."""
        limits = self._quotas.limits_of(self._session)
        if limits is None or limits.mutation is None:
            return
        now_s = self._quotas.now_s()
        if not strict:
            self._wait(limits.mutation.take(count, now_s))
            return
        wait_s = limits.mutation.try_take(count, now_s)
        if wait_s:
            self._wait(wait_s)
            raise KafkaError(
                ErrorCode.THROTTLING_QUOTA_EXCEEDED,
                f"too many partitions were created or deleted, try again in {wait_s:.1f} s",
            )

    def settle(self) -> int:
        """Count the time of the request, and return the wait that its response announces, in milliseconds."""
        self.pause()
        busy_s, self._busy_s = self._busy_s, 0.0
        self.resume()
        limits = self._quotas.limits_of(self._session)
        if limits is not None and limits.request is not None:
            self._wait(limits.request.charge(busy_s * _PERCENT, self._quotas.now_s()))
        return self.wait_ms

    def settle_with(self, api: Api, message: Message) -> None:
        """Do so, and write the wait into a response that has a field for it."""
        if api.key in _EXEMPT:
            return
        wait_ms = self.settle()
        if wait_ms and hasattr(message, "throttle_time_ms"):
            message.throttle_time_ms = wait_ms

    @property
    def wait_ms(self) -> int:
        return min(round(self.wait_s * 1000), _MAX_WAIT_MS)

    def _wait(self, seconds: float) -> None:
        self.wait_s = max(self.wait_s, seconds)


def count_mutations(context: Context, partitions: int, *, strict_from: int | None) -> None:
    """Count partitions that a request is about to create or delete.

    Raises THROTTLING_QUOTA_EXCEEDED if the client is above its quota and knows the error, which it does from version
    `strict_from` on. Other clients are only delayed.
    """
    if context.usage is not None:
        context.usage.mutated(partitions, strict=strict_from is not None and context.version >= strict_from)


class MeteredWork:
    """The rest of a request that waits in between: only the time that it runs is counted."""

    def __init__(self, work: Awaitable[Any], usage: Usage) -> None:
        self._work = work
        self._usage = usage

    def __await__(self) -> Generator[Any, Any, Any]:
        steps, usage = self._work.__await__(), self._usage
        step, value = steps.send, None
        while True:
            usage.resume()
            try:
                waiting = step(value)
            except StopIteration as done:
                return done.value
            finally:
                usage.pause()
            try:
                step, value = steps.send, (yield waiting)
            except BaseException as error:
                step, value = steps.throw, error
