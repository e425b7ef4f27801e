"""Who leads a partition, and which replicas are in sync: decisions only, without I/O.

A replica is complete if it has every committed record. The replicas in the in-sync set and the eligible ones (KIP-966)
are complete, which rests on three rules of a leader:

* It commits a record when every replica in sync has it, those included that it is adding right now.
* It commits nothing while the stored in-sync set has fewer than `ElectionRules.required` members, or while there are
  eligible replicas: the rules may have changed, and the controller may not know that yet. A replica that it is adding
  does not count here before the store has it: until then the controller may elect an eligible one.
* It changes the in-sync set by compare-and-set on the state that it has seen, so that it knows of every removal.

A clean election elects complete replicas only. So nothing committed is lost while fewer than `min.insync.replicas`
replicas lose their log, or the unflushed end of it, before the others have caught up.

Here only a change of the leader increments the leader epoch (`cluster.reassignment` has another reason). Kafka's
controller also did so when it removed a follower from the in-sync set (until KAFKA-15021), to fence a change that the
leader had in flight. Here the version of the topic's entry does that. A leader that has not seen the removal yet waits
for the follower too, which is safe.

Every function returns the same object if nothing changes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from skylog.cluster.image import NO_LEADER, BrokerImage, PartitionImage, TopicImage
from skylog.errors import ErrorCode, KafkaError
from skylog.model import TopicPartition

Brokers = Mapping[int, BrokerImage]
"""The live brokers by id."""


@dataclass(frozen=True, slots=True)
class ElectionRules:
    """A topic's `min.insync.replicas` and `unclean.leader.election.enable`.

    All brokers must use the same rules for a state of a topic. So they must follow from the topic's entry and settings
    of the whole cluster, never from those of one broker (KAFKA-16540).
    """

    min_in_sync: int
    allow_unclean: bool

    def required(self, partition: PartitionImage) -> int:
        """Return how many replicas must be in sync to commit: `min.insync.replicas`, but not more than there are.

        Those that a reassignment adds do not count before it is complete, so that it does not stop the producers.
        """
        return min(self.min_in_sync, len(partition.replicas) - len(partition.adding))


# -- the controller


def reconcile(partition: PartitionImage, brokers: Brokers, rules: ElectionRules) -> PartitionImage:
    """Return what a partition must become, given the live brokers: without dead replicas in sync, with a live leader.

    A leader that stops is replaced where another replica is in sync. A follower that stops leaves the in-sync set, as
    in Kafka's controlled shutdown. If no replica in sync is live, an eligible one is elected. If there is none, the
    in-sync set stays as it is and the partition is offline, unless unclean elections are allowed.
    """
    if _is_healthy(partition, brokers):
        return partition
    leader = _leader_in_sync(partition, brokers)
    if leader == NO_LEADER:
        return _recover(settle(partition, rules), brokers, rules)
    staying = tuple(each for each in partition.in_sync_replicas if each == leader or _is_active(each, brokers))
    return _lead(_with_in_sync(partition, staying, rules), leader)


def settle(partition: PartitionImage, rules: ElectionRules) -> PartitionImage:
    """Remove eligible replicas that are not needed any more, because enough replicas are in sync.

    A commit that lowers `min.insync.replicas` must include this. The leader then commits without the eligible replicas,
    and if they stayed eligible, they could be elected after the setting has been raised again.
    """
    return _with_in_sync(partition, partition.in_sync_replicas, rules) if partition.eligible_replicas else partition


def _is_healthy(partition: PartitionImage, brokers: Brokers) -> bool:
    in_sync = partition.in_sync_replicas
    for each in in_sync:
        broker = brokers.get(each)
        if broker is None or broker.is_stopping:
            return False
    return partition.leader in in_sync and not partition.eligible_replicas


def _is_active(node_id: int, brokers: Brokers) -> bool:
    broker = brokers.get(node_id)
    return broker is not None and not broker.is_stopping


def _leader_in_sync(partition: PartitionImage, brokers: Brokers) -> int:
    """Return the present leader if it may stay, otherwise the best replica in sync.

    A reassignment puts the replicas that it removes last, so they lead only where no other can.
    """
    live = [each for each in partition.replicas if each in brokers and each in partition.in_sync_replicas]
    active = [each for each in live if _is_active(each, brokers)]
    candidates = active or live
    if partition.leader in candidates:
        return partition.leader
    return candidates[0] if candidates else NO_LEADER


def _recover(partition: PartitionImage, brokers: Brokers, rules: ElectionRules) -> PartitionImage:
    """Elect a leader for a partition that has no live replica in sync.

    After the election of an eligible replica the former members of the in-sync set are eligible, too: nothing has been
    committed without them since. An unclean election prefers the last one that was complete until it crashed, and
    elects one that has lost its log only if there is no other.
    """
    live = [each for each in partition.replicas if each in brokers]
    rank = {each: number for number, each in enumerate(reversed(partition.resigned))}
    rank |= {each: len(partition.replicas) for each in (*partition.adding, *partition.emptied)}
    live.sort(key=lambda each: (brokers[each].is_stopping, rank.get(each, len(partition.resigned))))
    for each in live:
        if each in partition.eligible_replicas:
            return _lead(_with_in_sync(partition, (each,), rules), each)
    if live and rules.allow_unclean:
        return _lead(replace(partition, in_sync_replicas=(live[0],), eligible_replicas=()), live[0])
    return _lead(partition, NO_LEADER)


def _lead(partition: PartitionImage, leader: int) -> PartitionImage:
    if leader == partition.leader:
        return partition
    resigned = partition.resigned if leader == NO_LEADER else ()  # a leader commits without them
    return replace(partition, leader=leader, leader_epoch=partition.leader_epoch + 1, resigned=resigned)


def _with_in_sync(partition: PartitionImage, in_sync: tuple[int, ...], rules: ElectionRules) -> PartitionImage:
    """Change the in-sync set. Replicas that leave it are eligible as long as nothing can be committed."""
    required = rules.required(partition)
    eligible: tuple[int, ...] = ()
    if len(in_sync) < required:
        complete = partition.in_sync_replicas
        if len(complete) < required:
            complete += partition.eligible_replicas
        eligible = tuple(each for each in partition.replicas if each in complete and each not in in_sync)
    if (in_sync, eligible) == (partition.in_sync_replicas, partition.eligible_replicas):
        return partition
    emptied = _without(partition.emptied, in_sync)
    return replace(partition, in_sync_replicas=in_sync, eligible_replicas=eligible, resigned=(), emptied=emptied)


# -- a broker that starts


def resign(
    partition: PartitionImage,
    node_id: int,
    rules: ElectionRules,
    *,
    has_lost_data: bool = False,
    is_intact: bool = False,
) -> PartitionImage:
    """Return a partition without what a broker was in it before it started: its leader, and in sync.

    The broker may have lost the end of its log in a crash. So it is neither in sync nor eligible any more, unless it is
    the last one that was. With `has_lost_data` (an empty data directory) it leaves even then. Otherwise it would lead
    with less, and the others would truncate to that (KAFKA-14139, KAFKA-15586). The partition is then offline until
    an unclean election is requested.

    An unclean election then prefers those that have left with their data.

    With `is_intact` the broker gives up only its leadership. It must know that nothing is missing: its previous
    incarnation stopped cleanly and left a mark with its number, or the process has lost only its session.
    """
    partition = settle(partition, rules)
    if partition.leader == node_id:
        partition = _lead(partition, NO_LEADER)
    complete = {*partition.in_sync_replicas, *partition.eligible_replicas}
    is_last = complete == {node_id}
    if has_lost_data and node_id not in partition.emptied:
        resigned = _without(partition.resigned, (node_id,))
        partition = replace(partition, resigned=resigned, emptied=(*partition.emptied, node_id))
    if node_id not in complete or (not has_lost_data and (is_intact or is_last)):
        return partition
    return replace(
        partition,
        in_sync_replicas=_without(partition.in_sync_replicas, (node_id,)),
        eligible_replicas=_without(partition.eligible_replicas, (node_id,)),
        resigned=partition.resigned if has_lost_data else (*partition.resigned, node_id),
    )


def withdraw(partition: PartitionImage, node_id: int, rules: ElectionRules) -> PartitionImage:
    """Return a partition without a broker that is about to copy its replica again, in another epoch.

    In it the leader knows nothing of what the broker had, so it cannot add the broker again before that has begun to
    copy. The partition stays as it is if too few others are in sync.
    """
    others = _without(partition.in_sync_replicas, (node_id,))
    if len(others) < rules.required(partition):
        return partition
    resigned = resign(partition, node_id, rules, has_lost_data=True)
    return resigned if partition.leader == node_id else replace(resigned, leader_epoch=partition.leader_epoch + 1)


def hand_over(partition: PartitionImage, node_id: int, candidates: Collection[int], brokers: Brokers) -> PartitionImage:
    """Return a partition that the first candidate in sync leads in place of a broker. The broker stays in sync."""
    if partition.leader == node_id:
        for each in candidates:
            if each in partition.in_sync_replicas and _is_active(each, brokers):
                return _lead(partition, each)
    return partition


def _without(ids: tuple[int, ...], removed: Collection[int]) -> tuple[int, ...]:
    return tuple(each for each in ids if each not in removed)


# -- the leader


def expand(
    partition: PartitionImage,
    node_id: int,
    incarnation: int,
    leader_epoch: int,
    brokers: Brokers,
    rules: ElectionRules,
) -> PartitionImage:
    """Return a partition with one more replica in sync. It has caught up in fetches of this incarnation.

    Raises FENCED_LEADER_EPOCH if the partition has another leader, and INELIGIBLE_REPLICA if the replica is not live,
    is stopping, or has started again since (KAFKA-13916, KAFKA-14617). `brokers` may be outdated, so the commit must
    check that the incarnation is still the same. After a conflict, check `joining_offset` again, since records may have
    been committed meanwhile, and wait for the replica again (KAFKA-12686).
    """
    _check_leader_epoch(partition, leader_epoch)
    if node_id in partition.in_sync_replicas:
        return partition
    broker = brokers.get(node_id)
    if node_id not in partition.replicas or broker is None or broker.is_stopping or broker.incarnation != incarnation:
        raise KafkaError(ErrorCode.INELIGIBLE_REPLICA, f"broker {node_id} cannot join the in-sync set now")
    return _with_in_sync(partition, (*partition.in_sync_replicas, node_id), rules)


def shrink(
    partition: PartitionImage, node_ids: Collection[int], leader_epoch: int, rules: ElectionRules
) -> PartitionImage:
    """Return a partition without replicas that do not keep up. The leader itself stays.

    Raises FENCED_LEADER_EPOCH if the partition has another leader.
    """
    _check_leader_epoch(partition, leader_epoch)
    leaving = [each for each in node_ids if each != partition.leader and each in partition.in_sync_replicas]
    if not leaving:
        return partition
    return _with_in_sync(partition, _without(partition.in_sync_replicas, leaving), rules)


def joining_offset(
    partition: PartitionImage,
    rules: ElectionRules,
    *,
    high_watermark: int,
    epoch_start_offset: int,
    log_end_offset: int,
) -> int:
    """Return the offset that a follower must have reached to join the in-sync set.

    That is the high watermark, and the start of the leader's epoch: the watermark of a new leader may lag (KAFKA-7128).
    While too few replicas are in sync, the watermark stands still and says nothing about the follower. It must reach
    the end of the log then, or it would soon be removed again, and so on (KAFKA-19996). Pass the end as it was at the
    follower's previous fetch.
    """
    if len(partition.in_sync_replicas) < rules.required(partition):
        return max(high_watermark, epoch_start_offset, log_end_offset)
    return max(high_watermark, epoch_start_offset)


def _check_leader_epoch(partition: PartitionImage, leader_epoch: int) -> None:
    if partition.leader == NO_LEADER or partition.leader_epoch != leader_epoch:
        raise KafkaError(
            ErrorCode.FENCED_LEADER_EPOCH,
            f"leader epoch {leader_epoch} has ended; the partition is in epoch {partition.leader_epoch}",
        )


# -- elections on request


def prefer(partition: PartitionImage, brokers: Brokers) -> PartitionImage:
    """Elect the first replica. Raises ELECTION_NOT_NEEDED or PREFERRED_LEADER_NOT_AVAILABLE."""
    preferred = partition.replicas[0]
    if preferred == partition.leader:
        raise KafkaError(ErrorCode.ELECTION_NOT_NEEDED, f"broker {preferred} is the leader already")
    if not _can_prefer(partition, brokers):
        raise KafkaError(ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, f"broker {preferred} is not in sync, or stopping")
    return _lead(partition, preferred)


def unclean(partition: PartitionImage, brokers: Brokers, rules: ElectionRules) -> PartitionImage:
    """Elect any live replica of a partition that has no leader, a complete one if possible.

    Raises ELECTION_NOT_NEEDED or ELIGIBLE_LEADERS_NOT_AVAILABLE.
    """
    if partition.leader in brokers:
        raise KafkaError(ErrorCode.ELECTION_NOT_NEEDED, f"broker {partition.leader} is the leader")
    elected = reconcile(partition, brokers, replace(rules, allow_unclean=True))
    if elected.leader == NO_LEADER:
        raise KafkaError(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, "none of the replicas is live")
    return elected


def imbalance(topics: Mapping[str, TopicImage], brokers: Brokers, percentage: int) -> list[TopicPartition]:
    """Return the partitions to move back to their preferred leaders, for `auto.leader.rebalance.enable`.

    They belong to brokers that do not lead more than `percentage` of the partitions which prefer them
    (`leader.imbalance.per.broker.percentage`). Each can be passed to `prefer`. Reassigned partitions are left alone.
    """
    preferring: defaultdict[int, list[tuple[TopicPartition, PartitionImage]]] = defaultdict(list)
    for topic in topics.values():
        for index, partition in enumerate(topic.partitions):
            preferring[partition.replicas[0]].append((TopicPartition(topic.name, index), partition))
    found = []
    for node_id, partitions in preferring.items():
        led_by_others = [(name, each) for name, each in partitions if each.leader != node_id]
        if len(led_by_others) * 100 > percentage * len(partitions):
            found += [name for name, each in led_by_others if not each.is_reassigned and _can_prefer(each, brokers)]
    return found


def _can_prefer(partition: PartitionImage, brokers: Brokers) -> bool:
    preferred = partition.replicas[0]
    return preferred in partition.in_sync_replicas and _is_active(preferred, brokers)
