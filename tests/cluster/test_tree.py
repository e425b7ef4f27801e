"""The entries below a prefix, kept up to date while answers, events and losses come in any order that kazoo allows."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from hypothesis import given
from hypothesis import strategies as st
from kazoo.exceptions import ConnectionLoss, NoNodeError
from kazoo.protocol.states import EventType

from skylog.cluster.store import Entry
from skylog.cluster.zookeeper.tree import EntryTree
from skylog.cluster.zookeeper.znodes import Znodes, encode, parent_of

PATHS = ("/topics/a", "/topics/b", "/topics/deep/c", "/topics/deep/d", "/other/e")
DIRECTORIES = ("/topics", "/topics/deep", "/other")


class Stat(NamedTuple):
    mzxid: int
    version: int


class Event(NamedTuple):
    type: str
    path: str | None


Watch = Callable[[Event], None]
Reply = Callable[[Any, Exception | None], None]


class ModelServer:
    """ZooKeeper and kazoo as the tree sees them: a connection, a client and a mailbox in one.

    Requests are answered in order. Answers arrive in order, and events arrive in order; but an event may overtake the
    answers before it, because kazoo delivers answers and events in different threads.
    """

    def __init__(self) -> None:
        self.mailbox = self
        self.znodes: dict[str, tuple[bytes, Stat]] = {path: (b"", Stat(0, 0)) for path in ("", *DIRECTORIES)}
        self._zxid = 0
        self._requests: deque[tuple[str, str, Watch | None, Reply]] = deque()
        self._answers: deque[Callable[[], None]] = deque()
        self._events: deque[Callable[[], None]] = deque()
        self._watches: dict[tuple[str, str], Watch] = {}
        self.is_lost = False

    # -- the connection

    def send(self, request: Callable[[Any], tuple[str, str, Watch | None]], reply: Reply) -> None:
        self._requests.append((*request(self), reply))

    def get_async(self, znode: str, watch: Watch | None) -> tuple[str, str, Watch | None]:
        return "data", znode.rstrip("/"), watch

    def get_children_async(self, znode: str, watch: Watch | None) -> tuple[str, str, Watch | None]:
        return "children", znode.rstrip("/"), watch

    def post(self, call: Callable[[], None]) -> None:
        call()

    def expire(self, reason: str) -> None:
        raise AssertionError(reason)

    # -- what happens, in steps

    def put(self, path: str) -> None:
        self._zxid += 1
        data = encode({"is": self._zxid})
        if path in self.znodes:
            self.znodes[path] = (data, Stat(self._zxid, self.znodes[path][1].version + 1))
            self._fire("data", path, EventType.CHANGED)
        else:
            self.znodes[path] = (data, Stat(self._zxid, 0))
            self._fire("children", parent_of(path), EventType.CHILD)

    def delete(self, path: str) -> None:
        if path in self.znodes:
            self._zxid += 1
            del self.znodes[path]
            self._fire("data", path, EventType.DELETED)
            self._fire("children", parent_of(path), EventType.CHILD)

    def _fire(self, kind: str, path: str, event_type: str) -> None:
        watch = self._watches.pop((kind, path), None)
        if watch is not None:
            self._events.append(lambda: watch(Event(event_type, path)))

    def serve(self) -> None:
        """Answer the oldest request, and set its watch."""
        if not self._requests or self.is_lost:
            return
        kind, path, watch, reply = self._requests.popleft()
        if path not in self.znodes:
            self._answers.append(lambda: reply(None, NoNodeError()))
            return
        if watch is not None:
            self._watches[kind, path] = watch
        if kind == "data":
            result: Any = self.znodes[path]
        else:
            result = [each.rpartition("/")[2] for each in self.znodes if each and parent_of(each) == path]
        self._answers.append(lambda: reply(result, None))

    def lose(self) -> None:
        """Lose the connection, all requests and all watches."""
        self.is_lost = True
        while self._requests:
            *_, reply = self._requests.popleft()
            self._answers.append(lambda reply=reply: reply(None, ConnectionLoss()))  # type: ignore[misc]
        self._watches.clear()

    def reconnect(self, tree: EntryTree) -> None:
        if self.is_lost:
            self.is_lost = False
            self._events.append(tree.read_again)

    def deliver_answer(self) -> None:
        if self._answers:
            self._answers.popleft()()

    def deliver_event(self) -> None:
        if self._events:
            self._events.popleft()()

    def settle(self, tree: EntryTree) -> None:
        self.reconnect(tree)
        while self._requests or self._answers or self._events:
            self.serve()
            self.deliver_event()
            self.deliver_answer()


changes = st.sampled_from([(action, path) for action in ("put", "delete") for path in PATHS])
progress = st.sampled_from([(action, "") for action in ("serve", "deliver_answer", "deliver_event")])
losses = st.sampled_from([("lose", ""), ("reconnect", "")])
prefixes = st.sampled_from(["", "/topics/", "/topics/a", "/topics/deep/", "/t", "/none"])


@given(prefixes, st.lists(changes | progress | progress | losses, max_size=60))
def test_the_latest_state_is_never_missed(prefix: str, steps: list[tuple[str, str]]) -> None:
    async def run() -> None:
        server = ModelServer()
        tree = EntryTree(server, Znodes(""), prefix, is_watched=True)  # type: ignore[arg-type] # a model of it
        reported: dict[str, Entry | None] = {}
        for action, path in steps:
            if action == "reconnect":
                server.reconnect(tree)
            else:
                getattr(server, action)(*[path] if path else [])
            reported |= tree.take_changes()
        server.settle(tree)
        reported |= tree.take_changes()
        expected = {
            path: (data, stat.version + 1)
            for path, (data, stat) in server.znodes.items()
            if data and path.startswith(prefix)
        }
        assert {path: (encode(entry.value), entry.version) for path, entry in tree.entries.items()} == expected
        assert {path: entry for path, entry in reported.items() if entry is not None} == tree.entries
        assert tree.loaded.done()

    asyncio.run(run())
