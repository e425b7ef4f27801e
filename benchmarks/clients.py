"""confluent-kafka clients as processes of their own, the way users run them: produce, consume, pace, listen.

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
from collections.abc import Sequence
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

VALUE = bytes(i * 31 % 251 for i in range(200))
QUEUED_MESSAGES = 2000
"""What a producer may have waiting: enough for all requests in flight, and little enough for the CPU's caches."""

PRODUCED_PER_CALL = 250
CONSUMED_PER_CALL = 2000
CLIENT_SECONDS = 60
NO_PAUSES = {"fetch.queue.backoff.ms": 1}
"""By default librdkafka pauses a partition for a second once 100,000 messages wait for the application."""

_STAMP = struct.Struct(">d")


class Client:
    """A client process that has connected and waits for the word."""

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
    """Let the clients go at once and wait for all of them."""
    for client in clients:
        client.begin()
    return [client.result() for client in clients]


# -- the client's side


def wait_for_the_word() -> tuple[float, float]:
    """The time and the CPU time at which work begins."""
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
    }
    if args.batch:
        settings["batch.num.messages"] = args.batch
    if args.linger_ms >= 0:
        settings["linger.ms"] = args.linger_ms
    return settings


def produce(args: argparse.Namespace) -> None:
    """Several producers, each with a partition of its own, fed in turn as fast as they take it.

    Failed deliveries are not watched for here: whoever reads the topic afterwards misses the messages.
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


def consume(args: argparse.Namespace) -> None:
    """One consumer, partitions assigned, counting what comes until it has `messages`."""
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
    return settings | (NO_PAUSES if args.no_pauses else {})


def pace(args: argparse.Namespace) -> None:
    """`rate` messages a second, each with the time at which it was handed to the producer."""
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


def listen(args: argparse.Namespace) -> None:
    """Take down how old each message is when the application has it."""
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
    actions = {each.__name__: each for each in (produce, consume, pace, listen)}
    parser.add_argument("action", choices=actions)
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--topic", default="bench")
    parser.add_argument("--messages", type=int, required=True, help="per producer, or in all for a consumer")
    parser.add_argument("--producers", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="the partition of the first producer")
    parser.add_argument("--partitions", type=int, default=1)
    parser.add_argument("--batch", type=int, default=0, help="messages per batch; 0 leaves it to librdkafka")
    parser.add_argument("--linger-ms", type=float, default=-1, help="-1 leaves it to librdkafka")
    parser.add_argument("--no-pauses", type=int, default=0, help="1 keeps librdkafka from pausing a fast consumer")
    parser.add_argument("--acks", default="1")
    parser.add_argument("--rate", type=float, default=1000)
    args = parser.parse_args()
    actions[args.action](args)


if __name__ == "__main__":
    main()
