"""The clients of a topic: idempotent producers, a consumer group that commits, and two watchers.

    with Workload(cluster.bootstrap, "t", partitions=4, seed=1) as work:
        work.wait_for_progress("at the start")
        cluster.kill(1)
        work.wait_for_progress("without broker 1")
    check(work.history, work.stored)

The producers and the group are confluent-kafka's. One watcher follows the committed offsets of the group, the other one
the high watermarks, as a client does that knows of leader epochs (KIP-320): it ignores what a former leader says.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Self

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from skylog.simulation.history import UNKNOWN, Answer, Assignment, Commit, History, Message, Value
from skylog.testing import wait_until
from tests.broker.raw import ClosedByBrokerError, RawClient
from tests.patience import patience

PRODUCERS = 2
MEMBERS = 2
PAUSE_S = 0.02  # of a producer, after a message to each partition
MAX_WAITING = 500  # messages in a producer's queue
COMMIT_INTERVAL_S = 0.2
WATCH_INTERVAL_S = 0.05
PROGRESS_S = 20.0  # sessions expire, leaders are elected, clients find them
_SHORTLY_S = 2.0
_GIVEN_UP_S = 3.0  # without an answer for so long, librdkafka closes the connection and sends a commit again

# A connection on which nothing comes is given up soon, as through a network partition.
IMPATIENT: dict[str, Any] = {
    "socket.timeout.ms": int(_GIVEN_UP_S * 1000),
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 200,
    "topic.metadata.refresh.interval.ms": 2000,
    "broker.address.family": "v4",
    "log_level": 0,
}


class _Client(threading.Thread):
    """A client in a thread. `failure` is the exception that has ended it, `doing` what it waits for."""

    def __init__(self, name: str) -> None:
        super().__init__(name=name, daemon=True)
        self.stopping = threading.Event()
        self.failure: BaseException | None = None
        self.doing = ""

    def run(self) -> None:
        try:
            self.work()
        except BaseException as failure:
            self.failure = failure

    def work(self) -> None:
        raise NotImplementedError

    def end(self, seconds: float) -> None:
        """Let it finish, and raise what has ended it."""
        self.stopping.set()
        self.join(seconds)
        assert not self.is_alive(), f"{self.name} does not end: {self.doing}"
        if self.failure is not None:
            raise self.failure


class NumberProducer(_Client):
    """Sends numbers to all partitions in turn, and ends when everything is acknowledged."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, number: int, history: History, seed: str) -> None:
        super().__init__(f"producer {number}")
        self._topic, self._partitions, self._number = topic, partitions, number
        self._history = history
        self._random = random.Random(seed)
        self._producer = Producer(
            {
                **IMPATIENT,
                "bootstrap.servers": bootstrap,
                "client.id": f"producer-{number}",
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 5,
                "request.timeout.ms": 2000,
                "retry.backoff.ms": 20,
                "delivery.timeout.ms": 180_000,
            }
        )

    def work(self) -> None:
        numbers = iter(range(1 << 30))
        while not self.stopping.is_set():
            self.doing = f"{len(self._producer)} messages are not acknowledged"
            if len(self._producer) < MAX_WAITING:
                for partition in range(self._partitions):
                    value = Value(self._number, next(numbers))
                    padding = b"." * self._random.randrange(200)
                    self._producer.produce(
                        self._topic, value.encode(padding), partition=partition, on_delivery=self._delivered
                    )
            self._producer.poll(PAUSE_S)
        left = self._producer.flush(patience(60))
        if left:
            self._history.failed.append(f"{self.name}: {left} messages are not acknowledged")

    def _delivered(self, error: Any, message: Any) -> None:
        if error is None:
            offset = message.offset()
            value = Value.decode(message.value())
            self._history.acknowledged.append(
                Message(message.partition(), UNKNOWN if offset is None else offset, value)
            )
        else:
            self._history.failed.append(f"{self.name}: {message.partition()}: {error}")


