"""Reads topics as a member of a consumer group."""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from time import monotonic
from typing import Any, Final, Generic, Literal, Self
from weakref import WeakSet

from confluent_kafka import Consumer as LibraryConsumer
from confluent_kafka import KafkaError as LibraryError
from confluent_kafka import KafkaException
from confluent_kafka import TopicPartition as LibraryPartition

from skylog.client.admin import Admin
from skylog.client.connection import Connection
from skylog.client.engine import Engine
from skylog.client.errors import TopicNotFoundError
from skylog.client.handles import check_handle, is_inherited
from skylog.client.inbox import MAX_MESSAGES, Inbox
from skylog.client.kafka_settings import isolation
from skylog.client.membership import Membership, Start
from skylog.client.message import Message
from skylog.client.offset_tracker import Bookmark, OffsetTracker
from skylog.client.serializers import Deserializer, ValueT
from skylog.client.tier import ConsumerTier, ConsumerTierFactory
from skylog.errors import ConfigError, SkylogError
from skylog.model import TopicPartition

logger = logging.getLogger(__name__)

CommitMode = Literal["auto", "batch", "manual"]

COMMIT_EVERY_S: Final = 5.0
_WAIT_S: Final = 0.2
_ATTEMPTS_S: Final = 30.0
_COMMITTED_S: Final = 10.0
_REFILL_EVERY_S: Final = 1.0
_FAST_S: Final = 0.05
_SLOW_S: Final = 0.5
_SETTINGS: Final[dict[str, Any]] = {
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "allow.auto.create.topics": False,
    "fetch.queue.backoff.ms": 10,  # with the default, a fast reader pauses for a second again and again
    "partition.assignment.strategy": "cooperative-sticky",
    "auto.offset.reset": "error",  # the start is chosen on assignment; after that, a missing offset means lost messages
}
_REPORT_SETTINGS: Final[dict[str, Any]] = {"acks": "all", "enable.idempotence": True}


