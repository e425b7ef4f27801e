"""Reading topics as a member of a group."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from time import monotonic
from typing import Any, Final, Literal, Self

from confluent_kafka import Consumer as LibraryConsumer
from confluent_kafka import TopicPartition as LibraryPartition

from skylog.client.admin import Admin
from skylog.client.connection import Connection
from skylog.client.engine import Engine
from skylog.client.errors import TopicNotFoundError
from skylog.client.inbox import MAX_MESSAGES, Inbox
from skylog.client.membership import Membership, Start
from skylog.client.message import Message
from skylog.client.progress import Progress
from skylog.client.serializers import Deserializer
from skylog.client.tier import ConsumerAudit, ConsumerTier
from skylog.errors import ConfigError, SkylogError
from skylog.model import TopicPartition

logger = logging.getLogger(__name__)

CommitMode = Literal["auto", "batch", "manual"]

COMMIT_EVERY_S: Final = 5.0
_WAIT_S: Final = 0.2
_ATTEMPTS_S: Final = 30.0
_TURN_S: Final = 1.0
_SWIFT_S: Final = 0.05
_SLOW_S: Final = 0.5
_SETTINGS: Final[dict[str, Any]] = {
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "allow.auto.create.topics": False,
    "fetch.queue.backoff.ms": 10,  # by default a quick reader is made to wait for a second, again and again
    "partition.assignment.strategy": "cooperative-sticky",
    "auto.offset.reset": "error",  # where to begin is said when a partition is assigned; later it means lost messages
}
_REPORTS: Final[dict[str, Any]] = {"acks": "all", "enable.idempotence": True}


class Consumer:
    """A member of a consumer group: each partition of the topics is read by one member at a time.

        with Consumer("page_views", group="counter") as consumer:
            for message in consumer:
                count(message.json())

    Every message is delivered at least once: the group moves past a message when the application asks for the next one,
    or leaves the `with` block without an exception. Iteration waits for more; `stop` ends it from another thread or a
    signal handler. Otherwise one thread uses a consumer at a time.

    topics: one or several; "^page_.*" for all that match.
    bootstrap: a broker of the cluster, or several; see Producer.
    start: where to begin where the group has no offset yet: "earliest" or "latest"; or a function that is given a
        TopicPartition and returns the offset to begin at, or None for the group's own.
    commit: "auto" every few seconds; "batch" after each list of `consume`, or run of messages that came together;
        "manual" only when `commit` is called.
    deserializer: makes `message.value` of bytes, such as `skylog.client.serializers.from_json`.
    audit: counts what was consumed; see `skylog.audit.ConsumerAudit`.
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
        deserializer: Deserializer | None = None,
        audit: ConsumerAudit | None = None,
        config: Mapping[str, Any] | None = None,
    ) -> None:
        names = [topics] if isinstance(topics, str) else list(topics)
        if not group or not names or not all(names):
            raise ConfigError("a consumer needs the name of its group, and of a topic at least")
        if commit not in ("auto", "batch", "manual"):
            raise ConfigError(f"commit={commit!r}: expected auto, batch or manual")
        if start not in ("earliest", "latest") and not callable(start):
            raise ConfigError(f"start={start!r}: expected earliest, latest or a function of a TopicPartition")
        self.group = group
        self._commit_mode = commit
        self._connection = Connection(bootstrap, config)
        settings = {**_SETTINGS, **(config or {}), "group.id": group, "on_commit": self._on_commit}
        self._client: LibraryConsumer = self._connection.consumer(settings)
        self._inbox = Inbox(self._client, self._connection, deserializer)
        self._progress = Progress(group, self._client, self._connection, self._inbox)
        self._membership = Membership(
            self._progress,
            start,
            self._before_revoke,
            is_cooperative="cooperative" in settings["partition.assignment.strategy"],
        )
        self._open_tier(audit)
        self._fill_count = 1
        self._was_full = False
        self._filled_at = self._committed_at = monotonic()
        self._turn_ends = self._filled_at + _TURN_S
        self._stopped = self._closed = False
        self._membership.join(names)

    def __iter__(self) -> Iterator[Message]:
        """Every message, waiting for more, until `stop` or `close`."""
        take = self.take
        while not self._stopped:
            while (message := take()) is not None:
                yield message
            self.refill()

    def take(self) -> Message | None:
        """The next message that is here already; None where there is none, or it is time to `refill`. Never waits."""
        ready = self._inbox.ready
        if not ready or self._stopped or monotonic() > self._turn_ends:
            return None
        progress = self._progress
        message = progress.hand = ready[0]  # in hand before it is gone from here: Ctrl-C may come in between
        ready.popleft()
        if progress.taken is not None:
            progress.taken.append(message.raw)
        return message

    def refill(self) -> None:
        """Commit if it is time, show librdkafka that the application lives, and get more messages if there are none."""
        if self._stopped:
            return
        self._between()
        if self._inbox.ready:
            self._fill(0, 1)
        else:
            self._fill(_WAIT_S, self._fill_count)

    def consume(self, max_messages: int = 500, timeout_s: float = 1.0) -> list[Message]:
        """The next messages, as many as there are; none if `timeout_s` pass without one."""
        self._check_open()
        ready, progress = self._inbox.ready, self._progress
        self._between()
        deadline = monotonic() + timeout_s
        self._fill(0, 1 if ready else max_messages)
        while not ready and (left_s := deadline - monotonic()) > 0:
            self._fill(left_s, max_messages)
        messages = progress.hand = list(islice(ready, max_messages))
        for _ in messages:
            ready.popleft()
        if progress.taken is not None:
            progress.taken.extend(message.raw for message in messages)
        return messages

    def commit(self) -> None:
        """Move the group past every message that was handed out, the last one included. Raises SkylogError."""
        self._check_open()
        self._progress.commit(wait=True, with_hand=True)
        self._committed_at = monotonic()

    @property
    def is_stopped(self) -> bool:
        return self._stopped

    def stop(self) -> None:
        """End the iteration, from any thread. The consumer has still to be closed."""
        self._stopped = True

    def close(self) -> None:
        """Commit what was handed out, unless commits are manual, and leave the group."""
        self._progress.hand = None
        self._leave()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, failure: type[BaseException] | None, *_: object) -> None:
        if failure is None:
            self.close()
        else:
            self._leave()  # what is in hand was not finished: it comes again

    def _check_open(self) -> None:
        if self._closed:
            raise SkylogError("this consumer is closed; make a new one")

    # -- moving

    @property
    def assignment(self) -> list[TopicPartition]:
        """The partitions that this member owns now."""
        return self._membership.assignment

    @property
    def positions(self) -> dict[TopicPartition, int]:
        """The offset to read next, in each partition that has been read from."""
        return self._progress.next_offsets(with_hand=True)

    def seek(self, topic: str, partition: int, offset: int) -> None:
        """Go to an offset of a partition that this member owns."""
        self._membership.move({TopicPartition(topic, partition): offset})

    def rewind(self) -> None:
        """Go to the oldest message of every partition that this member owns."""
        owned = self._membership.wait_for_assignment()
        ranges = Admin(self._connection).offset_ranges(owned)
        self._membership.move({key: ranges[key].start_offset for key in owned})

    def seek_to_time(self, timestamp_ms: int) -> None:
        """Go to the first message at or after a time, or the end, in every partition that this member owns."""
        owned = self._membership.wait_for_assignment()
        admin = Admin(self._connection)
        found, ranges = admin.offsets_at(owned, timestamp_ms), admin.offset_ranges(owned)
        self._membership.move({key: ranges[key].end_offset if at is None else at for key, at in found.items()})

    # -- between messages

    def _fill(self, timeout_s: float, max_messages: int) -> None:
        self._membership.before_fill()
        self._progress.mark()
        before = len(self._inbox.ready)
        try:
            self._inbox.fill(timeout_s, max_messages)
        except TopicNotFoundError as error:
            logger.warning("%s; group '%s' waits for it", error, self.group)
        self._was_full = len(self._inbox.ready) - before >= max_messages
        self._filled_at = monotonic()
        self._turn_ends = self._filled_at + _TURN_S
        self._membership.after_fill()

    def _between(self) -> None:
        """Everything handed out is done with: commit it if it is time."""
        self._progress.hand = None
        now = monotonic()
        if self._commit_mode == "batch":
            self._commit_quietly(wait=True)
        elif self._commit_mode == "auto" and now - self._committed_at >= COMMIT_EVERY_S:
            self._committed_at = now
            self._commit_quietly(wait=False)
        if self._tier is not None:
            self._tier.tick()
        # A slow application is given few messages at a time, a quick one many: fewer would have to come again.
        took_s = now - self._filled_at
        if took_s < _SWIFT_S and self._was_full:
            self._fill_count = min(self._fill_count * 2, MAX_MESSAGES)
        elif took_s > _SLOW_S:
            self._fill_count = max(self._fill_count // 2, 1)

    def _commit_quietly(self, *, wait: bool) -> None:
        """A commit that nobody asked for must not stop the application: the next one makes up for it."""
        try:
            self._progress.commit(wait=wait, with_hand=False)
        except SkylogError as error:
            logger.warning("%s", error)

    # -- the group

    def _open_tier(self, audit: ConsumerAudit | None) -> None:
        self._tier: ConsumerTier | None = None
        self._engine: Engine | None = None
        if audit is not None:
            self._engine = Engine(self._connection.another(), _REPORTS)
            self._tier = audit.open_consumer(self.group, self._engine.publish)
            self._progress.count_with(self._tier)

    def _before_revoke(self) -> None:
        """Called by librdkafka, so nobody may be asked here whether a broker is there: `poll` and `list_topics` in a
        callback take confluent-kafka's note of the outer call away, and its next callback aborts the process."""
        if self._commit_mode == "manual":
            return
        if self._connection.down_reason is None:
            self._commit_quietly(wait=True)
        elif not self._closed:  # `close` has tried already
            logger.warning("group '%s' loses partitions without a broker: what was read last comes again", self.group)

    def _on_commit(self, error: Any, partitions: list[LibraryPartition]) -> None:
        self._progress.on_commit(error, partitions)

    def _leave(self) -> None:
        if self._closed:
            return
        self._stopped = self._closed = True
        if not self._inbox.is_torn:
            with contextlib.suppress(SkylogError):  # to hear whether a broker is there; other errors matter no more
                self._inbox.fill(0, 1)
        if self._commit_mode != "manual":
            self._commit_quietly(wait=True)
        self._client.close()  # tells the group, and revokes what is owned
        if self._tier is not None and self._engine is not None:
            self._tier.close()
            self._engine.close(_ATTEMPTS_S)
