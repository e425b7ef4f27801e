"""What the leader of a partition knows of its followers: how far they are, which are in sync, what is committed.

Pure: offsets, time and changes of the in-sync set go in, the high watermark and proposals come out. The in-sync set is
changed in the metadata store. A proposal is in flight until the store has answered. Meanwhile the watermark rule is
conservative (KIP-497): a replica that is being added counts at once, one that is being removed counts until the removal
is committed.

The high watermark does not advance while fewer than `min_in_sync` replicas are in sync (KIP-966). So a replica that
left the set in that state still has every committed record.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from skylog.model import NO_OFFSET


class FollowerProgress:
    """One follower, as its fetches show it. `end_offset` is -1 until its first fetch in this epoch.

    `leader_end_before` is the end of the leader's log at the fetch before the last one.
    """

    __slots__ = (
        "caught_up_s",
        "end_offset",
        "fetched_s",
        "incarnation",
        "leader_end_at_fetch",
        "leader_end_before",
        "log_start_offset",
    )

    def __init__(self, now_s: float) -> None:
        self.end_offset = NO_OFFSET
        self.log_start_offset = NO_OFFSET
        self.incarnation = 0
        self.fetched_s = now_s
        self.caught_up_s = now_s  # a new leader gives its followers the whole lag time to appear
        self.leader_end_at_fetch = self.leader_end_before = 0

    def fetched(
        self, incarnation: int, offset: int, log_start_offset: int, leader_end_offset: int, now_s: float
    ) -> None:
        """Record a fetch from `offset`: the follower has everything below it.

        It is caught up as of now if it has reached the leader's end, or as of its previous fetch if it has reached what
        was the leader's end then.
        """
        if offset >= leader_end_offset:
            self.caught_up_s = now_s
        elif offset >= self.leader_end_at_fetch and self.end_offset >= 0:
            self.caught_up_s = max(self.caught_up_s, self.fetched_s)
        self.leader_end_before = self.leader_end_at_fetch if self.end_offset >= 0 else leader_end_offset
        self.incarnation = incarnation
        self.end_offset = offset
        self.log_start_offset = log_start_offset
        self.fetched_s = now_s
        self.leader_end_at_fetch = leader_end_offset


class LeaderState:
    """The replicas of a partition in one leader epoch, as the leader sees them.

    `followers` has all other replicas. `in_sync` is the committed in-sync set, this broker included.
    """

    __slots__ = (
        "_adding",
        "_counted",
        "_min_in_sync",
        "epoch_start",
        "followers",
        "in_sync",
        "node_id",
        "removing",
    )

    def __init__(self, node_id: int, epoch_start: int) -> None:
        self.node_id = node_id
        self.epoch_start = epoch_start
        self.followers: dict[int, FollowerProgress] = {}
        self.in_sync: frozenset[int] = frozenset()
        self.removing: frozenset[int] = frozenset()
        self._adding: frozenset[int] = frozenset()
        self._counted: list[FollowerProgress] = []
        self._min_in_sync = 1

    def update(self, replicas: Collection[int], in_sync: Iterable[int], min_in_sync: int, now_s: float) -> None:
        """Apply the state that the metadata store reports. A proposal stays in flight until it is settled.

        Another change may have come between: the proposal may still be committed on top of it. `min_in_sync` is how
        many replicas must be in sync to commit anything.
        """
        followers = [node for node in replicas if node != self.node_id]
        self.followers = {node: self.followers.get(node) or FollowerProgress(now_s) for node in followers}
        self.in_sync = frozenset(in_sync)
        self._min_in_sync = min_in_sync
        self._count()

    def _count(self) -> None:
        counted = (self.in_sync | self._adding) - {self.node_id}
        self._counted = [progress for node, progress in self.followers.items() if node in counted]

    @property
    def is_alone(self) -> bool:
        """Whether an append is committed as soon as this broker has it."""
        return not self._counted and self.has_enough

    @property
    def has_enough(self) -> bool:
        """Whether enough replicas are in sync to commit anything."""
        return len(self.in_sync) >= self._min_in_sync

    def high_watermark(self, log_end_offset: int) -> int:
        """Return the offset below which everything is committed, or -1 if that is unknown."""
        if not self.has_enough:
            return NO_OFFSET
        offset = log_end_offset
        for progress in self._counted:
            if progress.end_offset < offset:
                offset = progress.end_offset
        return offset

    # -- changes of the in-sync set

    @property
    def has_change_in_flight(self) -> bool:
        return bool(self._adding or self.removing)

    def may_join(self, node_id: int, joining_offset: int, live: Mapping[int, int]) -> bool:
        """Whether a follower has caught up and may be added to the in-sync set.

        It must have reached `joining_offset` (see `cluster.elections`). And the process that fetches must be the one
        that is registered, so that a former incarnation does not bring its successor back (KAFKA-13916). `live` has the
        incarnations of live brokers.
        """
        progress = self.followers[node_id]
        return (
            node_id not in self.in_sync
            and not self.has_change_in_flight
            and progress.end_offset >= joining_offset
            and live.get(node_id) == progress.incarnation
        )

    def lagging(
        self, log_end_offset: int, now_s: float, max_lag_s: float, last_fetch_s: Mapping[int, float]
    ) -> list[int]:
        """Return the members of the in-sync set that have not caught up for `max_lag_s`. Call this more often.

        `last_fetch_s` has the time of the last fetch of each broker, of any partition: a follower at the end of the log
        has nothing to fetch from it, and is caught up as of that time.
        """
        for node, progress in self.followers.items():
            if progress.end_offset >= log_end_offset:
                progress.caught_up_s = max(progress.caught_up_s, last_fetch_s.get(node, progress.caught_up_s))
        if self.has_change_in_flight:
            return []
        return [
            node
            for node, progress in self.followers.items()
            if node in self.in_sync and now_s - progress.caught_up_s > max_lag_s
        ]

    def is_silent(self, node_id: int, now_s: float, max_lag_s: float) -> bool:
        """Whether a follower has not been heard of for `max_lag_s`. `lagging` would remove it again at once."""
        progress = self.followers[node_id]
        return now_s - max(progress.caught_up_s, progress.fetched_s) > max_lag_s

    def has_reached(self, node_id: int, offset: int) -> bool:
        """Whether a follower has everything below `offset`."""
        progress = self.followers.get(node_id)
        return progress is not None and progress.end_offset >= offset

    def propose(self, adding: Iterable[int] = (), removing: Iterable[int] = ()) -> None:
        """Note a change that is on its way to the metadata store."""
        self._adding, self.removing = frozenset(adding), frozenset(removing)
        self._count()

    def settle(self) -> None:
        """Note that the change in flight is committed, has failed, or was not necessary."""
        self.propose()