class Consumer(Generic[ValueT]):
    """A member of a consumer group. Each partition of the topics is read by one member at a time.

        with Consumer("page_views", group="counter") as consumer:
            for message in consumer:
                count(message.json())

    Every message is delivered at least once: the group moves past a message when you take the next one, or leave the
    `with` block without an exception. Iteration waits for more messages; `stop` ends it from another thread or a
    signal handler. All other methods must be called from one thread at a time.

    topics: one or several; "^page_.*" for all that match.
    bootstrap: one or several brokers of the cluster; see Producer.
    start: where to start in a partition without a committed offset: "earliest" or "latest"; or a function that takes a
        TopicPartition and returns the offset to start at, or None for the committed one.
    commit: "auto" every few seconds; "batch" after each list of `consume`, or run of messages that arrived together;
        "manual" only when you call `commit`.
    deserializer: converts bytes to `message.value`, such as `skylog.client.serializers.from_json`.
    audit: counts consumed messages; see `skylog.audit.ConsumerAudit`.
    read_committed: False also delivers the messages of open and aborted transactions.
    config: librdkafka's own settings, such as {"session.timeout.ms": 10000}.
    """

    def __init__(
        self,
        topics: str | Sequence[str],
        group: str,
        bootstrap: str | None = None,
        *,
        start: Start = "earliest",
        commit: CommitMode = "auto",
        deserializer: Deserializer[ValueT] | None = None,
        audit: ConsumerTierFactory | None = None,
        read_committed: bool = True,
        config: Mapping[str, object] | None = None,
    ) -> None:
        names = [topics] if isinstance(topics, str) else list(topics)
        if not group or not names or not all(names):
            raise ConfigError("a consumer needs a group name and at least one topic")
        if commit not in ("auto", "batch", "manual"):
            raise ConfigError(f"commit={commit!r}: expected auto, batch or manual")
        if start not in ("earliest", "latest") and not callable(start):
            raise ConfigError(f"start={start!r}: expected earliest, latest or a function of a TopicPartition")
        self.group = group
        self._commit_mode = commit
        self._connection = Connection(bootstrap, config)
        self._connection.warn_as(f"group '{group}' waits")
        settings = {
            **_SETTINGS,
            **isolation(read_committed),
            **(config or {}),
            "group.id": group,
            "on_commit": self._on_commit,
        }
        self._client: LibraryConsumer = self._connection.consumer(settings)
        self._inbox = Inbox(self._client, self._connection, deserializer)
        self._tracker = OffsetTracker(group, self._client, self._connection, self._inbox)
        self._membership = Membership(
            self._tracker,
            start,
            self._before_revoke,
            is_cooperative="cooperative" in settings["partition.assignment.strategy"],
        )
        self._open_tier(audit)
        self._fill_count = 1
        self._was_full = False
        self._filled_at = self._committed_at = monotonic()
        self._refill_at = self._filled_at + _REFILL_EVERY_S
        self._stopped = self._closed = False
        self._membership.join(names)
        _consumers.add(self)

    @property
    def is_inherited(self) -> bool:
        """Whether it was created before this process was forked. Then only the parent can use it."""
        return is_inherited(self._client)

    def __iter__(self) -> Iterator[Message[ValueT]]:
        """Yield messages, waiting for more, until `stop` or `close`."""
        take = self.take
        while not self._stopped:
            while (message := take()) is not None:
                yield message
            self.refill()

    def take(self) -> Message[ValueT] | None:
        """Return the next buffered message; None if there is none, or if `refill` is due. Never waits."""
        ready = self._inbox.ready
        if not ready or self._stopped or monotonic() > self._refill_at:
            return None
        tracker = self._tracker
        message = tracker.current = ready[0]  # set before it is removed: Ctrl-C may come in between
        ready.popleft()
        if tracker.uncounted is not None:
            tracker.uncounted.append(message.raw)
        return message

    def refill(self) -> None:
        """Commit if due, poll librdkafka so that the member stays alive, and fetch messages if none are buffered."""
        if self._stopped:
            return
        check_handle(self._client)
        self._finish_current()
        if self._inbox.ready:
            self._fill(0, 1)
        else:
            self._fill(_WAIT_S, self._fill_count)

    def keep_alive(self) -> None:
        """Stay a member of the group while a message takes long: call this every few seconds, from the same thread.

        Without it, a member is removed after `max.poll.interval.ms`, five minutes. Does not finish the message.
        """
        self._check_open()
        is_full = len(self._inbox.ready) >= MAX_MESSAGES
        if is_full:
            self._client.pause(self._client.assignment())
        self._fill(0, 1)
        if is_full:
            self._client.resume(self._client.assignment())

    def consume(self, max_messages: int = 500, timeout_s: float = 1.0) -> list[Message[ValueT]]:
        """Return the next available messages; an empty list if none arrives within `timeout_s`."""
        self.wait_for_messages(max_messages, timeout_s)
        return self.take_many(max_messages)

    def wait_for_messages(self, max_messages: int, timeout_s: float) -> None:
        """Mark all returned messages as processed, and wait until there are others, at most `timeout_s`."""
        self._check_open()
        ready = self._inbox.ready
        self._finish_current()
        deadline = monotonic() + timeout_s
        self._fill(0, 1 if ready else max_messages)
        while not ready and (left_s := deadline - monotonic()) > 0:
            self._fill(min(left_s, _WAIT_S), max_messages)  # what a callback raises comes after the fill

    def take_many(self, max_messages: int) -> list[Message[ValueT]]:
        """Return the buffered messages. Never waits."""
        ready, tracker = self._inbox.ready, self._tracker
        messages = list(islice(ready, max_messages))
        tracker.current = messages
        for _ in messages:
            ready.popleft()
        if tracker.uncounted is not None:
            tracker.uncounted.extend(message.raw for message in messages)
        return messages

    def commit(self) -> None:
        """Commit the offsets of all messages returned so far, including the last one. Raises SkylogError."""
        self._check_open()
        self._tracker.commit(wait=True, with_current=True)
        self._committed_at = monotonic()

    # -- positions in a transaction, for `Producer.transaction`

    def group_metadata(self) -> object:
        """Return the member's generation, which a transaction is checked against. Raises ConfigError."""
        self._check_open()
        if self._commit_mode != "manual":
            raise ConfigError('a consumer whose offsets are part of a transaction needs commit="manual"')
        return self._client.consumer_group_metadata()

    def bookmark(self) -> Bookmark:
        """Return the offset of the first message in each partition that is not finished."""
        return self._tracker.bookmark()

    def has_lost_partitions_since(self, bookmark: Bookmark) -> bool:
        """Whether a rebalance has taken partitions from this member."""
        return self._tracker.revoked_count != bookmark.revoked_count

    def finish_returned(self) -> list[LibraryPartition]:
        """Finish all messages returned so far, and return the offsets to commit for them."""
        offsets = self._tracker.uncommitted(with_current=True)
        self._tracker.current = None
        return offsets

    def committed(self, offsets: list[LibraryPartition]) -> None:
        """Called when a transaction has committed offsets."""
        self._tracker.on_commit(None, offsets)

    def go_back(self, bookmark: Bookmark, *, check_committed: bool = False) -> None:
        """Deliver again what was returned after a bookmark, in the partitions of this member.

        `check_committed` skips what is committed by now.
        """
        if self._closed:
            return
        owned = self.assignment
        offsets = {key: offset for key, offset in self._tracker.places_at(bookmark).items() if key in owned}
        if check_committed:
            offsets = self._after_committed(offsets)
        if offsets:
            self._membership.move(offsets)

    def _after_committed(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Raise offsets to the committed ones. Those that cannot be read are ignored: better twice than never."""
        found: list[LibraryPartition] = []
        try:
            if offsets:
                found = self._client.committed([LibraryPartition(*key) for key in offsets], timeout=_COMMITTED_S)
        except KafkaException as error:
            logger.warning("group '%s' may get messages again: %s", self.group, error.args[0].str())
        committed = {TopicPartition(each.topic, each.partition): int(each.offset) for each in found}
        return {key: max(offset, committed.get(key, offset)) for key, offset in offsets.items()}

    @property
    def is_stopped(self) -> bool:
        """Whether `stop` or `close` was called."""
        return self._stopped

    def stop(self) -> None:
        """End the iteration, from any thread. You still have to close the consumer."""
        self._stopped = True

    def close(self) -> None:
        """Commit all messages returned so far, unless commits are manual, and leave the group."""
        self._tracker.current = None
        self._leave()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, failure: type[BaseException] | None, *_: object) -> None:
        if failure is None:
            self.close()
        else:
            self._leave()  # the current messages were not finished: they are delivered again

    def _check_open(self) -> None:
        if self._closed:
            raise SkylogError("this consumer is closed; create a new one")
        check_handle(self._client)

    # -- seeking

    @property
    def assignment(self) -> list[TopicPartition]:
        """The partitions that are assigned to this member."""
        check_handle(self._client)
        return self._membership.assignment

    @property
    def positions(self) -> dict[TopicPartition, int]:
        """The next offset to read in each partition that has been read from."""
        return self._tracker.next_offsets(with_current=True)

    def seek(self, topic: str, partition: int, offset: int) -> None:
        """Continue at an offset of a partition that is assigned to this member."""
        self._check_open()
        self._membership.move({TopicPartition(topic, partition): offset})

    def rewind(self) -> None:
        """Continue at the oldest message of every partition that is assigned to this member."""
        self._check_open()
        owned = self._membership.wait_for_assignment()
        ranges = Admin(self._connection).offset_ranges(owned)
        self._membership.move({key: ranges[key].start_offset for key in owned})

    def seek_to_time(self, timestamp_ms: int) -> None:
        """Continue at the first message at or after a time, or at the end, in every partition of this member."""
        self._check_open()
        owned = self._membership.wait_for_assignment()
        admin = Admin(self._connection)
        found, ranges = admin.offsets_at(owned, timestamp_ms), admin.offset_ranges(owned)
        self._membership.move({key: ranges[key].end_offset if at is None else at for key, at in found.items()})

    # -- between messages

    def _fill(self, timeout_s: float, max_messages: int) -> None:
        self._membership.before_fill()
        self._tracker.mark()
        before = len(self._inbox.ready)
        try:
            self._inbox.fill(timeout_s, max_messages)
        except TopicNotFoundError as error:
            logger.warning("%s; group '%s' waits for it", error, self.group)
        self._was_full = len(self._inbox.ready) - before >= max_messages
        self._filled_at = monotonic()
        self._refill_at = self._filled_at + _REFILL_EVERY_S
        self._membership.after_fill()

    def _finish_current(self) -> None:
        """Mark all returned messages as processed, and commit them if due."""
        self._tracker.current = None
        now = monotonic()
        if self._commit_mode == "batch":
            self._commit_quietly(wait=True)
        elif self._commit_mode == "auto" and now - self._committed_at >= COMMIT_EVERY_S:
            self._committed_at = now
            self._commit_quietly(wait=False)
        if self._tier is not None:
            self._tier.tick()
        # A slow application gets few messages at a time, a fast one many: fewer are delivered again after a crash.
        took_s = now - self._filled_at
        if took_s < _FAST_S and self._was_full:
            self._fill_count = min(self._fill_count * 2, MAX_MESSAGES)
        elif took_s > _SLOW_S:
            self._fill_count = max(self._fill_count // 2, 1)

    def _commit_quietly(self, *, wait: bool) -> None:
        """Commit in the background. A failure must not stop the application: the next commit covers it."""
        try:
            self._tracker.commit(wait=wait, with_current=False)
        except SkylogError as error:
            logger.warning("%s", error)

    # -- the group

    def _open_tier(self, audit: ConsumerTierFactory | None) -> None:
        self._tier: ConsumerTier | None = None
        self._engine: Engine | None = None
        if audit is not None:
            self._engine = Engine(self._connection.another(), _REPORT_SETTINGS)
            self._tier = audit.open_consumer(self.group, self._engine.publish)
            self._tracker.set_tier(self._tier)

    def _before_revoke(self) -> None:
        """Called by librdkafka, so this must not check whether a broker answers: `poll` and `list_topics` in a callback
        clear confluent-kafka's state of the outer call, and its next callback aborts the process."""
        if self._commit_mode == "manual":
            return
        if self._connection.down_reason is None:
            self._commit_quietly(wait=True)
        elif not self._closed:  # `close` has already tried
            logger.warning(
                "group '%s' loses partitions while no broker is reachable: the last messages are delivered again",
                self.group,
            )

    def _on_commit(self, error: LibraryError | None, partitions: list[LibraryPartition]) -> None:
        if error is None:
            self._connection.down_reason = None  # the group's broker has answered
        self._tracker.on_commit(error, partitions)

    def _leave(self) -> None:
        if self._closed or self.is_inherited:  # the parent of a fork is the member, not its child
            return
        self._stopped = self._closed = True
        if not self._inbox.is_interrupted:
            with contextlib.suppress(SkylogError):  # updates `down_reason`; other errors no longer matter
                self._inbox.fill(0, 1)
        if self._commit_mode != "manual":
            self._commit_quietly(wait=True)
        self._membership.leave()
        if self._tier is not None and self._engine is not None:
            self._tier.close()
            self._engine.close(_ATTEMPTS_S)

    def _answer_rebalance(self) -> None:
        """Answer a rebalance that waits for this member. librdkafka cannot free a client before.

        A thread that still reads from it answers by itself, and keeps the client from being freed.
        """
        if not self._closed and not self.is_inherited and not self._inbox.is_being_filled:
            with contextlib.suppress(Exception):  # the process ends
                self._inbox.fill(0, 1)


_consumers: WeakSet[Consumer[Any]] = WeakSet()


def _answer_at_exit() -> None:
    for consumer in tuple(_consumers):
        consumer._answer_rebalance()


def _hold_back_in_child() -> None:
    """Called in the child of a fork: the messages that its parent has buffered are the parent's."""
    for consumer in tuple(_consumers):
        consumer._refill_at = float("-inf")  # so `take` returns nothing, and `refill` raises


atexit.register(_answer_at_exit)
if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_hold_back_in_child)
