"""A partition, its brokers and its controllers, for tests of the decisions in `skylog.cluster`.

Everything around the decisions is modelled in its worst form. Brokers and controllers act on outdated views. A commit
succeeds if the version is still the one that was read. A crash may lose what was not flushed, a disk may be lost.
Followers fetch and truncate by leader epochs, and the leader advances the high watermark by the rules of
`skylog.cluster.elections`.

Each action takes two numbers, a broker and an amount, and does nothing where it makes no sense. So any sequence of
actions is a life of the partition. `copies` is the number of complete replicas that the rules promise. Data is lost
only as long as one of them is left; then every record that was ever committed must survive.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from random import Random
from typing import NamedTuple

from skylog.cluster import BrokerImage, PartitionImage, elections, reassignment
from skylog.cluster.elections import ElectionRules
from skylog.cluster.image import NO_LEADER
from skylog.errors import KafkaError

NODES = (1, 2, 3, 4)
TARGETS = ((1, 2, 3), (3, 2, 1), (2, 3, 4), (4, 1), (1, 2), (4,), (2, 3, 4, 1))
ALL = 1 << 30


class Record(NamedTuple):
    epoch: int
    number: int


class TopicView(NamedTuple):
    """The topic's entry in the store."""

    partition: PartitionImage
    rules: ElectionRules
    version: int


class Proposal(NamedTuple):
    """A change of the in-sync set that is in flight. `joining` has the incarnation of each replica that it adds."""

    partition: PartitionImage
    version: int
    joining: Mapping[int, int]


class Phase(Enum):
    DOWN = "down"
    STARTING = "starting"
    RUNNING = "running"


@dataclass
class Decisions:
    """What is tested. A test of the tests replaces one of them by a wrong one."""

    reconcile: Callable[..., PartitionImage] = elections.reconcile
    settle: Callable[..., PartitionImage] = elections.settle
    resign: Callable[..., PartitionImage] = elections.resign
    expand: Callable[..., PartitionImage] = elections.expand
    shrink: Callable[..., PartitionImage] = elections.shrink
    joining_offset: Callable[..., int] = elections.joining_offset
    begin: Callable[..., PartitionImage] = reassignment.begin
    cancel: Callable[..., PartitionImage] = reassignment.cancel
    advance: Callable[..., PartitionImage] = reassignment.advance
    joining_counts_as_in_sync: bool = False
    joining_is_waited_for: bool = True
    retry_is_waited_for: bool = True
    retry_is_checked: bool = True
    commits_below_required: bool = False
    versions_are_checked: bool = True
    incarnations_are_checked: bool = True


@dataclass
class Node:
    """A broker: its disk, and the state of its process."""

    node_id: int
    topic: TopicView
    log: list[Record] = field(default_factory=list)
    flushed: int = 0
    phase: Phase = Phase.RUNNING
    incarnation: int = 1
    is_intact: bool = False  # known to have lost nothing when it starts
    has_lost_disk: bool = False
    has_lost_records: bool = False
    has_resigned: bool = True
    brokers: Mapping[int, BrokerImage] = field(default_factory=dict)
    high_watermark: int = 0
    leads: int | None = None  # the epoch in which it leads
    epoch_start: int = 0
    positions: dict[int, tuple[int, int]] = field(default_factory=dict)  # of followers: offset and incarnation
    proposal: Proposal | None = None
    outdated: Proposal | None = None  # the proposal that a newer state has ended

    def end_process(self, phase: Phase) -> None:
        self.phase = phase
        self.leads, self.proposal, self.outdated, self.high_watermark = None, None, None, 0
        self.positions = {}

    def truncate(self, end: int) -> None:
        del self.log[end:]
        self.flushed, self.high_watermark = min(self.flushed, end), min(self.high_watermark, end)


class Controller:
    """A controller or a former one. It looks at brokers and topic at different times."""

    def __init__(self, topic: TopicView, brokers: Mapping[int, BrokerImage]) -> None:
        self.topic = topic
        self.brokers = brokers


