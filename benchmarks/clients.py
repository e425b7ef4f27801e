"""confluent-kafka clients in separate processes, as users run them.

A client of this module prints `ready`, waits for a line on its standard input, works, and prints one line of JSON.
Times are `time.perf_counter` values, which on Linux all processes share.

The parent's side is `Client` and `together`.
"""

from __future__ import annotations

import argparse
import json
import struct
import subprocess
import sys
import time
import uuid
from collections.abc import Sequence
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

VALUE = bytes(i * 31 % 251 for i in range(200))
QUEUED_MESSAGES = 2000
"""The queue limit of a producer: enough for all requests in flight, and small enough for the CPU's caches."""

QUEUED_BATCHES = 10
"""The same limit in batches, of which five are in flight."""

PRODUCED_PER_CALL = 250
CONSUMED_PER_CALL = 2000
CLIENT_SECONDS = 120
NO_PAUSES = {"fetch.queue.backoff.ms": 1}
"""By default librdkafka pauses a partition for a second once 100,000 messages wait for the application."""

_STAMP = struct.Struct(">d")


class Client:
    """A client process that has connected and waits for the start signal."""

    def __init__(self, action: str, bootstrap: str, **options: object) -> None:
        arguments = [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.clients", action, f"--bootstrap={bootstrap}", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        if self.process.stdout.readline() != "ready\n":
            raise RuntimeError(f"the client {action} did not get ready")

    def begin(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("go\n")
        self.process.stdin.flush()

    def result(self) -> dict[str, Any]:
        try:
            output, _ = self.process.communicate(timeout=CLIENT_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise
        if self.process.returncode:
            raise RuntimeError(f"a client ended with {self.process.returncode}")
        found: dict[str, Any] = json.loads(output)
        return found


def together(clients: Sequence[Client]) -> list[dict[str, Any]]:
    """Start all clients at the same time and wait for them."""
    for client in clients:
        client.begin()
    return [client.result() for client in clients]


# -- the client's side


def wait_for_the_word() -> tuple[float, float]:
    """Wait for the start signal. Return the time and the CPU time at the start."""
    print("ready", flush=True)
    sys.stdin.readline()
    return time.perf_counter(), time.process_time()


def finish(**values: object) -> None:
    print(json.dumps(values), flush=True)


def producer_settings(args: argparse.Namespace) -> dict[str, Any]:
    settings = {
        "bootstrap.servers": args.bootstrap,
        "acks": args.acks,
        "delivery.report.only.error": True,
        **security_settings(args),
    }
    if args.batch:
        settings["batch.num.messages"] = args.batch
    if args.linger_ms >= 0:
        settings["linger.ms"] = args.linger_ms
    return settings


def security_settings(args: argparse.Namespace) -> dict[str, str]:
    return {"security.protocol": "SSL", "ssl.ca.location": args.authority} if args.authority else {}


def produce(args: argparse.Namespace) -> None:
    """Run several producers, each with its own partition. They get messages alternately, as fast as they accept them.

    Failed deliveries are not checked here: the consumer that reads the topic afterwards would miss the messages.
    """
    producers = {args.first + number: Producer(producer_settings(args)) for number in range(args.producers)}
    for producer in producers.values():
        producer.list_topics(args.topic, 10)
    messages = [{"value": VALUE} for _ in range(PRODUCED_PER_CALL)]
    left = dict.fromkeys(producers, args.messages)
    start, cpu_start = wait_for_the_word()
    while left:
        stuck = True
        for partition in list(left):
            producer = producers[partition]
            if len(producer) >= QUEUED_MESSAGES:
                producer.poll(0)
                continue
            stuck = False
            left[partition] -= producer.produce_batch(args.topic, messages, partition=partition)
            if left[partition] <= 0:
                del left[partition]
        if stuck:
            time.sleep(0.0005)
    undelivered = sum(producer.flush(30) for producer in producers.values())
    end, cpu_s = time.perf_counter(), time.process_time() - cpu_start
    if undelivered:
        raise SystemExit(f"{undelivered} messages were not delivered in time")
    finish(start=start, end=end, cpu_s=cpu_s, messages=args.messages * args.producers)


def transact(args: argparse.Namespace) -> None:
    """Run an idempotent producer and one that commits every `transaction_ms`, in turn, over all partitions.

    Each has `pairs` turns of `seconds`. A turn ends when everything is acknowledged, and committed. Neighbours on the
    machine come and go, so only turns that follow each other are comparable.
    """
    idempotent = Producer(producer_settings(args) | {"enable.idempotence": True})
    transactional = Producer(producer_settings(args) | {"transactional.id": f"bench-{uuid.uuid4()}"})
    transactional.init_transactions(60)
    for producer in (idempotent, transactional):
        producer.list_topics(args.topic, 10)
    wait_for_the_word()
    pairs = [(_turn(args, idempotent, 0), _turn(args, transactional, args.transaction_ms)) for _ in range(args.pairs)]
    finish(pairs=pairs)


def _turn(args: argparse.Namespace, producer: Producer, transaction_ms: float) -> float:
    """Return messages per second."""
    messages = [{"value": VALUE} for _ in range(PRODUCED_PER_CALL)]
    queued = min(QUEUED_MESSAGES, QUEUED_BATCHES * args.batch) * args.partitions  # all of them end within the turn
    partition = count = 0
    start = time.perf_counter()
    end, due = start + args.seconds, start + transaction_ms / 1000
    if transaction_ms:
        producer.begin_transaction()
    while (now := time.perf_counter()) < end:
        if len(producer) >= queued:
            producer.poll(0.0005)
        else:
            count += producer.produce_batch(args.topic, messages, partition=partition)
            partition = (partition + 1) % args.partitions
        if transaction_ms and now >= due:
            producer.commit_transaction(60)
            producer.begin_transaction()
            due = time.perf_counter() + transaction_ms / 1000
    if transaction_ms:
        producer.commit_transaction(60)
    elif undelivered := producer.flush(60):
        raise SystemExit(f"{undelivered} messages were not delivered in time")
    return count / (time.perf_counter() - start)


def consume(args: argparse.Namespace) -> None:
    """Run one consumer with assigned partitions until it has received `messages`."""
    consumer = Consumer(consumer_settings(args))
    consumer.list_topics(args.topic, 10)
    start, cpu_start = wait_for_the_word()
    consumer.assign([TopicPartition(args.topic, number, OFFSET_BEGINNING) for number in range(args.partitions)])
    count = 0
    while count < args.messages:
        found = consumer.consume(min(CONSUMED_PER_CALL, args.messages - count), 10)
        if not found:
            raise SystemExit(f"no more messages after {count}")
        if error := found[0].error() or found[-1].error():
            raise SystemExit(str(error))
        count += len(found)
    end = time.perf_counter()
    finish(start=start, end=end, cpu_s=time.process_time() - cpu_start, messages=count)


def consumer_settings(args: argparse.Namespace) -> dict[str, Any]:
    settings = {"bootstrap.servers": args.bootstrap, "group.id": "bench", "enable.auto.commit": False}
    settings |= security_settings(args)
    return settings | (NO_PAUSES if args.no_pauses else {})


def pace(args: argparse.Namespace) -> None:
    """Send `rate` messages a second, each with the time at which it was passed to the producer."""
    producer = Producer(producer_settings(args))
    producer.list_topics(args.topic, 10)
    filler = VALUE[_STAMP.size :]
    start, _ = wait_for_the_word()
    for number in range(args.messages):
        due = start + number / args.rate
        while (left := due - time.perf_counter()) > 0:
            time.sleep(left)
        producer.produce(args.topic, _STAMP.pack(time.perf_counter()) + filler, partition=0)
        producer.poll(0)
    producer.flush(30)
    finish(start=start, end=time.perf_counter())


def acknowledge(args: argparse.Namespace) -> None:
    """Send `rate` messages a second, one at a time. Record how long each waits for its acknowledgement."""
    producer = Producer(producer_settings(args) | {"delivery.report.only.error": False})
    producer.list_topics(args.topic, 10)
    waits: list[float] = []

    def delivered(error: object, _: object) -> None:
        if error is not None:
            raise SystemExit(str(error))
        waits.append(time.perf_counter() - sent_at)

    start, _ = wait_for_the_word()
    for number in range(args.messages):
        while (left := start + number / args.rate - time.perf_counter()) > 0:
            time.sleep(left)
        sent_at = time.perf_counter()
        producer.produce(args.topic, VALUE, partition=0, on_delivery=delivered)
        while len(waits) == number:
            producer.poll(1)
    finish(waits=waits)


def listen(args: argparse.Namespace) -> None:
    """Record the age of each message when the application receives it."""
    consumer = Consumer(consumer_settings(args))
    consumer.assign([TopicPartition(args.topic, 0, OFFSET_BEGINNING)])
    consumer.poll(0.5)
    wait_for_the_word()
    ages: list[float] = []
    while len(ages) < args.messages:
        message = consumer.poll(10)
        if message is None or message.error():
            raise SystemExit(f"after {len(ages)} messages: {message and message.error()}")
        ages.append(time.perf_counter() - _STAMP.unpack_from(message.value() or b"")[0])
    finish(ages=ages)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.clients", description=__doc__)
    actions = {each.__name__: each for each in (produce, transact, consume, pace, acknowledge, listen)}
    parser.add_argument("action", choices=actions)
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--authority", default="", help="connect with TLS, and trust the certificates in this file")
    parser.add_argument("--topic", default="bench")
    parser.add_argument("--messages", type=int, default=0, help="per producer, or in all for a consumer")
    parser.add_argument("--producers", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="the partition of the first producer")
    parser.add_argument("--partitions", type=int, default=1)
    parser.add_argument("--batch", type=int, default=0, help="messages per batch; 0 leaves it to librdkafka")
    parser.add_argument("--linger-ms", type=float, default=-1, help="-1 leaves it to librdkafka")
    parser.add_argument("--no-pauses", type=int, default=0, help="1 keeps librdkafka from pausing a fast consumer")
    parser.add_argument("--acks", default="1")
    parser.add_argument("--rate", type=float, default=1000)
    parser.add_argument("--transaction-ms", type=int, default=100, help="time between two commits")
    parser.add_argument("--pairs", type=int, default=5, help="turns of each producer, without and with transactions")
    parser.add_argument("--seconds", type=float, default=1.0, help="length of a turn")
    args = parser.parse_args()
    actions[args.action](args)


if __name__ == "__main__":
    main()
