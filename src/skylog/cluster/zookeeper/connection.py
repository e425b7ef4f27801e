"""One session with ZooKeeper through kazoo, on the event loop.

kazoo has its own threads. Requests go to kazoo's queue; replies, watch events and changes of the connection come back
through a mailbox. Nothing here blocks the event loop. Replies have the order of the requests.

The number of requests in kazoo's queue must be limited, see `_WakeupSocket` in handler.py.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from itertools import count
from typing import Any, Final, NamedTuple

from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionLoss
from kazoo.exceptions import SessionExpiredError as KazooSessionExpiredError
from kazoo.protocol.states import KazooState, KeeperState

from skylog.cluster.store import SessionExpiredError
from skylog.cluster.zookeeper.access import PLAIN, ZooKeeperAccess
from skylog.cluster.zookeeper.ensemble import Ensemble
from skylog.cluster.zookeeper.handler import SessionHandler
from skylog.cluster.zookeeper.liveness import Liveness, Step
from skylog.cluster.zookeeper.mailbox import LoopMailbox

logger = logging.getLogger(__name__)

_MAX_IN_FLIGHT: Final = 128  # fewer than the bytes that fit into a socket pair, of which Linux takes about 270
_CLOSE_TIMEOUT_S: Final = 1.0
_RETRY: Final = {"max_tries": -1, "delay": 0.05, "max_delay": 0.5}
_CLOSED: Final = "the session was closed"

# kazoo logs every attempt to connect. This module logs one line when the connection is lost, and one when it is back.
_kazoo_logger: Final = logging.getLogger(f"{__name__}.kazoo")
_kazoo_logger.setLevel(logging.ERROR)

Request = Callable[[Any], Any]
"""Starts a request on a KazooClient, and returns kazoo's IAsyncResult."""
Reply = Callable[[Any, Exception | None], None]
"""Called once on the event loop, with the result of a request or its error."""


class _Sent(NamedTuple):
    reply: Reply
    sent_at: float