class PartitionWorld:
    def __init__(self, decisions: Decisions | None = None, min_in_sync: int = 2, is_careful: bool = True) -> None:
        self.decide = decisions or Decisions()
        self.is_careful = is_careful
        first = PartitionImage(1, 0, (1, 2, 3), (1, 2, 3))
        self.topic = TopicView(first, ElectionRules(min_in_sync, allow_unclean=False), 1)
        self.brokers = {each: BrokerImage(each, "", 0, incarnation=1) for each in NODES}
        self.incarnations = dict.fromkeys(NODES, 1)
        self.nodes = {each: Node(each, self.topic) for each in NODES}
        self.controllers = [Controller(self.topic, dict(self.brokers)) for _ in range(2)]
        self.committed: list[Record] = []
        self.leaders = {0: 1}
        self.written = 0
        self.copies = self.topic.rules.required(first)
        for each in NODES:
            self.observe(each)

    # -- the store

    def commit(self, partition: PartitionImage, version: int, joining: Mapping[int, int] | None = None) -> bool:
        if self.decide.versions_are_checked and version != self.topic.version:
            return False
        for node_id, incarnation in (joining or {}).items():
            if self.decide.incarnations_are_checked and self.incarnations[node_id] != incarnation:
                return False
        if partition != self.topic.partition:
            self.put(partition, self.topic.rules)
        return True

    def put(self, partition: PartitionImage, rules: ElectionRules) -> None:
        check_state(partition, rules)
        self.check_change(self.topic.partition, partition)
        self.topic = TopicView(partition, rules, self.topic.version + 1)
        required = rules.required(partition)
        self.copies = required if len(partition.in_sync_replicas) >= required else min(self.copies, required)
        if self.is_hopeless(set()):  # fewer copies are required than before, or one joined that had just crashed
            self.is_careful = False

    def check_change(self, before: PartitionImage, after: PartitionImage) -> None:
        assert after.leader_epoch >= before.leader_epoch, "the leader epoch goes back"
        assert self.leaders.setdefault(after.leader_epoch, after.leader) == after.leader, "two leaders in one epoch"

    @property
    def complete(self) -> set[int]:
        partition = self.topic.partition
        return {*partition.in_sync_replicas, *partition.eligible_replicas}

    # -- the lives of brokers

    def crash(self, node_id: int, amount: int) -> None:
        """End a process without notice. It loses up to `amount` records that it had not flushed."""
        node = self.nodes[node_id]
        if node.phase is Phase.DOWN or self.is_hopeless({node_id}):
            return
        may_lose = self.may_lose(node_id)
        node.end_process(Phase.DOWN)
        node.is_intact = False
        if may_lose:
            self.lose(node, max(node.flushed, len(node.log) - amount))

    def lose_disk(self, node_id: int, _: int = 0) -> None:
        node = self.nodes[node_id]
        if node.phase is Phase.DOWN and self.may_lose(node_id):
            node.is_intact, node.has_lost_disk = False, True
            self.lose(node, 0)

    def lose(self, node: Node, end: int) -> None:
        node.has_lost_records |= end < len(node.log)
        node.truncate(end)

    def doubtful(self) -> set[int]:
        """The complete replicas that have crashed and not resigned yet: they may have lost something."""
        nodes = (self.nodes[each] for each in self.complete)
        return {
            node.node_id for node in nodes if not node.is_intact and (node.phase is Phase.DOWN or not node.has_resigned)
        }

    def may_lose(self, node_id: int) -> bool:
        """Whether a complete replica is left for sure if this one is not complete any more."""
        if not self.is_careful or node_id not in self.complete:
            return True
        return self.copies - len(self.doubtful() | {node_id}) >= 1

    def is_hopeless(self, crashing: set[int]) -> bool:
        """Whether all complete replicas that the rules promise are in doubt, and one has really lost something."""
        doubtful = self.doubtful() | (crashing & self.complete)
        has_lost = any(self.nodes[each].has_lost_records for each in doubtful)
        return self.is_careful and has_lost and self.copies <= len(doubtful)

    def expire(self, node_id: int, _: int = 0) -> None:
        """End a broker's session. A process that is still there does not know it."""
        self.brokers.pop(node_id, None)

    def start(self, node_id: int, _: int = 0) -> None:
        """Begin a new incarnation: of a process that has ended, or of one that has lost its session."""
        node = self.nodes[node_id]
        if node.phase is Phase.RUNNING and node_id not in self.brokers:
            node.is_intact = True
        elif node.phase is not Phase.DOWN:
            return
        node.end_process(Phase.STARTING)
        self.incarnations[node_id] += 1
        node.incarnation = self.incarnations[node_id]
        node.has_resigned = False
        self.brokers.pop(node_id, None)

    def resign(self, node_id: int, _: int = 0) -> None:
        node, partition = self.nodes[node_id], self.topic.partition
        if node.phase is not Phase.STARTING or node.has_resigned:
            return
        was_complete = node_id in self.complete
        after = self.decide.resign(
            partition,
            node_id,
            self.topic.rules,
            has_lost_data=node.has_lost_disk,
            is_intact=node.is_intact,
        )
        self.commit(after, self.topic.version)
        self.copies -= was_complete and node_id not in self.complete
        node.has_resigned, node.is_intact = True, False
        node.has_lost_disk = node.has_lost_records = False

    def register(self, node_id: int, _: int = 0) -> None:
        node = self.nodes[node_id]
        if node.phase is Phase.STARTING and node.has_resigned:
            node.phase = Phase.RUNNING
            self.brokers[node_id] = BrokerImage(node_id, "", 0, incarnation=node.incarnation)
            self.observe(node_id)

    def restart(self, node_id: int, amount: int) -> None:
        """A whole bounce that nobody else notices."""
        self.crash(node_id, amount)
        self.start(node_id)
        self.resign(node_id)
        self.register(node_id)

    def begin_stop(self, node_id: int, _: int = 0) -> None:
        if self.nodes[node_id].phase is Phase.RUNNING and node_id in self.brokers:
            self.brokers[node_id] = replace(self.brokers[node_id], is_stopping=True)

    def finish_stop(self, node_id: int, _: int = 0) -> None:
        node = self.nodes[node_id]
        if node.phase is Phase.RUNNING and node_id in self.brokers and self.brokers[node_id].is_stopping:
            node.end_process(Phase.DOWN)
            node.flushed, node.is_intact = len(node.log), True
            self.expire(node_id)

    def flush(self, node_id: int, _: int = 0) -> None:
        self.nodes[node_id].flushed = len(self.nodes[node_id].log)

    def fail_over(self, _: int, amount: int) -> None:
        """End the leader's session, and let the controller see it. The process may live on."""
        leader = self.topic.partition.leader
        if leader != NO_LEADER and amount:
            self.expire(leader)
            self.control(0, 1)

    # -- replication

    def a_leader(self, number: int) -> Node | None:
        """One of the brokers that think they lead: a former leader may not know better."""
        leading = [node for node in self.nodes.values() if node.leads is not None]
        return leading[number % len(leading)] if leading else None

    def observe(self, node_id: int, _: int = 0) -> None:
        """Let a broker see the present state of the store, and do what it says."""
        node = self.nodes[node_id]
        if node.phase is not Phase.RUNNING:
            return
        node.topic, node.brokers = self.topic, dict(self.brokers)
        partition = node.topic.partition
        if node.proposal is not None and node.topic.version > node.proposal.version:
            node.proposal, node.outdated = None, node.proposal
        if partition.leader != node_id:
            node.leads, node.proposal, node.outdated = None, None, None
        elif node.leads != partition.leader_epoch:
            node.leads, node.epoch_start = partition.leader_epoch, len(node.log)
            node.positions, node.proposal, node.outdated = {}, None, None
        if node_id not in partition.replicas:
            node.truncate(0)
        if node.leads is not None:
            self.check_leader(node)
            self.advance_watermark(node)

    def write(self, number: int, amount: int) -> None:
        node = self.a_leader(number)
        if node is not None and node.leads is not None:
            for _ in range(amount):
                self.written += 1
                node.log.append(Record(node.leads, self.written))
            self.advance_watermark(node)

    def fetch(self, node_id: int, amount: int) -> None:
        """Let a follower fetch up to `amount` records from the leader that it knows, or truncate its log."""
        node = self.nodes[node_id]
        partition = node.topic.partition
        leader = self.nodes.get(partition.leader)
        if node.phase is not Phase.RUNNING or leader is None or leader.leads != partition.leader_epoch:
            return
        if leader is node or node_id not in partition.replicas or node_id not in leader.topic.partition.replicas:
            return
        diverging = find_divergence(leader.log, node.log)
        if diverging is not None:
            node.truncate(diverging)
            return
        leader.positions[node_id] = (len(node.log), node.incarnation)
        self.advance_watermark(leader)
        node.log += leader.log[len(node.log) :][:amount]
        node.high_watermark = max(node.high_watermark, min(leader.high_watermark, len(node.log)))

    def catch_up(self, node_id: int, _: int = 0) -> None:
        """Let a follower do everything to be in sync, and tell the leader."""
        self.observe(node_id)
        for _ in range(4):
            self.fetch(node_id, ALL)

    def replicate(self, _: int, __: int = 0) -> None:
        for each in NODES:
            self.catch_up(each)

    def advance_watermark(self, node: Node) -> None:
        partition, rules, _ = node.topic
        in_sync = set(partition.in_sync_replicas)
        joining = set(node.proposal.partition.in_sync_replicas) if node.proposal else set()
        counted = in_sync | joining if self.decide.joining_counts_as_in_sync else in_sync
        if len(counted) < rules.required(partition) and not self.decide.commits_below_required:
            return
        waited_for = in_sync | joining if self.decide.joining_is_waited_for else in_sync
        ends = [node.positions.get(each, (0, 0))[0] for each in waited_for if each != node.node_id]
        offset = min([*ends, len(node.log)])
        if offset > node.high_watermark:
            node.high_watermark = offset
            self.committed += node.log[len(self.committed) : offset]
            self.check_log(node, offset)

    def propose_expansion(self, number: int, amount: int) -> None:
        """Let a leader add a replica that has caught up: the first one it knows, from `amount` on."""
        node = self.a_leader(number)
        if node is None or node.leads is None or node.proposal is not None:
            return
        ready = self.ready_to_join(node)
        if ready:
            joining = ready[amount % len(ready)]
            node.proposal = self.expansion(node, joining, node.positions[joining][1])

    def ready_to_join(self, node: Node) -> list[int]:
        partition, rules, _ = node.topic
        needed = self.decide.joining_offset(
            partition,
            rules,
            high_watermark=node.high_watermark,
            epoch_start_offset=node.epoch_start,
            log_end_offset=len(node.log),
        )
        ready = [each for each, (offset, _) in sorted(node.positions.items()) if offset >= needed]
        return [each for each in ready if each not in partition.in_sync_replicas]

    def expansion(self, node: Node, joining: int, incarnation: int) -> Proposal | None:
        partition, rules, version = node.topic
        try:
            after = self.decide.expand(partition, joining, incarnation, node.leads, node.brokers, rules)
        except KafkaError:
            return None
        return Proposal(after, version, {joining: incarnation})

    def propose_removal(self, number: int, amount: int) -> None:
        """Let a leader remove one or two followers from the in-sync set, slow or not."""
        node = self.a_leader(number)
        if node is None or node.leads is None or node.proposal is not None:
            return
        partition, rules, version = node.topic
        slow = {partition.replicas[amount % len(partition.replicas)], partition.replicas[-1]}
        after = self.decide.shrink(partition, slow, node.leads, rules)
        if after is not partition:
            node.proposal = Proposal(after, version, {})

    def join(self, number: int, amount: int) -> None:
        self.propose_expansion(number, amount)
        self.commit_proposal(number)

    def retry(self, number: int, _: int = 0) -> None:
        """Let a leader add a replica after a newer state has ended its proposal, and records may be committed since."""
        node = self.a_leader(number)
        if node is None or node.outdated is None or node.proposal is not None:
            return
        outdated, node.outdated = node.outdated, None
        for joining, incarnation in outdated.joining.items():
            proposal = self.expansion(node, joining, incarnation)
            is_ready = joining in self.ready_to_join(node) or not self.decide.retry_is_checked
            if proposal is not None and is_ready:
                node.proposal = proposal if self.decide.retry_is_waited_for else None
                self.commit(*proposal)

    def commit_proposal(self, number: int, _: int = 0) -> None:
        """Let a change of the in-sync set reach the store, possibly for the second time.

        The response may be lost. Then the retry is answered with a conflict, although the change is stored. So the
        leader goes on to count the change until it has seen a newer state (KAFKA-12686).
        """
        node = self.a_leader(number)
        if node is not None and node.proposal is not None:
            is_refused = not self.commit(*node.proposal)
            if is_refused and node.proposal.version == self.topic.version:
                node.proposal = None

    # -- controllers and operators

    def look_at_topic(self, number: int, _: int = 0) -> None:
        self.controllers[number % 2].topic = self.topic

    def look_at_brokers(self, number: int, _: int = 0) -> None:
        self.controllers[number % 2].brokers = dict(self.brokers)

    def control(self, number: int, amount: int) -> None:
        """Let a controller act on what it has seen, or look first."""
        if amount:
            self.look_at_topic(number)
            self.look_at_brokers(number)
        (partition, rules, version), brokers = self.controllers[number % 2].topic, self.controllers[number % 2].brokers
        after = self.decide.reconcile(partition, brokers, rules)
        self.commit(self.decide.advance(after, brokers, rules), version)

    def prefer(self, number: int, _: int = 0) -> None:
        controller = self.controllers[number % 2]
        self.attempt(lambda: elections.prefer(controller.topic.partition, controller.brokers), controller.topic.version)

    def reassign(self, _: int, amount: int) -> None:
        partition, rules, version = self.topic
        target = TARGETS[amount % len(TARGETS)]
        self.attempt(lambda: self.decide.begin(partition, target, self.brokers, rules), version)

    def cancel_reassignment(self, _: int, __: int = 0) -> None:
        partition, rules, version = self.topic
        self.attempt(lambda: self.decide.cancel(partition, self.brokers, rules), version)

    def attempt(self, change: Callable[[], PartitionImage], version: int) -> None:
        try:
            after = change()
        except KafkaError:
            return
        self.commit(after, version)

    def configure(self, number: int, amount: int) -> None:
        """Change min.insync.replicas, and in a careless world also whether unclean elections are allowed."""
        rules = ElectionRules(1 + amount % 3, allow_unclean=not self.is_careful and number == 1)
        self.put(self.decide.settle(self.topic.partition, rules), rules)

    def elect_uncleanly(self, number: int, _: int = 0) -> None:
        if not self.is_careful:
            topic, brokers = self.topic, self.controllers[number % 2].brokers
            self.attempt(lambda: elections.unclean(topic.partition, brokers, topic.rules), topic.version)

    # -- what must hold

    def check_leader(self, node: Node) -> None:
        """Check the log of a leader that has seen that it leads, unless it has been replaced since."""
        if node.topic.partition.leader_epoch == self.topic.partition.leader_epoch:
            self.check_log(node, len(self.committed))

    def check_log(self, node: Node, end: int) -> None:
        if self.is_careful:
            assert node.log[:end] == self.committed[:end], "a committed record is lost"

    def check(self) -> None:
        check_state(self.topic.partition, self.topic.rules)
        if self.is_careful:
            assert len(self.complete) >= self.copies, "fewer complete replicas than promised"
        for node in self.nodes.values():
            if node.leads is not None:
                self.check_leader(node)

    def heal(self) -> None:
        """Start all brokers and let everything settle. Then the partition is as good as new, and stays so."""
        for each in NODES:
            self.expire(each)
            self.start(each)
            self.resign(each)
            self.register(each)
        self.run_quietly()
        if self.topic.partition.leader == NO_LEADER:
            assert not self.complete, "a complete replica is not elected"
            self.give_up_records()
        self.run_quietly()
        version = self.topic.version
        self.run_quietly()
        assert self.topic.version == version, "the state does not settle"
        self.check_health()

    def give_up_records(self) -> None:
        """Elect uncleanly. In a careful world too many replicas may be in doubt, and the last one without data."""
        assert not self.is_careful or self.copies < 1, "the partition stays offline"
        self.is_careful = False
        self.look_at_brokers(0)
        self.elect_uncleanly(0)

    def run_quietly(self) -> None:
        for _ in range(8):
            self.control(0, 1)
            self.replicate(0)
            for each in NODES:
                self.propose_expansion(each, 0)
                self.commit_proposal(each)

    def check_health(self) -> None:
        partition = self.topic.partition
        assert partition.leader != NO_LEADER
        assert not partition.is_reassigned
        assert set(partition.in_sync_replicas) == set(partition.replicas)
        leader = self.nodes[partition.leader]
        assert leader.high_watermark == len(leader.log)
        self.check_log(leader, len(self.committed))
        for each in partition.replicas:
            assert self.nodes[each].log == leader.log, "replicas differ"


