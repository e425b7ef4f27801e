"""Several consumers of one group in a process that can be killed and frozen: `churn_worker.py bootstrap group topic`.

Commands on stdin, one per line: `start NAME [CONFIG-JSON]`, in which null removes a default, and `stop NAME`. On stdout
one JSON object per event, with the machine's monotonic time: assign, revoke and lost with partitions; read with ranges
of offsets; commit with the accepted offsets; refused with the error code of a commit; skipped if offsets were not
contiguous.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from typing import Any

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

COMMIT_SECONDS = 0.4
_out = threading.Lock()


def report(name: str, event: str, **fields: Any) -> None:
    with _out:
        sys.stdout.write(json.dumps({"at": time.monotonic(), "member": name, "event": event, **fields}) + "\n")
        sys.stdout.flush()


class Worker(threading.Thread):
    """A consumer: reads, checks that nothing is skipped within an assignment, commits the offsets it has read."""

    def __init__(self, name: str, config: dict[str, Any], topic: str) -> None:
        super().__init__(name=name)
        self._consumer = Consumer(config)
        self._topic = topic
        self._owned: set[int] = set()
        self._next: dict[int, int] = {}
        self._uncommitted: dict[int, int] = {}
        self._refused: dict[int, int] = {}  # read and reported; the next commit tries again
        self._commit_at = 0.0
        self.leaving = threading.Event()

    def run(self) -> None:
        callbacks = {"on_assign": self._on_assign, "on_revoke": self._on_revoke, "on_lost": self._on_lost}
        self._consumer.subscribe([self._topic], **callbacks)
        while not self.leaving.is_set():
            for message in self._consumer.consume(500, 0.2):
                if message.error() is None:
                    self._take(message)
            if (self._uncommitted or self._refused) and time.monotonic() >= self._commit_at:
                self._refused |= self._commit([*self._uncommitted, *self._refused])
        self._consumer.close()
        report(self.name, "closed")

    def _take(self, message: Message) -> None:
        partition, offset = message.partition(), message.offset()
        assert partition is not None
        assert offset is not None
        if partition not in self._owned:  # read before the partition was lost, and returned by the call that told so
            return
        expected = self._next.get(partition)
        if expected is not None and offset != expected:
            report(self.name, "skipped", partition=partition, expected=expected, offset=offset)
        if partition not in self._uncommitted:
            report(self.name, "began", partition=partition, offset=offset)
        self._next[partition] = self._uncommitted[partition] = offset + 1

    def _commit(self, partitions: list[int]) -> dict[int, int]:
        """Commit, and report the messages read. Return the offsets whose commit was refused.

        A member that keeps a partition through a rebalance may be refused, and nobody reads those messages again.
        """
        self._commit_at = time.monotonic() + COMMIT_SECONDS
        read = {key: self._uncommitted.pop(key) for key in partitions if key in self._uncommitted}
        ends = {key: self._refused.pop(key) for key in partitions if key in self._refused} | read
        if read:
            report(self.name, "read", ends=read)
        if not ends:
            return {}
        refused: dict[int, int] = {}
        began = time.monotonic()
        try:
            wanted = [TopicPartition(self._topic, partition, end) for partition, end in ends.items()]
            for done in self._consumer.commit(offsets=wanted, asynchronous=False):
                if done.error is not None:
                    report(self.name, "refused", began=began, partition=done.partition, code=done.error.code())
                    refused[done.partition] = ends.pop(done.partition)
            report(self.name, "commit", began=began, ends=ends)
        except KafkaException as failure:
            report(self.name, "refused", began=began, code=failure.args[0].code())
            refused = ends
        return {key: end for key, end in refused.items() if key in self._owned}

    def _on_assign(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        for each in partitions:
            self._next.pop(each.partition, None)
            self._forget(each.partition)
            self._owned.add(each.partition)
        report(self.name, "assign", partitions=[each.partition for each in partitions])

    def _on_revoke(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        numbers = [each.partition for each in partitions]
        self._commit(numbers)
        self._owned -= set(numbers)
        report(self.name, "revoke", partitions=numbers)

    def _on_lost(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        for each in partitions:
            self._forget(each.partition)
            self._owned.discard(each.partition)
        report(self.name, "lost", partitions=[each.partition for each in partitions])

    def _forget(self, partition: int) -> None:
        self._uncommitted.pop(partition, None)
        self._refused.pop(partition, None)


def main() -> None:
    bootstrap, group, topic = sys.argv[1:]
    defaults = {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "session.timeout.ms": 6000,
        "heartbeat.interval.ms": 700,
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
        "fetch.wait.max.ms": 500,
        "fetch.queue.backoff.ms": 100,
        "topic.metadata.refresh.interval.ms": 60_000,
        # The default of 10 s is longer than the session: if the broker takes long to come back, on a busy machine, a
        # member that waits for so long is thrown out, and owns partitions of others until it hears of that.
        "reconnect.backoff.max.ms": 500,
        "log_level": 0,
    }
    workers: dict[str, Worker] = {}
    for line in sys.stdin:
        command, name, *rest = line.split(maxsplit=2)
        if command == "start":
            config = {**defaults, **json.loads(rest[0] if rest else "{}")}
            workers[name] = Worker(name, {key: value for key, value in config.items() if value is not None}, topic)
            workers[name].start()
        else:
            workers.pop(name).leaving.set()


if __name__ == "__main__":
    main()
