"""Decisions with one mistake each, which the tests of a partition must find.

Most of them are bugs that others have shipped.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from skylog.cluster import PartitionImage, elections, reassignment
from skylog.cluster.elections import Brokers, ElectionRules

from .partition_world import Decisions


def resign_stays_in_sync(partition: PartitionImage, node_id: int, rules: ElectionRules, **_: bool) -> PartitionImage:
    return elections.resign(partition, node_id, rules, is_intact=True)


def resign_from_nothing(partition: PartitionImage, *_: Any, **__: bool) -> PartitionImage:
    return partition


def resign_stays_eligible(
    partition: PartitionImage, node_id: int, rules: ElectionRules, **state: bool
) -> PartitionImage:
    after = elections.resign(partition, node_id, rules, **state)
    has_left = node_id in partition.in_sync_replicas and node_id not in after.in_sync_replicas
    if has_left and len(after.in_sync_replicas) < rules.required(partition):
        return replace(after, eligible_replicas=(*after.eligible_replicas, node_id))
    return after


def reconcile_elects_any_live_replica(
    partition: PartitionImage, brokers: Brokers, rules: ElectionRules
) -> PartitionImage:
    return elections.reconcile(partition, brokers, replace(rules, allow_unclean=True))


def reconcile_keeps_the_epoch(partition: PartitionImage, *args: Any) -> PartitionImage:
    return replace(elections.reconcile(partition, *args), leader_epoch=partition.leader_epoch)


def reconcile_removes_the_last_one(partition: PartitionImage, brokers: Brokers, rules: ElectionRules) -> PartitionImage:
    after = elections.reconcile(partition, brokers, rules)
    return replace(after, in_sync_replicas=tuple(each for each in after.in_sync_replicas if each in brokers))


def without_eligible(decision: Callable[..., PartitionImage], *args: Any, **state: Any) -> PartitionImage:
    return replace(decision(*args, **state), eligible_replicas=())


def expand_keeps_eligible(partition: PartitionImage, node_id: int, *args: Any) -> PartitionImage:
    after = elections.expand(partition, node_id, *args)
    left = tuple(each for each in partition.eligible_replicas if each not in after.in_sync_replicas)
    return replace(after, eligible_replicas=left)


def expand_ignores_the_incarnation(
    partition: PartitionImage, node_id: int, incarnation: int, epoch: int, brokers: Brokers, rules: ElectionRules
) -> PartitionImage:
    known = {**brokers, node_id: replace(brokers[node_id], incarnation=incarnation)} if node_id in brokers else brokers
    return elections.expand(partition, node_id, incarnation, epoch, known, rules)


def join_at_the_high_watermark(*_: Any, high_watermark: int, **__: int) -> int:
    return high_watermark


def settle_nothing(partition: PartitionImage, _: ElectionRules) -> PartitionImage:
    return partition


def cancel_at_any_time(partition: PartitionImage, brokers: Brokers, rules: ElectionRules) -> PartitionImage:
    if not partition.is_reassigned:
        return partition
    original = tuple(each for each in partition.replicas if each not in partition.adding)
    return _only_on(partition, original, brokers, rules)


def advance_early(partition: PartitionImage, brokers: Brokers, rules: ElectionRules) -> PartitionImage:
    target = reassignment.target_of(partition)
    return _only_on(partition, target, brokers, rules) if partition.is_reassigned else partition


def keep_the_epoch(decision: Callable[..., PartitionImage], partition: PartitionImage, *args: Any) -> PartitionImage:
    """End the epoch with the leader only, and not with a replica."""
    after = decision(partition, *args)
    return replace(after, leader_epoch=partition.leader_epoch) if after.leader == partition.leader else after


def _only_on(
    partition: PartitionImage, replicas: tuple[int, ...], brokers: Brokers, rules: ElectionRules
) -> PartitionImage:
    in_sync = tuple(each for each in partition.in_sync_replicas if each in replicas)
    moved = replace(
        partition,
        replicas=replicas,
        in_sync_replicas=in_sync or replicas[:1],
        eligible_replicas=tuple(each for each in partition.eligible_replicas if each in replicas),
        adding=(),
        removing=(),
    )
    return elections.reconcile(moved, brokers, rules)


@dataclass(frozen=True)
class Mistake:
    """Wrong decisions, and the life of a partition in which they do harm. A few hundred random lives find most."""

    name: str
    decisions: Decisions
    life: str
    is_found_by_chance: bool = True


MISTAKES = (
    Mistake(
        "KAFKA-14139: a broker that has crashed stays in sync, and leads with less",
        Decisions(resign=resign_stays_in_sync),
        "write 1 1; replicate; crash 1 1; start 1; resign 1; register 1",
    ),
    Mistake(
        "KAFKA-7235: a broker that has crashed goes on to lead in the same epoch",
        Decisions(resign=resign_from_nothing),
        "write 1 1; replicate; restart 1 1",
    ),
    Mistake(
        "KAFKA-15586: a broker that has crashed is eligible",
        Decisions(resign=resign_stays_eligible),
        "write 1 1; replicate; restart 1; control 1 1; restart 3 1; fail_over 1 1",
    ),
    Mistake(
        "the election ignores the in-sync set",
        Decisions(reconcile=reconcile_elects_any_live_replica),
        "write 1 1; expire 3; replicate; restart 1 1; control 1 1; fail_over 1 1",
    ),
    Mistake(
        "the leader changes within an epoch",
        Decisions(reconcile=reconcile_keeps_the_epoch),
        "fail_over 1 1",
    ),
    Mistake(
        "the last replica in sync is removed when it dies",
        Decisions(reconcile=reconcile_removes_the_last_one),
        "configure 1 0; fail_over 1 1; fail_over 1 1; fail_over 1 1",
    ),
    Mistake(
        "KIP-966: no replica is eligible",
        Decisions(
            reconcile=partial(without_eligible, elections.reconcile), shrink=partial(without_eligible, elections.shrink)
        ),
        "write 1 1; replicate; propose_removal 1 1; commit_proposal 1; crash 1 1",
    ),
    Mistake(
        "replicas stay eligible while others commit",
        Decisions(expand=expand_keeps_eligible),
        "propose_removal 1 1; commit_proposal 1; replicate; join 1; replicate; write 1 1; catch_up 2; fail_over 1 1",
    ),
    Mistake(
        "replicas stay eligible when fewer are required",
        Decisions(settle=settle_nothing),
        "propose_removal 1 1; commit_proposal 1; configure 1 0; observe 1; write 1 1; configure 1 1; fail_over 1 1",
    ),
    Mistake(
        "KAFKA-13916, KAFKA-14617: a former incarnation joins",
        Decisions(expand=expand_ignores_the_incarnation, incarnations_are_checked=False),
        "write 1 1; replicate; restart 2 1; observe 1; join 1; restart 1",
        is_found_by_chance=False,
    ),
    Mistake(
        "KAFKA-7128: a follower joins at the lagging watermark of a new leader",
        Decisions(joining_offset=join_at_the_high_watermark),
        "write 1 1; fetch 2 1; fetch 3 1; fetch 2; fetch 3; restart 1 1; control 1 1; observe 2; observe 1; fetch 1; "
        "join 1; fail_over 1 1",
        is_found_by_chance=False,
    ),
    Mistake(
        "a reassignment is cancelled when only one of the old replicas has everything",
        Decisions(cancel=cancel_at_any_time),
        "reassign 1 3; replicate; join 1; observe 1; propose_removal 1 2; commit_proposal 1; observe 1; write 1 1; "
        "catch_up 4; cancel_reassignment; crash 1 1",
        is_found_by_chance=False,
    ),
    Mistake(
        "a reassignment is completed before the target is in sync",
        Decisions(advance=advance_early),
        "write 1 1; replicate; reassign 1 5; control 1 1",
    ),
    Mistake(
        "a replica that was moved away and back is in sync with what it had before",
        Decisions(
            begin=partial(keep_the_epoch, reassignment.begin),
            cancel=partial(keep_the_epoch, reassignment.cancel),
            advance=partial(keep_the_epoch, reassignment.advance),
        ),
        "write 1 1; replicate; reassign 1 4; control 1 1; observe 3; reassign 1 1; observe 1; join 1; observe 1; "
        "control 1 1; fail_over 1 1",
        is_found_by_chance=False,
    ),
    Mistake(
        "a joining replica counts before it has joined",
        Decisions(joining_counts_as_in_sync=True),
        "propose_removal 1 1; commit_proposal 1; replicate; restart 3; propose_expansion 1 1; write 1 1; catch_up 3; "
        "fail_over 1 1",
        is_found_by_chance=False,
    ),
    Mistake(
        "KAFKA-12686: a joining replica is not waited for",
        Decisions(joining_is_waited_for=False),
        "begin_stop 1; reassign 1 3; replicate; write 1 1; join 1; catch_up 3; control 1 1",
        is_found_by_chance=False,
    ),
    Mistake(
        "KAFKA-12686: a joining replica is not waited for after another change has come between",
        Decisions(retry_is_waited_for=False),
        "propose_removal 1 2; commit_proposal 1; observe 1; fetch 3; propose_expansion 1; configure 1 1; observe 1; "
        "retry 1; write 1 1; catch_up 2; begin_stop 2; fail_over 1 1",
        is_found_by_chance=False,
    ),
    Mistake(
        "a replica joins late, and records were committed without it meanwhile",
        Decisions(retry_is_checked=False),
        "propose_removal 1 2; commit_proposal 1; observe 1; fetch 3; propose_expansion 1; configure 1 1; observe 1; "
        "write 1 1; catch_up 2; retry 1; begin_stop 2; fail_over 1 1",
        is_found_by_chance=False,
    ),
    Mistake(
        "KIP-966: the leader commits with too few replicas in sync",
        Decisions(commits_below_required=True),
        "propose_removal 1 1; commit_proposal 1; observe 1; write 1 1; restart 1",
    ),
    Mistake(
        "KAFKA-6082, KAFKA-2729: commits overwrite newer states",
        Decisions(versions_are_checked=False),
        "write 1 1; propose_removal 1; replicate; restart 2 1; commit_proposal 1; restart 1",
    ),
)