def check_state(partition: PartitionImage, rules: ElectionRules) -> None:
    replicas, in_sync = set(partition.replicas), set(partition.in_sync_replicas)
    eligible = set(partition.eligible_replicas)
    assert len(replicas) == len(partition.replicas), partition
    assert in_sync <= replicas, partition
    assert len(in_sync) == len(partition.in_sync_replicas), partition
    assert eligible <= replicas - in_sync, partition
    assert partition.leader == NO_LEADER or partition.leader in in_sync, partition
    assert set(partition.adding) <= replicas, partition
    assert set(partition.removing) <= replicas - set(partition.adding), partition
    assert not eligible or len(in_sync) < rules.required(partition), partition


def find_divergence(leader: list[Record], follower: list[Record]) -> int | None:
    """Return where a follower must truncate its log, by the epochs of both logs, or None if it may append."""
    if not follower:
        return None
    last_epoch = follower[-1].epoch
    found, end = end_of_epoch(leader, last_epoch)
    if found == last_epoch and end >= len(follower):
        return None
    return min(end, end_of_epoch(follower, found)[1])


def end_of_epoch(log: list[Record], epoch: int) -> tuple[int, int]:
    """Return the largest epoch that is not above the given one, and the end of its records."""
    upto = [record for record in log if record.epoch <= epoch]
    return (upto[-1].epoch, len(upto)) if upto else (-1, 0)


