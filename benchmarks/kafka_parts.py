"""What `kafka` measures of one broker: produce, single requests, consume, latency, start. Each returns its figures."""

from __future__ import annotations

import statistics
import time

from confluent_kafka.admin import AdminClient

from benchmarks import frames, load, replication
from benchmarks.channel import Channel, expect_no_error, produce
from benchmarks.clients import Client, together
from benchmarks.clusters import BrokerCluster, create_topic, wait_until
from benchmarks.replication import BATCHES, PARTITIONS

CONNECTIONS = 8
IN_FLIGHT = 5
MESSAGES = {1: 20_000, 50: 150_000, 1000: 400_000}  # of a turn, for each partition
CONSUMED = 1_500_000
RATE = 500
IGNORED = 300
SETTLED_S = 1.0

Figures = dict[str, float]


def address_of(broker: BrokerCluster) -> tuple[str, int]:
    return "127.0.0.1", broker.ports[1]


def make_topic(broker: BrokerCluster, topic: str, partitions: int = 1) -> bool:
    """Create a topic. Return False if it was there."""
    if topic in AdminClient({"bootstrap.servers": broker.bootstrap}).list_topics(timeout=10).topics:
        return False
    create_topic(broker, topic, partitions)
    return True


def produce_batches(broker: BrokerCluster, quick: bool) -> Figures:
    figures: Figures = {}
    for batch in BATCHES:
        found = replication.produce_batches(broker, batch, MESSAGES[batch] // (5 if quick else 1))
        figures |= {f"rate {batch}": found["rate"], f"cpu {batch}": found["cpu_us"]}
    return figures


def single_requests(broker: BrokerCluster, seconds: float) -> Figures:
    make_topic(broker, "single")
    request = frames.produce_request("single", frames.record_batch(1)).data
    before = broker.cpu_seconds()
    done = load.run(
        address_of(broker),
        [[request] * 8] * CONNECTIONS,
        in_flight=IN_FLIGHT,
        error_at=frames.produce_error_at("single"),
        seconds=seconds * 3,
    )
    cpu_s = broker.cpu_seconds() - before
    return {"requests": done.requests_per_second, "request cpu": cpu_s / done.total_requests * 1e6}


def consume(broker: BrokerCluster, quick: bool) -> Figures:
    messages = CONSUMED // (5 if quick else 1)
    if make_topic(broker, "consumed", PARTITIONS):
        how = {"topic": "consumed", "messages": messages // PARTITIONS, "producers": PARTITIONS, "batch": 1000}
        together([Client("produce", broker.bootstrap, linger_ms=replication.FULL_BATCH_MS, **how)])
    client = Client(
        "consume", broker.bootstrap, topic="consumed", partitions=PARTITIONS, messages=messages, no_pauses=1
    )
    before = broker.cpu_seconds()
    [result] = together([client])
    cpu_s = broker.cpu_seconds() - before
    return {"consumed": messages / (result["end"] - result["start"]), "consumer cpu": cpu_s / messages * 1e6}


def latencies(broker: BrokerCluster, quick: bool) -> Figures:
    """Measure acknowledgements and the way to a consumer, over bare sockets and with confluent-kafka."""
    messages = IGNORED + RATE * (2 if quick else 6)
    bare = statistics.quantiles(_bare_waits(broker, messages)[IGNORED:], n=100)
    ages = statistics.quantiles(_bare_ages(broker, messages)[IGNORED:], n=100)
    how = {"messages": messages, "acks": "all", "linger_ms": 0, "rate": RATE}
    [result] = together([Client("acknowledge", broker.bootstrap, topic="paced", **how)])
    acknowledged = statistics.median(result["waits"][IGNORED:])
    figures = {"ack p50": bare[49] * 1e3, "ack p99": bare[98] * 1e3, "client ack p50": acknowledged * 1e3}
    figures |= {"age p50": ages[49] * 1e3, "age p99": ages[98] * 1e3}
    make_topic(broker, topic := f"aged-{time.monotonic_ns()}")
    return figures | replication.latency(broker, quick, topic)


def _bare_waits(broker: BrokerCluster, messages: int) -> list[float]:
    """Return how long each of `messages` small requests waited, sent one at a time at `RATE`."""
    request = frames.produce_request("paced", frames.record_batch(1), acks=-1).data
    error_at = frames.produce_error_at("paced")
    clock, waits = time.perf_counter, []
    with Channel(address_of(broker)) as channel:
        start = clock()
        for number in range(messages):
            while (left := start + number / RATE - clock()) > 0:
                time.sleep(left)
            sent_at = clock()
            answer = channel.ask(request)
            waits.append(clock() - sent_at)
            expect_no_error(answer, error_at)
    return waits


def _bare_ages(broker: BrokerCluster, messages: int) -> list[float]:
    """Return how long each of `messages` small requests took to arrive as the response to a fetch that waits for it."""
    topic = f"fetched-{time.monotonic_ns()}"
    make_topic(broker, topic)
    request = frames.produce_request(topic, frames.record_batch(1), acks=-1).data
    clock, ages = time.perf_counter, []
    with Channel(address_of(broker)) as producer, Channel(address_of(broker)) as consumer:
        start = clock()
        for offset in range(messages):
            consumer.send(frames.fetch_request(topic, offset, max_wait_ms=30_000).data)
            while (left := start + offset / RATE - clock()) > 0:
                time.sleep(left)
            sent_at = clock()
            producer.send(request)
            answer = consumer.receive()
            ages.append(clock() - sent_at)
            expect_no_error(producer.receive(), frames.produce_error_at(topic))
            if frames.records_end_offset(frames.fetch_response_records(topic, answer)) != offset + 1:
                raise RuntimeError(f"{broker.name} answered a fetch of offset {offset} with other records")
    return ages


def start(broker: BrokerCluster) -> Figures:
    """Stop the broker, start it again, wait until it acknowledges a message, and look at its memory."""
    make_topic(broker, "single")
    broker.stop(1)
    began = time.perf_counter()
    broker.start(1)

    def is_acknowledged() -> bool:
        try:
            with Channel(address_of(broker)) as channel:
                produce(channel, "single", frames.record_batch(1))
        except (OSError, RuntimeError):
            return False
        return True

    wait_until(is_acknowledged, 60, f"{broker.name} acknowledges a message", every_s=0.005)
    taken = time.perf_counter() - began
    time.sleep(SETTLED_S)
    return {"start": taken, "idle memory": broker.rss_bytes() / 1e6}
