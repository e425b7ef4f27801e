"""Random lives of a consumer group: whatever members, topics and time do, the protocol's promises hold.

Members are modelled as clients see them. They own what they were assigned until they report that they gave it up, and
may lose any response.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from skylog.errors import ErrorCode, KafkaError
from skylog.groups.consumer.member import LEAVE_EPOCH, LEAVE_STATIC_EPOCH
from skylog.groups.consumer.partitions import NONE, Partitions, each, union, without
from tests.proof import proof

from .driver import REBALANCE_MS, SESSION_MS, Client, GroupDriver

T = TypeVar("T")
SUBSCRIPTIONS = (frozenset({"t"}), frozenset({"t", "u"}), frozenset({"u", "later"}))

REFUSALS = (
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.UNRELEASED_INSTANCE_ID,
    ErrorCode.FENCED_INSTANCE_ID,
)


def attempt(action: Callable[[], T]) -> T | ErrorCode:
    """Return the result of a request, or the code with which it is refused."""
    try:
        return action()
    except KafkaError as error:
        return error.code


class Consumer:
    """A client, and what it still reads although it was told to give it up."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.reading: Partitions = NONE
        self.is_gone = False  # dead, or fenced: it reads nothing
        self.lost_response = False  # then the next heartbeat is a full one, as clients do


class ConsumerGroupMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.driver = GroupDriver({"t": 5, "u": 3})
        self.consumers: list[Consumer] = []
        self.ids = 0
        self.last_epoch = 0
        self.member_epochs: dict[str, int] = {}

    def consumer(self, number: int) -> Consumer:
        return self.consumers[number % len(self.consumers)]

    # -- members

    @rule(
        topics=st.sampled_from(SUBSCRIPTIONS),
        instance=st.sampled_from((None, None, "one", "two")),
        by_pattern=st.booleans(),
        assignor=st.sampled_from((None, "uniform", "range")),
        rack=st.sampled_from((None, "x", "y")),
    )
    def join(
        self, topics: frozenset[str], instance: str | None, by_pattern: bool, assignor: str | None, rack: str | None
    ) -> None:
        if len(self.consumers) >= 5:
            return
        self.ids += 1
        pattern = "|".join(sorted(topics)) if by_pattern else None
        client = Client(f"m{self.ids}", 0, {}, instance, topics, pattern, assignor, rack)
        consumer = Consumer(client)
        self.beat(consumer, loses_response=False)
        if not consumer.is_gone:
            self.consumers.append(consumer)

    @precondition(lambda self: self.consumers)
    @rule(number=st.integers(0, 4), loses_response=st.booleans(), full=st.booleans())
    def heartbeat(self, number: int, loses_response: bool, full: bool) -> None:
        self.beat(self.consumer(number), loses_response=loses_response, full=full)

    @precondition(lambda self: self.consumers)
    @rule(number=st.integers(0, 4))
    def rejoin(self, number: int) -> None:
        """A client that gives up everything and starts again, with the same id."""
        consumer = self.consumer(number)
        consumer.reading = NONE
        consumer.client = replace(consumer.client, epoch=0, owned={})
        self.beat(consumer, loses_response=False)

    @precondition(lambda self: self.consumers)
    @rule(number=st.integers(0, 4))
    def gives_up_partitions(self, number: int) -> None:
        consumer = self.consumer(number)
        consumer.reading = consumer.client.owned

    @precondition(lambda self: self.consumers)
    @rule(number=st.integers(0, 4), topics=st.sampled_from(SUBSCRIPTIONS))
    def change_subscription(self, number: int, topics: frozenset[str]) -> None:
        consumer = self.consumer(number)
        consumer.client = replace(consumer.client, topics=topics, pattern=None)
        self.beat(consumer, loses_response=False, full=True)

    @precondition(lambda self: self.consumers)
    @rule(number=st.integers(0, 4), returns=st.booleans())
    def leave(self, number: int, returns: bool) -> None:
        consumer = self.consumer(number)
        client = consumer.client
        static = returns and client.instance_id is not None
        epoch = LEAVE_STATIC_EPOCH if static else LEAVE_EPOCH
        refused = attempt(lambda: self.driver.leave(client, epoch))
        assert refused in (None, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID)
        self.consumers.remove(consumer)

    @precondition(lambda self: self.consumers)
    @rule(number=st.integers(0, 4))
    def die(self, number: int) -> None:
        self.consumers.remove(self.consumer(number))

    def beat(self, consumer: Consumer, *, loses_response: bool, full: bool = False) -> None:
        client = consumer.client
        kept = consumer.reading
        reports = replace(client, owned=kept)
        after = attempt(lambda: self.driver.beat(reports, full=full or consumer.lost_response))
        if after is ErrorCode.FENCED_MEMBER_EPOCH:  # it gives up everything, and joins again with the same id
            consumer.reading = NONE
            consumer.client = replace(client, epoch=0, owned={})
            return
        if isinstance(after, ErrorCode):
            assert after in REFUSALS
            consumer.is_gone = True
            if consumer in self.consumers:
                self.consumers.remove(consumer)
            return
        consumer.lost_response = loses_response
        if loses_response:
            return
        assert after.epoch >= client.epoch
        assigned = client.owned if after.owned is kept else after.owned
        # What is assigned is read at once. What is not is still read, until the client gives it up.
        consumer.reading = union(assigned, without(kept, assigned))
        consumer.client = replace(client, epoch=after.epoch, owned=assigned)

    # -- the world

    @rule(name=st.sampled_from(("t", "u", "later")), count=st.integers(1, 9))
    def topic_grows(self, name: str, count: int) -> None:
        known = self.driver.topics.get(name)
        if known is None or len(known.partitions) < count:
            self.driver.set_topic(name, count)

    @rule(name=st.sampled_from(("t", "u")), brokers=st.permutations((1, 2, 3)))
    def replicas_move(self, name: str, brokers: list[int]) -> None:
        if name in self.driver.topics:
            self.driver.set_topic(name, len(self.driver.topics[name].partitions), *brokers)

    @rule(node_id=st.integers(1, 3), rack=st.sampled_from(("x", "y", "z")))
    def broker_has_a_rack(self, node_id: int, rack: str) -> None:
        """Brokers that start with another rack change the in-sync sets of their partitions."""
        self.driver.racks[node_id] = rack
        self.driver.topics = dict(self.driver.topics)

    @rule(name=st.sampled_from(("t", "u", "later")))
    def topic_is_deleted(self, name: str) -> None:
        self.driver.delete_topic(name)

    @rule(duration_ms=st.sampled_from((1000, SESSION_MS // 2, SESSION_MS, REBALANCE_MS)))
    def time_passes(self, duration_ms: int) -> None:
        self.driver.pass_ms(duration_ms)
        alive = self.driver.group.members
        self.consumers = [each for each in self.consumers if each.client.member_id in alive]

    @rule()
    def coordinator_moves(self) -> None:
        self.driver.restart()

    @precondition(lambda self: self.consumers)
    @rule()
    def the_group_settles(self) -> None:
        """With heartbeats and without changes, every partition is assigned to a live member that subscribes to it."""
        group = self.driver.group
        for _ in range(4):
            self.time_passes(SESSION_MS // 2)
            for _ in range(3):
                for consumer in tuple(self.consumers):
                    consumer.reading = consumer.client.owned
                    self.beat(consumer, loses_response=False)
        if not self.consumers:
            return
        assert group is self.driver.group
        assert group.state.value == "Stable"
        owned = {pair for consumer in self.consumers for pair in each(consumer.client.owned)}
        topics = self.driver.topics
        wanted = {
            (topics[name].topic_id, number)
            for name in group.subscribed_topics()
            if name in topics
            for number in range(len(topics[name].partitions))
        }
        assert owned == wanted

    # -- invariants

    @invariant()
    def no_partition_is_read_by_two_members(self) -> None:
        members = self.driver.group.members
        read = [
            pair
            for consumer in self.consumers
            if consumer.client.member_id in members
            for pair in each(consumer.reading)
        ]
        assert len(read) == len(set(read))

    @invariant()
    def no_partition_has_two_owners(self) -> None:
        owned = [pair for member in self.driver.group.members.values() for pair in each(member.current.owned)]
        assert len(owned) == len(set(owned))

    @invariant()
    def epochs_only_grow(self) -> None:
        group = self.driver.group
        assert group.epoch >= self.last_epoch
        assert group.epoch >= group.target_epoch
        self.last_epoch = group.epoch
        for member_id, member in group.members.items():
            epoch = member.current.epoch
            assert epoch <= group.target_epoch
            if epoch > 0:
                assert epoch >= self.member_epochs.get(member_id, 0)
                self.member_epochs[member_id] = epoch

    @invariant()
    def what_is_stored_is_what_is_in_memory(self) -> None:
        assert not self.driver.group.changes


TestConsumerGroupMachine = ConsumerGroupMachine.TestCase
TestConsumerGroupMachine.settings = settings(
    max_examples=proof(300, 40), stateful_step_count=proof(60, 40), deadline=None
)