Action = Callable[[PartitionWorld, int, int], None]

REPLICATION: dict[Action, int] = {
    PartitionWorld.observe: 6,
    PartitionWorld.write: 8,
    PartitionWorld.fetch: 8,
    PartitionWorld.catch_up: 6,
    PartitionWorld.replicate: 2,
    PartitionWorld.flush: 1,
}
LEADERS: dict[Action, int] = {
    PartitionWorld.propose_expansion: 6,
    PartitionWorld.propose_removal: 4,
    PartitionWorld.commit_proposal: 6,
    PartitionWorld.join: 3,
    PartitionWorld.retry: 3,
}
BROKERS: dict[Action, int] = {
    PartitionWorld.crash: 3,
    PartitionWorld.lose_disk: 1,
    PartitionWorld.expire: 2,
    PartitionWorld.start: 4,
    PartitionWorld.resign: 4,
    PartitionWorld.register: 4,
    PartitionWorld.restart: 2,
    PartitionWorld.fail_over: 2,
    PartitionWorld.begin_stop: 1,
    PartitionWorld.finish_stop: 1,
}
CONTROLLERS: dict[Action, int] = {
    PartitionWorld.look_at_topic: 2,
    PartitionWorld.look_at_brokers: 2,
    PartitionWorld.control: 8,
    PartitionWorld.prefer: 1,
}
OPERATORS: dict[Action, int] = {
    PartitionWorld.reassign: 1,
    PartitionWorld.cancel_reassignment: 1,
    PartitionWorld.configure: 1,
    PartitionWorld.elect_uncleanly: 1,
}
ACTIONS = REPLICATION | LEADERS | BROKERS | CONTROLLERS | OPERATORS
MAX_AMOUNT = 6


