"""A group of the consumer protocol (KIP-848), as a pure state machine.

The broker assigns the partitions. Three numbers tell how far everyone is::

    group epoch  ≥  epoch of the target assignment  ≥  epoch of each member

The group epoch increases with every change of members, subscriptions or topics. The target assignment is computed for
an epoch. A member enters that epoch when it has given up what is not in its target (see `reconciliation`). Members go
on reading meanwhile: nobody waits for all the others.

A heartbeat has three steps, because large assignments are computed in a thread between the first and the last:

1. `update` applies what the member says about itself, and raises the group epoch if need be.
2. `assignment_input` and `set_target` replace the target assignment if it is older than the group epoch.
3. `respond` reconciles the member with its target.

Whatever changes is noted in `changes`. The shell stores it before it responds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from skylog.errors import ErrorCode, KafkaError
from skylog.groups.consumer.assignor import NO_RACKS, AssignmentInput, Subscriber
from skylog.groups.consumer.changes import Changes
from skylog.groups.consumer.config import ConsumerGroupConfig
from skylog.groups.consumer.member import (
    JOIN_EPOCH,
    LEAVE_STATIC_EPOCH,
    ConsumerMember,
    Current,
    Heartbeat,
    HeartbeatResponse,
    MemberState,
    Metadata,
)
from skylog.groups.consumer.partitions import NONE, Partitions, includes, without
from skylog.groups.consumer.patterns import NO_MATCHES, ResolvedPattern
from skylog.groups.consumer.reconciliation import reconcile
from skylog.groups.consumer.roster import ConsumerRoster
from skylog.groups.consumer.state import ConsumerGroupState
from skylog.groups.consumer.topics import NO_BROKER_RACKS, NO_TOPICS, BrokerRacks, Topics, metadata_hash, racks_of

CONSUMER: Final = "consumer"
ANSWERING_TICK_MS: Final = 100  # from one tick to the next while a member is being answered whose time would be over


class ConsumerGroup:
    """A consumer group. The coordinator calls it from one thread, with the time of the event.

    `racks` are those of the brokers. They count if a member has a rack.
    """

    protocol_type: Final = CONSUMER

    def __init__(
        self, group_id: str, config: ConsumerGroupConfig, epoch: int = 0, *, racks: BrokerRacks = NO_BROKER_RACKS
    ) -> None:
        self.group_id = group_id
        self.config = config
        self._racks = racks
        self.epoch = epoch
        self.metadata_hash = 0
        self.target_epoch = epoch
        self.targets: dict[str, Partitions] = {}
        self.patterns: dict[str, ResolvedPattern] = {}
        self._rules_epoch = 0  # under which they were resolved
        self.roster = ConsumerRoster()
        self.changes = Changes()
        self.failed_stores = 0  # how often changes were put back
        self.next_tick_ms: int | None = None  # as in `groups.group.Group`
        self._seen_epoch = epoch  # the last one that was stored, or that an assignment is computed for
        self._topics: Topics = NO_TOPICS  # those that `metadata_hash` was last compared with
        self._is_dead = False

    @property
    def members(self) -> dict[str, ConsumerMember]:
        """The members by id, in the order in which they joined."""
        return self.roster.members

    @property
    def state(self) -> ConsumerGroupState:
        if self._is_dead:
            return ConsumerGroupState.DEAD
        if not self.members:
            return ConsumerGroupState.EMPTY
        if self.epoch > self.target_epoch:
            return ConsumerGroupState.ASSIGNING
        if all(each.is_reconciled_to(self.target_epoch) for each in self.members.values()):
            return ConsumerGroupState.STABLE
        return ConsumerGroupState.RECONCILING

    @property
    def is_idle(self) -> bool:
        """Whether there are no members and nothing to store."""
        return not self.members and not self.changes and not self._is_dead

    def topics_of(self, member: ConsumerMember) -> frozenset[str]:
        """Return the names that a member subscribes to, by name and by pattern."""
        names, pattern = member.metadata.subscription
        return names | self.patterns[pattern].topics if pattern in self.patterns else names

    def subscribed_topics(self) -> set[str]:
        """Return the topics that members subscribe to."""
        return set().union(*{self.topics_of(each) for each in self.members.values()})

    @property
    def assignor(self) -> str:
        """The name of the assignor: the one that most members want."""
        return self.roster.preferred_assignor() or self.config.assignors[0]

    # -- step 1: what the member says

    def update(self, heartbeat: Heartbeat, topics: Topics, now_ms: int, matched: ResolvedPattern = NO_MATCHES) -> None:
        """Join, or apply what a heartbeat says. Raises KafkaError, and changes nothing then.

        `matched` has the topics of the heartbeat's pattern, if the group does not know that pattern yet.
        """
        self._check_alive()
        member = self._member_of(heartbeat)
        if heartbeat.pattern and heartbeat.pattern not in self.patterns:
            self.patterns[heartbeat.pattern] = matched
            self.changes.patterns.add(heartbeat.pattern)
        self.describe(member, member.metadata.updated(heartbeat))
        member.joins_until_ms = member.syncs_until_ms = None
        self.touch(member, now_ms)
        self.compare_topics(topics)

    def _member_of(self, heartbeat: Heartbeat) -> ConsumerMember:
        """Return the member that sends a heartbeat. A new one is added, a static one that returns is replaced."""
        member_id, epoch, instance_id, *_ = heartbeat
        if epoch != JOIN_EPOCH:
            member = self.roster.find(member_id, instance_id)
            _check_epoch(member, epoch, heartbeat.owned)
            return member
        known = self.roster.static_member(instance_id) or self.members.get(member_id)
        if known is None:
            return self.add(member_id)
        if known.member_id != member_id:
            return self._return_static(known, member_id)
        # A member that rejoins, because it was fenced or got no response, owns nothing and needs its whole assignment.
        if known.has_left:
            self.roster.move(known, known.current._replace(epoch=JOIN_EPOCH, previous_epoch=JOIN_EPOCH))
        return known

    def add(self, member_id: str) -> ConsumerMember:
        """Add a member. Raises GROUP_MAX_SIZE_REACHED."""
        if len(self.members) >= self.config.max_size:
            raise KafkaError(ErrorCode.GROUP_MAX_SIZE_REACHED, f"the group has {len(self.members)} members")
        member = ConsumerMember(member_id)
        self.roster.add(member)
        self.bump()
        return member

    def _return_static(self, old: ConsumerMember, member_id: str) -> ConsumerMember:
        if not old.has_left:
            instance_id = old.metadata.instance_id
            raise KafkaError(ErrorCode.UNRELEASED_INSTANCE_ID, f"instance '{instance_id}' is still in use")
        if member_id in self.members:
            self.remove(self.members[member_id])
        return self.replace_static(old, member_id, old.current._replace(epoch=JOIN_EPOCH, previous_epoch=JOIN_EPOCH))

    def replace_static(self, old: ConsumerMember, member_id: str, current: Current) -> ConsumerMember:
        """Replace a static member by one with another id, which takes over its assignment."""
        target = self.targets.pop(old.member_id, NONE)
        self.roster.drop(old)
        member = ConsumerMember(member_id, old.metadata, current)
        self.roster.add(member)
        self.targets[member_id] = target
        for each in (old.member_id, member_id):
            self.changes.metadata.add(each)
            self.changes.targets.add(each)
            self.changes.current.add(each)
        if self.epoch > self.target_epoch:
            self.bump()  # an assignment that is being computed has the old id
        return member

    def describe(self, member: ConsumerMember, metadata: Metadata) -> None:
        """Set what a member says about itself. Another subscription, or another rack, changes the group epoch."""
        before, member.metadata = member.metadata, metadata
        if before != metadata:
            self.changes.metadata.add(member.member_id)
            self.roster.index_instance(member, before.instance_id)
        if before.subscription != metadata.subscription or before.rack_id != metadata.rack_id:
            self.bump()
            self._drop_unused_patterns()

    def touch(self, member: ConsumerMember, now_ms: int) -> None:
        """Restart the session timeout."""
        classic = member.classic
        timeout_ms = self.config.session_timeout_ms if classic is None else classic.session_timeout_ms
        expires_at_ms = now_ms + timeout_ms
        if not member.expires_at_ms or expires_at_ms < member.expires_at_ms:
            self.next_tick_ms = 0
        member.expires_at_ms = expires_at_ms

    def bump(self) -> None:
        """Raise the group epoch. Changes that nobody has seen separately share an epoch."""
        if self.epoch <= self._seen_epoch:
            self.epoch += 1
        self.changes.epoch = True

    # -- topics

    def compare_topics(self, topics: Topics) -> None:
        """Raise the group epoch if the subscribed topics are not those of the last assignment."""
        if topics is self._topics and not self.changes.epoch:
            return
        self._topics = topics
        now = metadata_hash(self.subscribed_topics(), topics, self._used_racks)
        if now != self.metadata_hash:
            self.metadata_hash = now
            self.bump()

    @property
    def _used_racks(self) -> BrokerRacks:
        """The racks of the brokers if a member has a rack. Otherwise they make no difference."""
        return self._racks if any(each.metadata.rack_id for each in self.members.values()) else NO_BROKER_RACKS

    def patterns_older_than(self, topics: Topics, rules_epoch: int = 0) -> list[str]:
        """Return the patterns to resolve again, because topics or the rules of access to them have changed."""
        return [] if topics is self._topics and rules_epoch == self._rules_epoch else list(self.patterns)

    def resolve(self, resolved: Mapping[str, ResolvedPattern], rules_epoch: int = 0) -> None:
        """Set the topics that patterns match now."""
        self._rules_epoch = rules_epoch
        for pattern, now in resolved.items():
            before = self.patterns.get(pattern)
            if before is not None and before.topics != now.topics:
                self.patterns[pattern] = now
                self.changes.patterns.add(pattern)
                self.bump()

    def _drop_unused_patterns(self) -> None:
        used = {each.metadata.pattern for each in self.members.values()}
        for pattern in self.patterns.keys() - used:
            del self.patterns[pattern]
            self.changes.patterns.add(pattern)

    # -- step 2: the target assignment

    def assignment_input(self, topics: Topics) -> AssignmentInput | None:
        """Return what to compute a new target assignment from, None if the present one is that of the group epoch."""
        if self.target_epoch >= self.epoch:
            return None
        self._seen_epoch = self.epoch
        subscriptions = {member_id: self.topics_of(member) for member_id, member in self.members.items()}
        distinct = set(subscriptions.values())
        known = {name: topic for name in set().union(*distinct) if (topic := topics.get(name)) is not None}
        ids = {names: frozenset(known[name].topic_id for name in names if name in known) for names in distinct}
        subscribers = tuple(
            Subscriber(member_id, metadata.instance_id, ids[names], metadata.rack_id)
            for member_id, names in subscriptions.items()
            if (metadata := self.members[member_id].metadata)
        )
        counts = {topic.topic_id: len(topic.partitions) for topic in known.values()}
        brokers = self._used_racks
        racks = {each.topic_id: racks_of(each, brokers) for each in known.values()} if brokers else NO_RACKS
        return AssignmentInput(subscribers, counts, dict(self.targets), racks)

    def set_target(self, epoch: int, targets: Mapping[str, Partitions]) -> None:
        """Set the target assignment of an epoch. Members that have left meanwhile are ignored, as is an older epoch."""
        if epoch <= self.target_epoch:
            return
        self.target_epoch = epoch
        self.changes.target_epoch = True
        for member_id in self.members:
            target, before = targets.get(member_id, NONE), self.targets.get(member_id)
            if before is not target and before != target:
                self.targets[member_id] = target
                self.changes.targets.add(member_id)

    # -- step 3: the member's progress

    def respond(self, heartbeat: Heartbeat, now_ms: int) -> HeartbeatResponse:
        """Reconcile a member with its target, and return the response. Raises UNKNOWN_MEMBER_ID if it is gone."""
        member = self.roster.find(heartbeat.member_id)
        before = member.current.assigned
        self.reconcile(member, heartbeat.owned, now_ms)
        current = member.current
        changed = heartbeat.is_full or current.assigned != before
        return HeartbeatResponse(member.member_id, current.epoch, current.assigned if changed else None)

    def reconcile(self, member: ConsumerMember, owned: Partitions | None, now_ms: int) -> None:
        """Move a member towards its target. `owned` is what it reports to own, None if it reports nothing."""
        target = self.targets.get(member.member_id, NONE)
        current = reconcile(
            member.current,
            self.target_epoch,
            target,
            owned,
            lambda partitions: self.roster.free(partitions, member.member_id),
        )
        if current == member.current:
            return
        self.roster.move(member, current)
        self.changes.current.add(member.member_id)
        member.revokes_until_ms = None
        if current.state is MemberState.UNREVOKED_PARTITIONS:
            member.revokes_until_ms = now_ms + member.metadata.rebalance_timeout_ms
            self.next_tick_ms = 0

    def waits_for_others(self, member: ConsumerMember) -> bool:
        """Whether other members still own partitions of a member's target."""
        missing = without(self.targets.get(member.member_id, NONE), member.current.assigned)
        return self.roster.free(missing, member.member_id) != missing

    # -- leaving

    def leave(self, heartbeat: Heartbeat) -> HeartbeatResponse:
        """Remove a member. A static member that will return keeps its place until its session expires."""
        self._check_alive()
        member = self.roster.find(heartbeat.member_id, heartbeat.instance_id)
        if heartbeat.epoch == LEAVE_STATIC_EPOCH:
            left = Current(LEAVE_STATIC_EPOCH, member.current.epoch, MemberState.STABLE, member.current.assigned, NONE)
            self.roster.move(member, left)
            member.revokes_until_ms = None
            self.changes.current.add(member.member_id)
        else:
            self.remove(member)
        return HeartbeatResponse(member.member_id, heartbeat.epoch)

    def remove(self, member: ConsumerMember) -> None:
        """Remove a member, which raises the group epoch."""
        self.roster.drop(member)
        self.targets.pop(member.member_id, None)
        self.changes.metadata.add(member.member_id)
        self.changes.targets.add(member.member_id)
        self.changes.current.add(member.member_id)
        self._drop_unused_patterns()
        self.bump()
        if self._topics is not NO_TOPICS:
            self.compare_topics(self._topics)

    # -- time

    def tick(self, now_ms: int) -> list[ConsumerMember]:
        """Remove the members whose session or rebalance timeout is over, and return them. Not those being answered.

        Call it at `next_tick_ms`, and before any other access to the group.
        """
        if self.next_tick_ms is None or now_ms < self.next_tick_ms:
            return []
        late = [each for each in self.members.values() if not each.answering and min(each.deadlines_ms()) <= now_ms]
        for member in late:
            self.remove(member)
        next_ms = min(self.roster.deadlines_ms(), default=None)
        self.next_tick_ms = now_ms + ANSWERING_TICK_MS if next_ms is not None and next_ms <= now_ms else next_ms
        return late

    # -- checks

    def check_commit(self, member_id: str, epoch: int, *, knows_epochs: bool) -> None:
        """Raise KafkaError unless this member may commit. Epoch -1 commits for a group without members.

        `knows_epochs` is set from version 9 of OffsetCommit on.
        """
        self._check_alive()
        if epoch < 0 and not self.members:
            return
        member = self.roster.find(member_id)
        if member.classic is None and not knows_epochs:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, "members of the consumer protocol commit with version 9")
        _check_epoch_of_offsets(member, epoch)

    def check_transactional_commit(self, member_id: str, instance_id: str | None, epoch: int) -> None:
        """Raise KafkaError unless this member may commit in a transaction. Older producers name no member (KIP-447).

        As in Kafka, another epoch is ILLEGAL_GENERATION: to producers, STALE_MEMBER_EPOCH would be a fatal error.
        """
        self._check_alive()
        if epoch < 0 and not (member_id or instance_id):
            return
        try:
            self.check_commit(member_id, epoch, knows_epochs=True)
        except KafkaError as error:
            if error.code is not ErrorCode.STALE_MEMBER_EPOCH:
                raise
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION, error.message) from error

    def check_fetch(self, member_id: str | None, epoch: int) -> None:
        """Raise KafkaError unless this member may fetch offsets. Requests without a member are allowed."""
        if member_id is None and epoch < 0:
            return
        _check_epoch_of_offsets(self.roster.find(member_id or ""), epoch)

    def _check_alive(self) -> None:
        if self._is_dead:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the group is being deleted")

    # -- deletion and loading

    def begin_deletion(self) -> None:
        """Mark the group as dead. It must have no members."""
        assert not self.members
        self._is_dead = True

    def cancel_deletion(self) -> None:
        """Make the group empty again, because its deletion could not be stored."""
        self._is_dead = False

    def loaded(self, now_ms: int) -> None:
        """Start the timeouts of restored members. Called after a replay."""
        self.changes = Changes()
        self._seen_epoch = self.epoch
        for member in self.members.values():
            self.touch(member, now_ms)
            if member.current.state is MemberState.UNREVOKED_PARTITIONS:
                member.revokes_until_ms = now_ms + member.metadata.rebalance_timeout_ms
        self.next_tick_ms = 0

    # -- storing

    def take_changes(self) -> Changes:
        """Return what to store, and forget it."""
        taken, self.changes = self.changes, Changes()
        self._seen_epoch = self.epoch
        return taken

    def put_back(self, changes: Changes) -> None:
        """Note changes again that could not be stored."""
        self.changes.put_back(changes)
        self.failed_stores += 1


def _check_epoch(member: ConsumerMember, epoch: int, owned: Partitions | None) -> None:
    """Raise FENCED_MEMBER_EPOCH unless the epoch of a heartbeat is that of the member.

    The previous epoch is valid if the member owns nothing that it was not assigned: the response with the new epoch was
    lost. A static member that has left has no such epoch: it returns with a join.
    """
    current = member.current
    if epoch == current.epoch:
        return
    is_previous = epoch == current.previous_epoch and epoch < current.epoch
    was_lost = is_previous and owned is not None and includes(current.assigned, owned)
    if not was_lost:
        raise KafkaError(
            ErrorCode.FENCED_MEMBER_EPOCH,
            f"the member has epoch {current.epoch}, not {epoch}; it must give up all partitions and rejoin",
        )


def _check_epoch_of_offsets(member: ConsumerMember, epoch: int) -> None:
    if epoch != member.current.epoch:
        code = ErrorCode.STALE_MEMBER_EPOCH if member.classic is None else ErrorCode.ILLEGAL_GENERATION
        raise KafkaError(code, f"the member has epoch {member.current.epoch}, not {epoch}")
