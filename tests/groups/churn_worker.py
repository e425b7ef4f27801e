"""Several consumers of one group in a process that can be killed and frozen: `churn_worker.py bootstrap group topic`.

Commands on stdin, one per line: `start NAME [CONFIG-JSON]`, `stop NAME`. On stdout one JSON object per event, with the
machine's monotonic time: assign, revoke and lost with partitions; read with ranges of offsets; commit with what was
accepted; refused with the code of a commit that was not; skipped where offsets were not contiguous.
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


def tell(name: str, event: str, **fields: Any) -> None:
    with _out:
        sys.stdout.write(json.dumps({"at": time.monotonic(), "member": name, "event": event, **fields}) + "\n")
        sys.stdout.flush()


class Worker(threading.Thread):
    """One consumer: reads, checks that nothing is skipped within an assignment, commits what it has read."""

    def __init__(self, name: str, config: dict[str, Any], topic: str) -> None:
        super().__init__(name=name)
        self._consumer = Consumer(config)
        self._topic = topic
        self._next: dict[int, int] = {}
        self._uncommitted: dict[int, int] = {}
        self._commit_at = 0.0
        self.leaving = threading.Event()

    def run(self) -> None:
        callbacks = {"on_assign": self._on_assign, "on_revoke": self._on_revoke, "on_lost": self._on_lost}
        self._consumer.subscribe([self._topic], **callbacks)
        while not self.leaving.is_set():
            for message in self._consumer.consume(500, 0.2):
                if message.error() is None:
                    self._take(message)
            if self._uncommitted and time.monotonic() >= self._commit_at:
                self._commit(list(self._uncommitted))
        self._consumer.close()
        tell(self.name, "closed")

    def _take(self, message: Message) -> None:
        partition, offset = message.partition(), message.offset()
        assert partition is not None
        assert offset is not None
        expected = self._next.get(partition)
        if expected is not None and offset != expected:
            tell(self.name, "skipped", partition=partition, expected=expected, offset=offset)
        if partition not in self._uncommitted:
            tell(self.name, "began", partition=partition, offset=offset)
        self._next[partition] = self._uncommitted[partition] = offset + 1

    def _commit(self, partitions: list[int]) -> None:
        """Commit and tell what has been read with it: what was read but not committed will be read again."""
        self._commit_at = time.monotonic() + COMMIT_SECONDS
        ends = {
            partition: self._uncommitted.pop(partition) for partition in partitions if partition in self._uncommitted
        }
        if not ends:
            return
        tell(self.name, "read", ends=ends)
        began = time.monotonic()
        try:
            wanted = [TopicPartition(self._topic, partition, end) for partition, end in ends.items()]
            for done in self._consumer.commit(offsets=wanted, asynchronous=False):
                if done.error is not None:
                    tell(self.name, "refused", began=began, partition=done.partition, code=done.error.code())
                    ends.pop(done.partition)
            tell(self.name, "commit", began=began, ends=ends)
        except KafkaException as failure:
            tell(self.name, "refused", began=began, code=failure.args[0].code())

    def _on_assign(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        for each in partitions:
            self._next.pop(each.partition, None)
            self._uncommitted.pop(each.partition, None)
        tell(self.name, "assign", partitions=[each.partition for each in partitions])

    def _on_revoke(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        numbers = [each.partition for each in partitions]
        self._commit(numbers)
        tell(self.name, "revoke", partitions=numbers)

    def _on_lost(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        for each in partitions:
            self._uncommitted.pop(each.partition, None)
        tell(self.name, "lost", partitions=[each.partition for each in partitions])


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
        "log_level": 0,
    }
    workers: dict[str, Worker] = {}
    for line in sys.stdin:
        command, name, *rest = line.split(maxsplit=2)
        if command == "start":
            workers[name] = Worker(name, {**defaults, **json.loads(rest[0] if rest else "{}")}, topic)
            workers[name].start()
        else:
            workers.pop(name).leaving.set()


if __name__ == "__main__":
    main()