Step = tuple[Action, int, int]


def live(world: PartitionWorld, life: Iterable[Step]) -> None:
    for action, number, amount in life:
        action(world, number, amount)
        world.check()
    world.heal()


def parse_life(text: str) -> list[Step]:
    """Read actions with their numbers, separated by semicolons."""
    steps: list[Step] = []
    for step in text.split(";"):
        name, *numbers = step.split()
        number, amount = [*map(int, numbers), 0, 0][:2]
        steps.append((getattr(PartitionWorld, name), number, amount))
    return steps


def random_life(rng: Random, length: int) -> list[Step]:
    """Return random steps. Each life has its own mix of actions, which finds more than one mix for all."""
    actions = ACTIONS if rng.random() < 0.5 else {each: ACTIONS[each] for each in ACTIONS if each not in OPERATORS}
    weights = [weight * rng.choice((0, 1, 1, 2, 4)) for weight in actions.values()]
    chosen = rng.choices(list(actions), weights, k=length)
    return [(action, rng.choice(NODES), rng.randint(0, MAX_AMOUNT)) for action in chosen]


def vary(life: Sequence[Step], rng: Random) -> list[Step]:
    """Return a life with random steps added and some left out."""
    varied = []
    for step in life:
        varied += random_life(rng, rng.choice((0, 0, 0, 1, 2)))
        varied += [step] * (rng.random() < 0.95)
    return varied + random_life(rng, 5)
