"""Moves the replicas of a partition to other brokers (KIP-455): decisions only, without I/O.

While a partition is reassigned, `replicas` has the target first, and after it those that are removed at the end. The
replicas that are added become followers and join the in-sync set as usual. When the whole target is in sync, the
controller completes the reassignment. No function changes a leader unless it stops being a replica.

A replica that leaves ends the leader epoch, as in Kafka. It may be added again, with an empty log, before the leader
has seen that it left. In the new epoch the leader knows nothing of its followers, and refuses fetches of the old one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from skylog.cluster.elections import Brokers, ElectionRules, reconcile
from skylog.cluster.image import NO_LEADER, PartitionImage
from skylog.errors import ErrorCode, KafkaError


def begin(partition: PartitionImage, target: Sequence[int], brokers: Brokers, rules: ElectionRules) -> PartitionImage:
    """Return a partition on its way to `target`. Another target that it was on its way to is given up.

    The first of the target becomes the preferred leader. A target in another order takes effect immediately. Raises
    INVALID_REPLICA_ASSIGNMENT.
    """
    original = _original(partition)
    _check_target(target, original, brokers)
    adding = tuple(each for each in target if each not in original)
    removing = tuple(each for each in original if each not in target)
    return _checked(partition, _with_replicas(partition, (*target, *removing), adding, removing), brokers, rules)


def cancel(partition: PartitionImage, brokers: Brokers, rules: ElectionRules) -> PartitionImage:
    """Return a partition with the replicas that it had before a reassignment.

    Raises NO_REASSIGNMENT_IN_PROGRESS, or INVALID_REPLICA_ASSIGNMENT if too few of those replicas are in sync.
    """
    if not partition.is_reassigned:
        raise KafkaError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "the partition is not being reassigned")
    return _checked(partition, _with_replicas(partition, _original(partition)), brokers, rules)


def advance(partition: PartitionImage, brokers: Brokers, rules: ElectionRules) -> PartitionImage:
    """Complete a reassignment if all of the target are live and in sync. Otherwise return the same object."""
    if not partition.is_reassigned:
        return partition
    target = target_of(partition)
    if not all(each in partition.in_sync_replicas and each in brokers for each in target):
        return partition
    return _end_epoch(partition, reconcile(_with_replicas(partition, target), brokers, rules))


def target_of(partition: PartitionImage) -> tuple[int, ...]:
    """Return the replicas that a partition has or will have when its reassignment is complete."""
    return tuple(each for each in partition.replicas if each not in partition.removing)


def _original(partition: PartitionImage) -> tuple[int, ...]:
    return tuple(each for each in partition.replicas if each not in partition.adding)


def _with_replicas(
    partition: PartitionImage, replicas: tuple[int, ...], adding: tuple[int, ...] = (), removing: tuple[int, ...] = ()
) -> PartitionImage:
    return replace(
        partition,
        replicas=replicas,
        in_sync_replicas=tuple(each for each in partition.in_sync_replicas if each in replicas),
        eligible_replicas=tuple(each for each in partition.eligible_replicas if each in replicas),
        adding=adding,
        removing=removing,
        resigned=tuple(each for each in partition.resigned if each in replicas),
        emptied=tuple(each for each in partition.emptied if each in replicas),
    )


def _checked(before: PartitionImage, after: PartitionImage, brokers: Brokers, rules: ElectionRules) -> PartitionImage:
    """Return the new state, with another leader where necessary.

    Raises INVALID_REPLICA_ASSIGNMENT if it would give up complete replicas, and leave fewer of them than required or
    none that can lead.
    """
    if after == before:
        return before
    elected = reconcile(after, brokers, replace(rules, allow_unclean=False))
    complete, left, required = _count_complete(before), _count_complete(after), rules.required(before)
    if left < complete and (left < required or elected.leader == NO_LEADER):
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"only {left} of the replicas that would stay are in sync, {required} are required and one must be live; "
            "wait until more of them have caught up, or keep others that are in sync",
        )
    return _end_epoch(before, elected)


def _end_epoch(before: PartitionImage, after: PartitionImage) -> PartitionImage:
    """Return the new state, in a new leader epoch if a replica has left."""
    if after.leader_epoch != before.leader_epoch or set(before.replicas) <= set(after.replicas):
        return after
    return replace(after, leader_epoch=before.leader_epoch + 1)


def _count_complete(partition: PartitionImage) -> int:
    return len(partition.in_sync_replicas) + len(partition.eligible_replicas)


def _check_target(target: Sequence[int], original: Sequence[int], brokers: Brokers) -> None:
    if not target or len(set(target)) != len(target):
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "a partition needs at least one replica, each once")
    missing = [each for each in target if each not in original and each not in brokers]
    if missing:
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"there is no broker {missing[0]}")