class ZooKeeperConnection:
    """A session, from the first connection to its end. Use it on the event loop only.

    Its owner sets the callbacks: `reconnected`, `expired`, and `delivered`, which follows some replies and events.
    """

    def __init__(self, ensemble: Ensemble, session_timeout_ms: int, access: ZooKeeperAccess = PLAIN) -> None:
        self._loop = asyncio.get_running_loop()
        self._ensemble = ensemble
        self._session_timeout_ms = session_timeout_ms
        self._liveness = Liveness(session_timeout_ms / 1000, len(ensemble.servers))
        self._handler = SessionHandler(self._liveness.connect_timeout_s, access)
        self._client = KazooClient(
            ",".join(ensemble.servers),
            timeout=session_timeout_ms / 1000,
            handler=self._handler,
            connection_retry=dict(_RETRY),
            logger=_kazoo_logger,
            **access.client_options(),
        )
        self._numbers = count()
        self._waiting: deque[tuple[Request, Reply]] = deque()
        self._in_flight: dict[int, _Sent] = {}
        self._end_reason: str | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._client_stop: asyncio.Future[None] | None = None
        self.mailbox = LoopMailbox(self._loop, self._delivered)
        self.first_connected: asyncio.Future[None] = self._loop.create_future()
        self.reconnected: Callable[[], None] = _nothing
        self.expired: Callable[[], None] = _nothing
        self.delivered: Callable[[], None] = _nothing

    def start(self) -> None:
        """Begin to connect, and do so after every loss until the session ends."""
        self._client.add_listener(self._state_changed)
        _observe_timeout(self._client, lambda ms: self.mailbox.post(partial(self._set_timeout, ms)))
        self._handler.attempt_began_at = time.monotonic()
        self._client.start_async()
        self._check_liveness()

    @property
    def last_error(self) -> OSError | None:
        """Why the last attempt to connect failed."""
        return self._handler.last_error

    @property
    def has_ended(self) -> bool:
        return self._end_reason is not None

    def check(self) -> None:
        """Raise SessionExpiredError if the session has ended."""
        if self._end_reason is None and time.monotonic() >= self._liveness.deadline:
            self._expire_by_timeout()  # the event loop was blocked for so long that the timer is late
        if self._end_reason is not None:
            raise SessionExpiredError(self._end_reason)

    # -- requests

    def send(self, request: Request, reply: Reply) -> None:
        """Send a request. `reply` gets SessionExpiredError if the session ends first, ConnectionLoss if unanswered."""
        if self._end_reason is not None:
            reply(None, SessionExpiredError(self._end_reason))
            return
        self._waiting.append((request, reply))
        self._fill_window()

    async def call(self, request: Request) -> Any:
        """Send a request and return its result. Raises ConnectionLoss if it may or may not have been applied."""
        future: asyncio.Future[Any] = self._loop.create_future()
        self.send(request, partial(_resolve, future))
        return await future

    async def retry(self, request: Request) -> Any:
        """Call a request that may be applied several times, until there is an answer."""
        while True:
            try:
                return await self.call(request)
            except ConnectionLoss:
                continue  # kazoo keeps the next one until it is connected

    def _fill_window(self) -> None:
        while self._waiting and len(self._in_flight) < _MAX_IN_FLIGHT:
            request, reply = self._waiting.popleft()
            number, sent_at = next(self._numbers), time.monotonic()
            try:
                result = request(self._client)
            except Exception as error:  # kazoo rejects the arguments
                reply(None, error)
                continue
            self._in_flight[number] = _Sent(reply, sent_at)
            result.rawlink(partial(self._received, number))

    def _received(self, number: int, result: Any) -> None:
        """Called in a thread of kazoo."""
        self.mailbox.post(partial(self._reply, number, result))

    def _reply(self, number: int, result: Any) -> None:
        sent = self._in_flight.pop(number, None)
        if sent is None:
            return  # the session has ended, which was its reply
        error: Exception | None = result.exception
        if isinstance(error, KazooSessionExpiredError):  # also of a client that is closed
            self._in_flight[number] = sent
            self.expire("ZooKeeper has ended the session")
            return
        if not isinstance(error, ConnectionLoss):
            self._liveness.answered(sent.sent_at)
        sent.reply(result.value, error)
        self._fill_window()

    def _delivered(self) -> None:
        if self._end_reason is None:
            self.delivered()

    # -- the connection

    def _state_changed(self, state: str) -> None:
        """Called in kazoo's connection thread."""
        if state == KazooState.LOST:
            self._handler.refuse()
            is_refused = self._client.client_state == KeeperState.AUTH_FAILED
            reason = "ZooKeeper refused the login" if is_refused else "ZooKeeper has ended the session"
            self.mailbox.post(partial(self.expire, reason))
        elif state == KazooState.CONNECTED:
            self.mailbox.post(partial(self._connected, self._handler.attempt_began_at))
        else:
            self.mailbox.post(self._disconnected)

    def _set_timeout(self, negotiated_ms: float) -> None:
        """Use the timeout that the server has chosen if it is shorter than the requested one."""
        self._liveness.timeout_s = min(negotiated_ms, self._session_timeout_ms) / 1000

    def _connected(self, began_at: float) -> None:
        self._liveness.connected(began_at, time.monotonic())
        if self._end_reason is not None:
            return
        if not self.first_connected.done():
            self.first_connected.set_result(None)
            return
        logger.info("the connection to ZooKeeper at %s is back", self._ensemble)
        self.reconnected()

    def _disconnected(self) -> None:
        self._liveness.disconnected()
        if self._end_reason is None:
            left = max(self._liveness.deadline - time.monotonic(), 0.0)
            logger.warning(
                "lost the connection to ZooKeeper at %s; the session expires in %.1f s", self._ensemble, left
            )

    def _check_liveness(self) -> None:
        if self._end_reason is not None:
            return
        now = time.monotonic()
        oldest = next(iter(self._in_flight.values()), None)
        step = self._liveness.next_step(now, self._handler.attempt_began_at, oldest and oldest.sent_at)
        if step is Step.EXPIRE:
            self._expire_by_timeout()
            return
        if step is Step.DROP:
            self._handler.drop_connection()
        elif step is Step.HEARTBEAT:
            # Goes to the leader, so a follower that has lost its leader cannot keep the session alive.
            self.send(lambda client: client.sync_async("/"), _ignore)
        self._timer = self._loop.call_later(self._liveness.next_check(now) - now, self._check_liveness)

    # -- the end

    def _expire_by_timeout(self) -> None:
        self.expire(f"no contact with ZooKeeper for {self._liveness.timeout_s:.1f} s")

    def expire(self, reason: str) -> None:
        """End the session, for good. All requests without a reply get SessionExpiredError."""
        if self._end_reason is None:
            logger.warning("the session with ZooKeeper at %s has expired: %s", self._ensemble, reason)
            self._end(f"the session with ZooKeeper has expired: {reason}")
            self._handler.drop_connection()
            self.expired()

    async def close(self) -> None:
        """End the session, if it has not ended, and free its threads and sockets."""
        if self._end_reason is None:
            self._end(_CLOSED)
        assert self._client_stop is not None  # `_end` has set it
        # The server deletes the ephemeral entries before it answers. If it is silent, do not wait.
        patience = self._loop.call_later(_CLOSE_TIMEOUT_S, self._handler.drop_connection)
        await asyncio.shield(self._client_stop)
        patience.cancel()

    def _end(self, reason: str) -> None:
        self._end_reason = reason
        self._handler.refuse()
        if self._timer is not None:
            self._timer.cancel()
        replies = [sent.reply for sent in self._in_flight.values()] + [reply for _, reply in self._waiting]
        self._in_flight.clear()
        self._waiting.clear()
        self._client_stop = self._loop.run_in_executor(None, self._stop_client)
        for reply in replies:
            reply(None, SessionExpiredError(reason))

    def _stop_client(self) -> None:
        self._client.stop()
        self._client.close()


def _observe_timeout(client: Any, observer: Callable[[float], None]) -> None:
    """Call `observer` in kazoo's thread with the session timeout that the server has chosen, at every connection.

    kazoo keeps it to itself: its private `_connect` returns two thirds of it as the read timeout.
    """
    connect = client._connection._connect

    def connect_and_observe(*arguments: Any) -> Any:
        read_timeout_ms, connect_timeout_ms = connect(*arguments)
        observer(read_timeout_ms * 3 / 2)
        return read_timeout_ms, connect_timeout_ms

    client._connection._connect = connect_and_observe


def _nothing() -> None:
    """Until the owner has set a callback."""


def _resolve(future: asyncio.Future[Any], result: Any, error: Exception | None) -> None:
    if future.done():
        return  # cancelled
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)


def _ignore(_result: Any, _error: Exception | None) -> None:
    """A heartbeat: the connection has noted that it was answered."""
