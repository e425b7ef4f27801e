"""The groups of one partition of `__consumer_offsets`, while this broker leads it: a shell around `groups`.

A change is appended to the partition before it is acknowledged, with the same guarantees as for any topic. Handlers
call the methods named after their APIs, which raise KafkaError.

A shard lives as long as one leadership (see `state_topic`). When that ends, members that wait for a response get
NOT_COORDINATOR, and appends fail. Work of the shard that is still under way ends by itself, and changes only the shard,
which no request can reach any more.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self, TypeVar

from skylog.broker.consumer_groups import ConsumerGroupRequests
from skylog.broker.group_log import GroupLog
from skylog.broker.leadership import Leadership, ProducerIdAndEpoch, not_coordinator
from skylog.broker.offset_removal import OffsetRemoval, names_per_batch
from skylog.broker.time_slice import TimeSlice, cooperatively
from skylog.cluster import TopicImage
from skylog.errors import ErrorCode, KafkaError
from skylog.groups import (
    AnyGroup,
    CommittedOffset,
    ConsumerGroup,
    Effect,
    Group,
    GroupConfig,
    Groups,
    GroupTimers,
    JoinRequest,
    JoinResponse,
    LateCommits,
    PendingOffsets,
    StoreGroup,
    SyncResponse,
)
from skylog.groups.consumer import Heartbeat, HeartbeatResponse
from skylog.model import NO_PRODUCER_ID, TopicPartition

if TYPE_CHECKING:
    from skylog.broker.broker import Broker
    from skylog.broker.security.access import Rights

logger = logging.getLogger(__name__)

_MOVED: Final = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR)

Response = TypeVar("Response", JoinResponse, SyncResponse)


class MemberId(NamedTuple):
    """The fields of a request that identify a member."""

    member_id: str
    instance_id: str | None
    generation: int


class GroupShard:
    """The groups of one partition. Use it on the event loop only.

    `now_ms` is the time for sessions and rebalances. `failed` is called for each failure in the background.
    """

    def __init__(
        self,
        broker: Broker,
        config: GroupConfig,
        leadership: Leadership,
        now_ms: Callable[[], int],
        failed: Callable[[], None],
    ) -> None:
        self._broker = broker
        self._config = config
        self._leadership = leadership
        self._now_ms = now_ms
        self._failed = failed
        self._log = GroupLog(leadership)
        self._groups = Groups(config, broker.config.consumer_groups, broker.coordinator.racks)
        self._pending = PendingOffsets()
        self._late_commits = LateCommits()
        self._ended: list[tuple[int, bool]] = []  # transactions that ended during the load
        self._timers = GroupTimers()
        self._removal = OffsetRemoval(broker, self._groups, self._pending, self._log, leadership, failed)
        self._consumers = ConsumerGroupRequests(broker, self._groups, self._log, self._timers, now_ms, failed)
        self._waiting: set[asyncio.Future[Any]] = set()  # joins and syncs without a response
        self._removed_topics: set[str] = set()  # those deleted during the load

    # -- groups

    def group(self, group_id: str) -> AnyGroup | None:
        """Return a group after running its due work, None if there is no such group. Raises NOT_COORDINATOR.

        Requests that wait between finding the shard and using it may find it freed.
        """
        self._log.check_leadership()
        group = self._groups.find(group_id)
        if group is not None and group.next_tick_ms is not None:
            self._tick(group, self._now_ms())
            group = self._groups.find(group_id)
        return group

    def all_groups(self) -> list[AnyGroup]:
        return self._groups.all()

    async def consumer_heartbeat(
        self, group_id: str, heartbeat: Heartbeat, rights: Rights | None = None
    ) -> HeartbeatResponse:
        """Join, stay in or leave a group of the consumer protocol. Returns when the change is stored.

        A pattern selects only topics that the sender may describe. `rights` are None without an authorizer.
        """
        self.group(group_id)
        return await self._consumers.heartbeat(group_id, heartbeat, rights)

    async def join(self, group_id: str, request: JoinRequest) -> JoinResponse:
        """Join a group, or rejoin it for a rebalance. Returns when all members have joined."""
        group = self.group(group_id)
        config = self._config
        if not config.min_session_timeout_ms <= request.session_timeout_ms <= config.max_session_timeout_ms:
            raise KafkaError(ErrorCode.INVALID_SESSION_TIMEOUT)
        if group is None:
            if request.member_id:
                raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
            group = self._groups.get_or_create(group_id)
        if isinstance(group, ConsumerGroup):
            if group.members:
                return await self._consumers.join(group, request)
            group = self._consumers.to_classic(group)
        token: asyncio.Future[JoinResponse] = asyncio.get_running_loop().create_future()
        self._run(group, group.join(request, token, self._now_ms()))
        self._groups.drop_unused(group)
        return await self._response(token)

    async def sync(
        self,
        group_id: str,
        member: MemberId,
        assignments: Iterable[tuple[str, bytes]],
        protocol_type: str | None,
        protocol: str | None,
    ) -> SyncResponse:
        """Submit the assignment, or wait for it. Returns when the leader has submitted it."""
        group = self._existing_group(group_id)
        if isinstance(group, ConsumerGroup):
            return await self._consumers.sync(group, member, protocol_type, protocol)
        token: asyncio.Future[SyncResponse] = asyncio.get_running_loop().create_future()
        self._run(group, group.sync(*member, assignments, token, self._now_ms(), protocol_type, protocol))
        return await self._response(token)

    async def _response(self, token: asyncio.Future[Response]) -> Response:
        """Wait for the response to a member. Raises NOT_COORDINATOR if the shard is closed first."""
        self._waiting.add(token)
        try:
            return await token
        finally:
            self._waiting.discard(token)

    def heartbeat(self, group_id: str, member: MemberId) -> None:
        group = self._existing_group(group_id)
        if isinstance(group, ConsumerGroup):
            self._consumers.heartbeat_classic(group, member)
        else:
            group.heartbeat(*member, self._now_ms())

    def leave(self, group_id: str, member_id: str, instance_id: str | None) -> None:
        group = self._existing_group(group_id)
        if isinstance(group, ConsumerGroup):
            self._consumers.leave_classic(group, member_id, instance_id)
        else:
            self._run(group, group.leave(member_id, instance_id, self._now_ms()))

    def _existing_group(self, group_id: str) -> AnyGroup:
        """Return a group. Raises UNKNOWN_MEMBER_ID if there is no such group."""
        group = self.group(group_id)
        if group is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        return group

    async def delete(self, group_id: str) -> None:
        """Delete a group that has no members.

        The group is dead immediately, so that no client can join or commit while the deletion is being stored. If that
        fails, but the tombstones are in the log, the group is deleted all the same.
        """
        self.group(group_id)
        group = self._groups.check_deletable(group_id)
        group.begin_deletion()
        is_appended = False

        def appended() -> None:
            nonlocal is_appended
            is_appended = True
            self._pending.replace(group_id, pending)

        try:
            await self._log.wait_for_earlier(group_id)  # offsets in them are to be deleted, too
            names = tuple({**self._groups.offsets_of(group_id), **dict.fromkeys(self._pending.of_group(group_id))})
            await self._removal.remove(group_id, names[: -names_per_batch(group_id)])
            pending = self._pending.of_group(group_id).difference(self._groups.offsets_of(group_id))
            records = [self._groups.offset_record(group_id, name, None) for name in pending]
            records += self._groups.deletion_records(group_id)
            await self._log.store(group_id, records, appended=appended)
        finally:
            # A tombstone that is late is in the log all the same, and the next leader replays it.
            if is_appended and not self._leadership.is_over:
                self._groups.remove(group_id)
            else:
                group.cancel_deletion()

    # -- offsets

    def offsets_of(self, group_id: str) -> Mapping[TopicPartition, CommittedOffset]:
        """Return the committed offsets of a group."""
        return self._groups.offsets_of(group_id)

    def check_fetch(self, group_id: str, member_id: str | None, epoch: int) -> None:
        """Raise KafkaError unless this member may fetch offsets. Only the consumer protocol has such a rule."""
        group = self.group(group_id)
        if isinstance(group, ConsumerGroup):
            group.check_fetch(member_id, epoch)

    def _check_commit(self, group_id: str, member: MemberId, knows_epochs: bool) -> None:
        """Raise KafkaError unless this member may commit offsets."""
        group = self.group(group_id)
        if isinstance(group, ConsumerGroup):
            group.check_commit(member.member_id, member.generation, knows_epochs=knows_epochs)
        elif group is not None:
            group.check_commit(*member, self._now_ms())
        elif member.generation >= 0:
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION)

    async def commit_offsets(
        self,
        group_id: str,
        member: MemberId,
        offsets: Mapping[TopicPartition, CommittedOffset],
        *,
        knows_epochs: bool = True,
        connection: int | None = None,
    ) -> None:
        """Store offsets. Returns when they are committed to the offsets topic.

        `knows_epochs` is set from version 9 of OffsetCommit on. `connection` is the number of the connection that the
        request came on.
        """
        self._check_commit(group_id, member, knows_epochs)
        if member.member_id and connection is not None:
            self._check_not_late((group_id, member.member_id), connection)
        if offsets:
            records = [self._groups.offset_record(group_id, name, each) for name, each in offsets.items()]
            topics = self._broker.metadata.image.topics
            await self._log.store(group_id, records, appended=partial(self._pending.replace, group_id, offsets))
            gone = {name.topic for name in offsets if not self._still_exists(name.topic, topics.get(name.topic))}
            self._groups.commit(group_id, ((name, each) for name, each in offsets.items() if name.topic not in gone))
            if gone:
                self._removal.store({group_id: [name for name in offsets if name.topic in gone]})

    async def commit_in_transaction(
        self,
        group_id: str,
        member: MemberId,
        producer: ProducerIdAndEpoch,
        offsets: Mapping[TopicPartition, CommittedOffset],
        connection: int | None = None,
    ) -> None:
        """Store offsets as part of a producer's transaction. They count when its marker commits it.

        If they are appended but not committed in time, they stay pending, as they are after a replay of the log. The
        producer commits them again or aborts.
        """
        self._check_transactional_commit(group_id, member)
        if not offsets:
            return
        if connection is not None:
            self._check_not_late((group_id, producer), connection)
        records = [self._groups.offset_record(group_id, name, each) for name, each in offsets.items()]
        appended = partial(self._pending.add, producer[0], group_id, offsets)
        await self._log.store(group_id, records, producer=producer, appended=appended)

    def _check_transactional_commit(self, group_id: str, member: MemberId) -> None:
        """Raise KafkaError unless this member may commit offsets in a transaction. The member need not be named."""
        group = self.group(group_id)
        if group is not None:
            group.check_transactional_commit(*member)
        elif member.generation >= 0:
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION)

    def _check_not_late(self, client: Hashable, connection: int) -> None:
        """Raise KafkaError if the client has committed on a newer connection. It looks for the coordinator again."""
        if self._late_commits.is_late(client, connection, self._broker.clock.monotonic()):
            raise KafkaError(ErrorCode.NOT_COORDINATOR, "a late commit, on a connection that the client has given up")

    def unstable_offsets(self, group_id: str) -> set[TopicPartition]:
        """Return the partitions whose committed offset an open transaction may change."""
        return self._pending.of_group(group_id)

    async def end_transaction(self, producer_id: int, commits: bool) -> None:
        """Apply or drop the offsets of a transaction, whose marker is in the log."""
        if not self._leadership.is_served:
            self._ended.append((producer_id, commits))
            return
        for group_id in self._pending.groups_of(producer_id):
            await self._log.wait_for_earlier(group_id)  # older commits must not replace these
        self._apply_end(producer_id, commits)

    def _apply_end(self, producer_id: int, commits: bool) -> None:
        for group_id, offsets in self._pending.end(producer_id, commits).items():
            self._groups.commit(group_id, offsets.items())

    def _still_exists(self, name: str, topic: TopicImage | None) -> bool:
        """Whether a topic is the one it was when the offsets were stored."""
        now = self._broker.metadata.image.topics.get(name)
        return topic is None or (now is not None and now.topic_id == topic.topic_id)

    async def delete_offsets(self, group_id: str, names: Collection[TopicPartition]) -> Collection[str]:
        """Delete offsets of a group, except in topics that members are subscribed to. Return those topics."""
        group = self.group(group_id)
        if group is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND)
        await self._log.wait_for_earlier(group_id)
        self._log.check_leadership()
        busy = group.subscribed_topics()
        if busy is None:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP)
        known = self._groups.offsets_of(group_id)
        await self._removal.remove(group_id, [name for name in names if name in known and name.topic not in busy])
        return busy

    # -- effects

    def _run(self, group: Group, effects: Iterable[Effect]) -> None:
        """Perform a group's effects in order, and schedule its next tick."""
        self._perform(group, list(effects))
        self._schedule(group)

    def _schedule(self, group: AnyGroup) -> None:
        self._timers.schedule(group.group_id, group.next_tick_ms)

    def _perform(self, group: Group, queue: list[Effect]) -> None:
        """Perform effects. Responses after a store wait until it is committed."""
        for index, effect in enumerate(queue):
            if isinstance(effect, StoreGroup):
                try:
                    record = self._groups.group_record(group, self._broker.clock.now_ms())
                    waiting = self._log.append([record])
                except Exception as error:  # whatever the error, waiting requests need a response
                    self._storing_failed(group, queue[index + 1 :], error)
                    return
                if waiting is not None:
                    group.storing()
                    waiting.add_done_callback(partial(self._stored, group, queue[index + 1 :]))
                    return
            else:
                _respond(effect)

    def _stored(self, group: Group, rest: list[Effect], future: asyncio.Future[None]) -> None:
        error = future.exception()
        if self._leadership.is_over:
            return  # the requests have their responses
        group.stored(self._now_ms())
        if error is not None:
            self._storing_failed(group, rest, error)
        else:
            self._run(group, rest)

    def _storing_failed(self, group: Group, rest: list[Effect], error: BaseException) -> None:
        self._failed()
        unexpected = None if isinstance(error, KafkaError) else error
        logger.error("cannot store group %s: %s", group.group_id, error, exc_info=unexpected)
        code = ErrorCode.COORDINATOR_NOT_AVAILABLE
        if isinstance(error, KafkaError) and error.code in _MOVED:
            code = ErrorCode.NOT_COORDINATOR
        for effect in rest:
            if isinstance(effect, JoinResponse):
                _respond(JoinResponse(effect.token, code, member_id=effect.member_id))
            elif isinstance(effect, SyncResponse):
                _respond(SyncResponse(effect.token, code))
        self._run(group, group.storing_failed(self._now_ms()))

    # -- time

    async def tick_due(self, now_ms: int, time_slice: TimeSlice) -> None:
        """Tick the groups that are due."""
        for group_id in self._timers.take_due(now_ms):
            await time_slice.yield_if_over()
            if self._leadership.is_over:
                return
            group = self._groups.find(group_id)
            if group is not None:
                self._tick(group, self._now_ms())

    def _tick(self, group: AnyGroup, now_ms: int) -> None:
        try:
            if isinstance(group, ConsumerGroup):
                self._consumers.tick(group, now_ms)
                self._schedule(group)
            else:
                self._run(group, group.tick(now_ms))
        except Exception:
            self._failed()
            logger.exception("the tick of group %s failed", group.group_id)

    async def expire_offsets(self, time_slice: TimeSlice) -> None:
        """Delete expired offsets, and groups without members and offsets."""
        for group in self._groups.all():
            await time_slice.yield_if_over()
            if self._leadership.is_over:
                return
            try:
                if await self._removal.expire(group, time_slice):
                    await self.delete(group.group_id)
            except KafkaError as error:
                if not self._leadership.is_over:
                    self._failed()
                    logger.warning("cannot expire offsets of group %s: %s", group.group_id, error)

    # -- deleted topics

    def remove_topics(self, topics: Collection[str]) -> None:
        """Remove the offsets in topics that were deleted. While the shard is loaded, they are only noted."""
        if self._leadership.is_served:
            self._removal.remove_topics(topics)
        else:
            self._removed_topics.update(topics)

    async def settled(self) -> None:
        """Wait until the offsets of deleted topics are deleted from the log."""
        await self._removal.settled()

    # -- the life of the shard, called by the state topic

    def replay(self, key: bytes, value: bytes | None, producer_id: int = NO_PRODUCER_ID) -> None:
        self._pending.replay(producer_id, key, value)
        if producer_id == NO_PRODUCER_ID:
            self._groups.replay(key, value)

    def replay_marker(self, producer_id: int, commits: bool) -> None:
        self._apply_end(producer_id, commits)

    def take_over(self, failed: Self) -> None:
        self._ended = failed._ended
        self._removed_topics = failed._removed_topics

    async def loaded(self) -> None:
        async for group in cooperatively(self._groups.all()):
            group.loaded(self._now_ms())
            self._timers.schedule(group.group_id, group.next_tick_ms)
        for ended in self._ended:
            self._apply_end(*ended)
        self._removal.remove_topics(self._removed_topics)

    def close(self) -> None:
        for token in self._waiting:
            if not token.done():
                token.set_exception(not_coordinator())

    async def free(self) -> None:
        async for _ in cooperatively(self._groups.drop_all()):
            pass


def _respond(effect: Effect) -> None:
    assert isinstance(effect, JoinResponse | SyncResponse)
    if not effect.token.done():
        effect.token.set_result(effect)
