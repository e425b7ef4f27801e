"""Copies messages in transactions, in a process that can be killed: `python -m tests.faults.copier bootstrap batch`.

It begins no other transaction once its standard input is closed. After a fatal error it starts again. On stdout it
prints a line for each start, and the number of messages of each transaction that is committed.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition

ID, GROUP = "copier", "copiers"
STARTED = "start"
ATTEMPT_S = 5.0
POLL_INTERVAL_S = 12.0


class Copier:
    """Copies from `source` to `target`, with the offsets of its group in the transactions."""

    def __init__(self, bootstrap: str, batch: int) -> None:
        self._brokers = bootstrap
        self._batch = batch
        self.is_stopping = threading.Event()

    def run(self) -> None:
        while not self.is_stopping.is_set():
            print(STARTED, flush=True)
            self._copy()

    def _copy(self) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": self._brokers,
                "group.id": GROUP,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "session.timeout.ms": 6000,
                "max.poll.interval.ms": int(POLL_INTERVAL_S * 1000),
                "log_level": 0,
            }
        )
        producer = Producer(
            {
                "bootstrap.servers": self._brokers,
                "transactional.id": ID,
                "transaction.timeout.ms": 20_000,
                "log_level": 0,
            }
        )
        try:
            producer.init_transactions(60)
            consumer.subscribe(["source"])
            while not self.is_stopping.is_set():
                messages = [each for each in consumer.consume(self._batch, 0.5) if each.error() is None]
                if messages and not self._transfer(producer, consumer, messages):
                    return
        except KafkaException as error:
            if not error.args[0].fatal() and not error.args[0].retriable():
                raise
        finally:
            consumer.close()

    def _transfer(self, producer: Producer, consumer: Consumer, messages: list[Message]) -> bool:
        """Copy messages in one transaction. Return whether the copier may go on with its position."""
        try:
            producer.begin_transaction()
            ends: dict[int, int] = {}
            for message in messages:
                partition, offset = message.partition(), message.offset()
                assert partition is not None
                assert offset is not None
                producer.produce("target", message.value(), partition=partition)
                ends[partition] = offset + 1
            offsets = [TopicPartition("source", partition, end) for partition, end in ends.items()]
            _retried(
                lambda: producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), ATTEMPT_S)
            )
            _retried(lambda: producer.commit_transaction(ATTEMPT_S))
        except KafkaException as error:
            if error.args[0].txn_requires_abort():
                _retried(lambda: producer.abort_transaction(ATTEMPT_S))
            return False
        print(len(messages), flush=True)
        return True


def _retried(action: Callable[[], object]) -> None:
    """Repeat what may be repeated."""
    while True:
        try:
            action()
            return
        except KafkaException as error:
            if not error.args[0].retriable():
                raise
            time.sleep(0.1)


def main() -> None:
    bootstrap, batch = sys.argv[1:]
    copier = Copier(bootstrap, int(batch))
    worker = threading.Thread(target=copier.run, daemon=True)
    worker.start()
    sys.stdin.read()
    copier.is_stopping.set()
    worker.join()


if __name__ == "__main__":
    main()