class GroupMember(_Client):
    """A consumer of the group. It commits what it has read a few times a second."""

    def __init__(self, bootstrap: str, topic: str, name: str, assignor: str, history: History) -> None:
        super().__init__(name)
        self._topic = topic
        self._history = history
        self._assigned: dict[int, Assignment] = {}
        self._uncommitted: dict[int, int] = {}
        self._refused = ""
        self._consumer = Consumer(
            {
                **IMPATIENT,
                "bootstrap.servers": bootstrap,
                "client.id": name,
                "group.id": topic,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "partition.assignment.strategy": assignor,
                "session.timeout.ms": 6000,
                "heartbeat.interval.ms": 500,
                "fetch.wait.max.ms": 100,
            }
        )

    def work(self) -> None:
        self._consumer.subscribe([self._topic], on_assign=self._assign, on_revoke=self._revoke, on_lost=self._lose)
        commit_at = time.monotonic()
        while not self.stopping.is_set():
            self.doing = f"poll, {sorted(self._assigned)} assigned, {self._uncommitted} not committed: {self._refused}"
            message = self._consumer.poll(0.05)
            if message is not None and message.error() is None:
                self._note(message)
            if time.monotonic() > commit_at:
                self._commit()
                commit_at = time.monotonic() + COMMIT_INTERVAL_S
        self._commit()
        self.doing = "close"
        self._consumer.close()

    def _assign(self, _: Any, partitions: Sequence[TopicPartition]) -> None:
        for each in partitions:
            self._assigned[each.partition] = self._history.assign(self.name, each.partition)

    def _revoke(self, consumer: Any, partitions: Sequence[TopicPartition]) -> None:
        self._commit()
        self._lose(consumer, partitions)

    def _lose(self, _: Any, partitions: Sequence[TopicPartition]) -> None:
        for each in partitions:
            self._assigned.pop(each.partition, None)
            self._uncommitted.pop(each.partition, None)

    def _note(self, message: Any) -> None:
        partition, offset = message.partition(), message.offset()
        value = Value.decode(message.value())
        self._assigned[partition].messages.append(Message(partition, offset, value))
        self._uncommitted[partition] = offset + 1

    def _commit(self) -> None:
        if not self._uncommitted:
            return
        offsets = [TopicPartition(self._topic, *each) for each in self._uncommitted.items()]
        self.doing = "commit"
        began = time.monotonic()
        try:
            done = self._consumer.commit(offsets=offsets, asynchronous=False)
        except KafkaException as error:
            self._refused = str(error)  # the coordinator is away, or the group rebalances
            return
        finally:
            if time.monotonic() - began >= _GIVEN_UP_S:
                # The link may still hold the first request back, and deliver it after later commits.
                self._history.given_up.update((each.partition, each.offset) for each in offsets)
        for each in done or ():
            if each.error is None:
                self._history.commits.append(Commit(each.partition, each.offset, self._history.tick()))
                self._uncommitted.pop(each.partition, None)


