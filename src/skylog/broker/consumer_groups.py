"""Requests to consumer groups (KIP-848) of one shard: a shell around `groups.consumer`.

Memory changes first, and what has changed is stored before the response is sent. If that fails, the change stays in
memory and is stored with the next one; no response has told anyone of it.

Regular expressions are matched, and large assignments computed, in a thread. Requests that need the same wait for one
computation, and then look whether another one is necessary.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4
from weakref import WeakValueDictionary

from skylog.broker.group_log import BATCH_BYTES, GroupLog
from skylog.broker.time_slice import cooperatively
from skylog.errors import ErrorCode, KafkaError
from skylog.groups import (
    ConsumerGroup,
    Group,
    Groups,
    GroupTimers,
    JoinRequest,
    JoinResponse,
    StoredRecord,
    SyncResponse,
)
from skylog.groups.consumer import (
    ASSIGNORS,
    ConsumerMember,
    Heartbeat,
    HeartbeatResponse,
    ResolvedPattern,
    Topics,
    classic_members,
    conversion,
    leaves,
    patterns,
    storage,
)
from skylog.security.acl import AclOperation, ResourceType

if TYPE_CHECKING:
    from skylog.broker.broker import Broker
    from skylog.broker.group_shard import MemberId
    from skylog.broker.security.access import Rights

logger = logging.getLogger(__name__)

_DESCRIBE: Final = AclOperation.DESCRIBE
LARGE_ASSIGNMENT: Final = 2000  # members and partitions that are assigned on the event loop at most
LARGE_WITH_RACKS: Final = 200  # the same if racks count


class ConsumerGroupRequests:
    """Serves the consumer groups of a shard. Use it on the event loop only.

    `failed` is called for each failure in the background. It holds no reference to the shard, which is freed at once
    when it is dropped.
    """

    def __init__(
        self,
        broker: Broker,
        groups: Groups,
        log: GroupLog,
        timers: GroupTimers,
        now_ms: Callable[[], int],
        failed: Callable[[], None],
    ) -> None:
        self._broker = broker
        self._config = broker.config.consumer_groups
        self._groups = groups
        self._log = log
        self._timers = timers
        self._now_ms = now_ms
        self._failed = failed
        self._storing: set[asyncio.Task[None]] = set()
        self._matching: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()  # by group, while in use
        self._assigning: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    # -- members of the consumer protocol

    async def heartbeat(self, group_id: str, heartbeat: Heartbeat, rights: Rights | None = None) -> HeartbeatResponse:
        """Join, stay in or leave a group. The caller has ticked the group. Raises KafkaError.

        `rights` are those of the sender, None without an authorizer.
        """
        if leaves(heartbeat):
            return await self._leave(self._existing(group_id), heartbeat)
        topics, matched = await self._match_patterns(group_id, heartbeat.pattern, rights)
        group = self._group_of(group_id, heartbeat)
        group.update(heartbeat, topics, self._now_ms(), matched)
        self._adopt(group)
        await self._assign(group)
        response = group.respond(heartbeat, self._now_ms())
        await self._store_answer(group, group.members[response.member_id])
        return response

    async def _store_answer(self, group: ConsumerGroup, member: ConsumerMember) -> None:
        """Store what has changed before a member is answered. Its session starts with the response. Raises KafkaError.

        Meanwhile the member does not time out: it waits for the log.
        """
        member.answering += 1
        try:
            await self._store(group)
        finally:
            member.answering -= 1
        if (present := group.members.get(member.member_id)) is not None:
            group.touch(present, self._now_ms())

    async def _leave(self, group: ConsumerGroup, heartbeat: Heartbeat) -> HeartbeatResponse:
        response = group.leave(heartbeat)
        await self._removed(group)
        return response

    def _existing(self, group_id: str) -> ConsumerGroup:
        """Return a consumer group. Raises UNKNOWN_MEMBER_ID, so that a member rejoins."""
        group = self._groups.find(group_id)
        if not isinstance(group, ConsumerGroup):
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"there is no consumer group '{group_id}'")
        return group

    def _group_of(self, group_id: str, heartbeat: Heartbeat) -> ConsumerGroup:
        """Return the group of a heartbeat. One that is new or converted is not known to anyone yet."""
        group = self._groups.find(group_id)
        if isinstance(group, ConsumerGroup) or heartbeat.epoch:
            return self._existing(group_id)
        if group is None:
            return ConsumerGroup(group_id, self._config, racks=self._groups.racks)
        topics = self._broker.metadata.image.topics
        converted = conversion.to_consumer_group(group, self._config, topics, self._now_ms(), racks=self._groups.racks)
        converted.changes = storage.everything(converted)
        return converted

    def _adopt(self, group: ConsumerGroup) -> None:
        """Make a group known that has just got its first member of the consumer protocol."""
        former = self._groups.find(group.group_id)
        if former is group:
            return
        self._groups.put(group)
        if isinstance(former, Group):
            for effect in former.dissolve():
                _respond(effect)
            if former.members:
                logger.info("group %s was upgraded to the consumer protocol", group.group_id)

    # -- work in threads

    async def _match_patterns(
        self, group_id: str, new: str | None, rights: Rights | None
    ) -> tuple[Topics, ResolvedPattern]:
        """Match the patterns of a group again if topics or rules have changed.

        Return the present topics, and those of the pattern `new` if the group does not know it yet. As in Kafka,
        members with the same pattern share its topics: those that the member may see that has caused it.
        """
        topics = self._broker.metadata.image.topics
        if not self._unmatched(group_id, new, topics, _epoch_of(rights)):
            return topics, patterns.NO_MATCHES
        async with _lock(self._matching, group_id):
            self._log.check_leadership()
            topics, epoch = self._broker.metadata.image.topics, _epoch_of(rights)
            found: dict[str, ResolvedPattern] = {}
            # Members may come and go meanwhile, and their patterns with them.
            while unmatched := self._unmatched(group_id, new, topics, epoch) - found.keys():
                for pattern in unmatched:
                    found[pattern] = await self._match(pattern, topics, rights)
                self._log.check_leadership()
            group = self._groups.find(group_id)
            if isinstance(group, ConsumerGroup) and found:
                group.resolve(found, epoch)
        # The caller updates the group at once. So those who wait for the lock see that this is done.
        return topics, found.get(new or "", patterns.NO_MATCHES)

    def _unmatched(self, group_id: str, new: str | None, topics: Topics, rules_epoch: int) -> set[str]:
        """Return the patterns to match: those of a group that are out of date, and `new` if it is unknown."""
        group = self._groups.find(group_id)
        unmatched, known = set[str](), set[str]()
        if isinstance(group, ConsumerGroup):
            unmatched.update(group.patterns_older_than(topics, rules_epoch))
            known.update(group.patterns)
        if new and new not in known:
            unmatched.add(new)
        return unmatched

    async def _match(self, pattern: str, topics: Topics, rights: Rights | None) -> ResolvedPattern:
        now_ms = self._broker.clock.now_ms()
        loop = asyncio.get_running_loop()
        found = await loop.run_in_executor(self._broker.assigner, patterns.match, pattern, tuple(topics))
        if rights is not None:
            seen = [each async for each in cooperatively(found) if rights.may(_DESCRIBE, ResourceType.TOPIC, each)]
            found = frozenset(seen)
        return ResolvedPattern(found, now_ms)

    async def _assign(self, group: ConsumerGroup) -> None:
        """Replace the target assignment if it is older than the group epoch."""
        if group.target_epoch >= group.epoch:
            return
        async with _lock(self._assigning, group.group_id):
            self._log.check_leadership()
            epoch, given = group.epoch, group.assignment_input(self._broker.metadata.image.topics)
            if given is None:
                return
            assign = ASSIGNORS[group.assignor]
            limit = LARGE_WITH_RACKS if given.racks else LARGE_ASSIGNMENT
            if len(given.subscribers) + sum(given.counts.values()) <= limit:
                targets = assign(given)
            else:
                targets = await asyncio.get_running_loop().run_in_executor(self._broker.assigner, assign, given)
            group.set_target(epoch, targets)

    # -- members of the classic protocol

    async def join(self, group: ConsumerGroup, request: JoinRequest) -> JoinResponse:
        """Serve JoinGroup. Raises KafkaError."""
        member_id = request.member_id or f"{request.instance_id or request.client_id}-{uuid4()}"
        if request.needs_known_id and not request.member_id and request.instance_id is None:
            return JoinResponse(None, ErrorCode.MEMBER_ID_REQUIRED, member_id=member_id)
        topics = self._broker.metadata.image.topics
        classic_members.update(group, member_id, request, topics, self._now_ms())
        await self._assign(group)
        topics = self._broker.metadata.image.topics
        response = classic_members.respond_to_join(group, member_id, request, topics, None, self._now_ms())
        await self._store_answer(group, group.members[member_id])
        self._downgrade(group)  # if it has replaced the last member of the consumer protocol
        return response

    async def sync(
        self, group: ConsumerGroup, member: MemberId, protocol_type: str | None, protocol: str | None
    ) -> SyncResponse:
        """Serve SyncGroup. Raises KafkaError."""
        names = self._broker.metadata.image.names
        now_ms = self._now_ms()
        identity = (member.member_id, member.instance_id, member.generation)
        try:
            response = classic_members.sync(group, *identity, names, None, now_ms, protocol_type, protocol)
        finally:
            self._schedule(group)
        await self._store_answer(group, group.members[member.member_id])
        return response

    def heartbeat_classic(self, group: ConsumerGroup, member: MemberId) -> None:
        """Serve Heartbeat. Raises KafkaError."""
        try:
            classic_members.heartbeat(group, member.member_id, member.instance_id, member.generation, self._now_ms())
        finally:
            self._schedule(group)

    def leave_classic(self, group: ConsumerGroup, member_id: str, instance_id: str | None) -> None:
        """Serve LeaveGroup. Raises KafkaError."""
        classic_members.leave(group, member_id, instance_id)
        self._in_background(self._removed(group))

    # -- downgrade

    def to_classic(self, group: ConsumerGroup) -> Group:
        """Replace a group by a classic one with the same members, of which none uses the consumer protocol.

        Raises KafkaError, and changes nothing then.
        """
        classic = conversion.to_classic_group(group, self._broker.config.groups, self._broker.metadata.image.names)
        records = storage.deletion_records(group)
        if classic.members:
            records.append(self._groups.group_record(classic, self._broker.clock.now_ms()))
        self._append(_batches(records))
        self._groups.put(classic)
        return classic

    async def _removed(self, group: ConsumerGroup) -> None:
        """Store a group from which a member was removed, or make it a classic group."""
        if not self._downgrade(group):
            await self._store(group)

    def _downgrade(self, group: ConsumerGroup) -> bool:
        """Make a group a classic one if only classic members are left. Return whether it is one now."""
        if self._groups.find(group.group_id) is group and conversion.can_downgrade(group, self._broker.config.groups):
            classic = self.to_classic(group)
            logger.info("group %s was downgraded to the classic protocol", group.group_id)
            classic.rebalance(self._now_ms())  # no request waits yet, so there is nobody to respond to
            self._schedule(classic)
            return True
        return False

    # -- time

    def tick(self, group: ConsumerGroup, now_ms: int) -> None:
        """Remove members whose time is over."""
        for member in group.tick(now_ms):
            logger.info("group %s: member %s has timed out", group.group_id, member.member_id)
        if group.changes:
            self._in_background(self._removed(group))

    def _schedule(self, group: ConsumerGroup | Group) -> None:
        self._timers.schedule(group.group_id, group.next_tick_ms)

    # -- storing

    async def _store(self, group: ConsumerGroup) -> None:
        """Store what has changed, and wait until that and everything before it is committed. Raises KafkaError."""
        self._log.check_leadership()
        if self._groups.find(group.group_id) is not group:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the group has changed its protocol meanwhile")
        self._schedule(group)
        if not group.changes:
            failed_stores = group.failed_stores
            await self._log.wait_for_earlier(group.group_id)
            if group.failed_stores > failed_stores:
                raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "an earlier change could not be stored")
            return
        changes = group.take_changes()
        try:
            records = self._groups.change_records(group, changes, self._broker.clock.now_ms())
            *earlier, last = _batches(records)
            self._append(earlier)
            await self._log.store(group.group_id, last)  # what is before it in the log is committed before it
        except BaseException:
            group.put_back(changes)
            raise

    def _append(self, batches: Iterable[Sequence[StoredRecord]]) -> None:
        """Append records without waiting. A failure after the append is counted."""
        for batch in batches:
            waiting = self._log.append(batch)
            if waiting is not None:
                waiting.add_done_callback(self._appended)

    def _appended(self, future: asyncio.Future[None]) -> None:
        if future.exception() is not None:
            self._failed()

    def _in_background(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(self._supervise(work))
        self._storing.add(task)
        task.add_done_callback(self._storing.discard)

    async def _supervise(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except KafkaError as error:
            self._failed()
            logger.warning("cannot store a consumer group: %s", error)


def _epoch_of(rights: Rights | None) -> int:
    """Return the present epoch of the rules of access."""
    return 0 if rights is None else rights.epoch


def _lock(locks: WeakValueDictionary[str, asyncio.Lock], group_id: str) -> asyncio.Lock:
    """Return the lock of a group, which is forgotten when nobody holds it or waits for it."""
    lock = locks.get(group_id)
    if lock is None:
        lock = locks[group_id] = asyncio.Lock()
    return lock


def _batches(records: Sequence[StoredRecord]) -> Iterator[list[StoredRecord]]:
    """Split records into batches of limited size. A record larger than the limit has a batch of its own."""
    batch: list[StoredRecord] = []
    size = 0
    for record in records:
        record_bytes = len(record[0]) + len(record[1] or b"")
        if batch and size + record_bytes > BATCH_BYTES:
            yield batch
            batch, size = [], 0
        batch.append(record)
        size += record_bytes
    if batch:
        yield batch


def _respond(effect: JoinResponse | SyncResponse) -> None:
    if not effect.token.done():
        effect.token.set_result(effect)