class CommittedWatch(_Client):
    """Asks for the committed offsets of the group again and again."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, history: History) -> None:
        super().__init__("watch of committed offsets")
        self._history = history
        self._partitions = [TopicPartition(topic, partition) for partition in range(partitions)]
        self._consumer = Consumer({**IMPATIENT, "bootstrap.servers": bootstrap, "group.id": topic})

    def work(self) -> None:
        while not self.stopping.wait(WATCH_INTERVAL_S):
            try:
                found = self._consumer.committed(self._partitions, timeout=_SHORTLY_S)
            except KafkaException:
                continue
            answers = [Answer(each.partition, each.offset) for each in found if each.error is None and each.offset >= 0]
            self._history.committed += answers
        self._consumer.close()


class WatermarkWatch(_Client):
    """Asks the leaders for the ends of the partitions again and again."""

    def __init__(self, bootstrap: str, topic: str, history: History) -> None:
        super().__init__("watch of high watermarks")
        self._addresses = [_address_of(each) for each in bootstrap.split(",")]
        self._topic = topic
        self._history = history
        self._epochs: dict[int, int] = {}

    def work(self) -> None:
        while not self.stopping.wait(WATCH_INTERVAL_S):
            host, port = random.choice(self._addresses)
            try:
                with RawClient(port, _SHORTLY_S, host=host) as client:
                    metadata = client.metadata(self._topic)
            except (OSError, ClosedByBrokerError):
                continue
            addresses = {broker.node_id: (broker.host, broker.port) for broker in metadata.brokers}
            for row in metadata.topics[0].partitions:
                if row.leader_id in addresses and row.leader_epoch >= self._epochs.get(row.partition_index, 0):
                    self._epochs[row.partition_index] = row.leader_epoch
                    self._look(addresses[row.leader_id], row.partition_index, row.leader_epoch)

    def _look(self, address: tuple[str, int], partition: int, epoch: int) -> None:
        host, port = address
        try:
            with RawClient(port, _SHORTLY_S, host=host) as client:
                found = client.list_offset(self._topic, -1, partition=partition, epoch=epoch)
        except (OSError, ClosedByBrokerError):
            return
        if found.error_code == 0:
            self._history.watermarks.append(Answer(partition, found.offset))


def _address_of(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    return host, int(port)


class Workload:
    """Clients of a new topic, from the beginning of the block until its end. `stored` is the topic as it is then."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, *, seed: int, **configs: str) -> None:
        self.topic = topic
        self.history = History()
        self.stored: dict[int, list[Value]] = {}
        self.pauses: list[tuple[str, float]] = []
        """How long each wait for progress took."""
        self._bootstrap, self._partitions = bootstrap, partitions
        create_topic(bootstrap, topic, partitions, **configs)
        assignor = random.Random(f"{seed}/assignor").choice(["range", "cooperative-sticky"])
        self._producers = [
            NumberProducer(bootstrap, topic, partitions, number, self.history, f"{seed}/{number}")
            for number in range(PRODUCERS)
        ]
        self._others: list[_Client] = [
            *(GroupMember(bootstrap, topic, f"member-{number}", assignor, self.history) for number in range(MEMBERS)),
            CommittedWatch(bootstrap, topic, partitions, self.history),
            WatermarkWatch(bootstrap, topic, self.history),
        ]

    def __enter__(self) -> Self:
        for client in [*self._producers, *self._others]:
            client.start()
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is not None:
            for client in [*self._producers, *self._others]:
                client.stopping.set()
            return
        for producer in self._producers:
            producer.end(patience(80))
        self.stored = read_topic(self._bootstrap, self.topic, self.ends())
        self._wait(lambda: self._unread() == [], "everything to be read", PROGRESS_S)
        for client in self._others:
            client.end(patience(30))

    def ends(self) -> dict[int, int]:
        """The end of each partition, as far as it is acknowledged."""
        ends = dict.fromkeys(range(self._partitions), 0)
        for message in list(self.history.acknowledged):
            ends[message.partition] = max(ends[message.partition], message.offset + 1)
        return ends

    def consumed(self) -> dict[int, int]:
        """The end of what the group has read of each partition."""
        ends = dict.fromkeys(range(self._partitions), 0)
        for assignment in list(self.history.assignments):
            if assignment.messages:
                ends[assignment.partition] = max(ends[assignment.partition], assignment.messages[-1].offset + 1)
        return ends

    def _unread(self) -> list[int]:
        consumed = self.consumed()
        return [partition for partition, log in self.stored.items() if consumed[partition] < len(log)]

    def wait_for_progress(self, when: str, count: int = 5, seconds: float = PROGRESS_S) -> None:
        """Wait until further messages to every partition are acknowledged, and read by the group."""
        began = time.monotonic()
        goal = self._acknowledged() + Counter(dict.fromkeys(range(self._partitions), count))
        self._wait(lambda: not goal - self._acknowledged(), f"acknowledgements {when}", seconds)
        ends = self.ends()
        self._wait(
            lambda: all(self.consumed()[each] >= end for each, end in ends.items()), f"consumers {when}", seconds
        )
        self.pauses.append((when, round(time.monotonic() - began, 1)))

    def _acknowledged(self) -> Counter[int]:
        return Counter(message.partition for message in list(self.history.acknowledged))

    def _wait(self, condition: Callable[[], bool], what: str, seconds: float) -> None:
        def is_met() -> bool:
            for client in [*self._producers, *self._others]:
                if client.failure is not None:
                    raise client.failure
            time.sleep(0.03)
            return condition()

        try:
            wait_until(is_met, what, patience(seconds))
        except AssertionError:
            self._describe()
            raise

    def _describe(self) -> None:
        """Print what the clients wait for."""
        print("acknowledged:", self.ends(), "read:", self.consumed())
        for client in [*self._producers, *self._others]:
            print(f"{client.name}: {client.doing}")
        admin = AdminClient({**IMPATIENT, "bootstrap.servers": self._bootstrap})
        try:
            group = admin.describe_consumer_groups([self.topic], request_timeout=5)[self.topic].result(10)
            print(
                "group:",
                group.state,
                "coordinator:",
                group.coordinator,
                [str(each.assignment) for each in group.members],
            )
        except KafkaException as error:
            print("group:", error)


def create_topic(bootstrap: str, topic: str, partitions: int, **configs: str) -> None:
    """Create a topic with three replicas. Names of configs have underscores in place of dots."""
    config = {"min.insync.replicas": "2"} | {key.replace("_", "."): value for key, value in configs.items()}
    admin = AdminClient({**IMPATIENT, "bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, partitions, 3, config=config)])[topic].result(patience(20))


def read_topic(bootstrap: str, topic: str, ends: dict[int, int]) -> dict[int, list[Value]]:
    """Return the values of each partition. It is read to its end, which is at least that of `ends` if all is well."""
    settings: dict[str, Any] = {"bootstrap.servers": bootstrap, "group.id": "none", "enable.partition.eof": True}
    consumer = Consumer({**IMPATIENT, **settings, "enable.auto.commit": False, "auto.offset.reset": "error"})
    consumer.assign([TopicPartition(topic, partition, 0) for partition in ends])
    found: dict[int, list[Value]] = {partition: [] for partition in ends}
    unfinished = set(ends)
    deadline = time.monotonic() + patience(30)
    while unfinished and time.monotonic() < deadline:
        message = consumer.poll(0.2)
        if message is None:
            continue
        partition, offset = int(message.partition() or 0), int(message.offset() or 0)
        if message.error() is None:
            log = found[partition]
            assert offset == len(log), f"partition {partition} has offset {offset} after {len(log) - 1}"
            log.append(Value.decode(message.value()))
        elif len(found[partition]) >= ends[partition]:
            unfinished.discard(partition)
    consumer.close()
    return found
