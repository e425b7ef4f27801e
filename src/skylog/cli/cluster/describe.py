"""`skylog cluster describe`: brokers, leaders, replicas and their problems."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from skylog.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap
from skylog.cluster.image import NO_CONTROLLER
from skylog.terminal import note, print_heading, print_json, print_table, stdout

if TYPE_CHECKING:
    from skylog.client import ClusterDescription, PartitionState, Reassignment


def describe(
    topics: Annotated[bool, typer.Option("--topics", help="List all topics.")] = False,
    partitions: Annotated[
        bool, typer.Option("--partitions", help="List all partitions, not only those with problems.")
    ] = False,
    json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Show the brokers, and the partitions that have no leader or replicas that are not in sync.

    A broker is missing if it has replicas but is not live. The JSON has all topics and partitions.

    [bold]skylog cluster describe[/]

    [bold]skylog cluster describe --partitions[/]
    """
    from skylog.client import ClusterAdmin, Connection

    cluster = ClusterAdmin(Connection(bootstrap)).describe()
    if json:
        print_json(_document(cluster))
        return
    _print_brokers(cluster)
    stdout.print(f"\n{_summary(cluster)}")
    if cluster.controller_id == NO_CONTROLLER:
        note(
            "there is no controller, and this is how the cluster was last; if that does not change, see whether "
            "ZooKeeper answers"
        )
    if topics:
        _print_topics(cluster)
    if partitions:
        _print_partitions("all partitions", cluster.partitions)
    elif cluster.problems:
        _print_partitions("partitions with problems", cluster.problems)
    if cluster.reassignments:
        _print_reassignments(cluster.reassignments)
    if cluster.reassignments_problem:
        note(f"whether partitions are being reassigned is not known: {cluster.reassignments_problem}")


def _print_brokers(cluster: ClusterDescription) -> None:
    live = {broker.node_id: broker for broker in cluster.brokers}
    rows = [
        (
            node_id,
            live[node_id].address if node_id in live else "missing",
            (live[node_id].rack if node_id in live else None) or "-",
            "yes" if node_id == cluster.controller_id else "-",
            load.leaders,
            load.replicas,
            load.out_of_sync,
        )
        for node_id, load in cluster.loads().items()
    ]
    print_heading(f"cluster {cluster.cluster_id}", f"{len(cluster.brokers)} of {len(rows)} brokers are live")
    columns = ["BROKER", "ADDRESS", "RACK", "CONTROLLER", "LEADERS", "REPLICAS", "NOT IN SYNC"]
    print_table(columns, rows, numbers=["BROKER", "LEADERS", "REPLICAS", "NOT IN SYNC"])


def _summary(cluster: ClusterDescription) -> str:
    count = len(cluster.partitions)
    facts = [
        f"{count:,} partition{'' if count == 1 else 's'}",
        f"{len(cluster.under_replicated):,} under-replicated",
        f"{len(cluster.offline):,} offline",
    ]
    if cluster.reassignments:
        facts.append(f"{len(cluster.reassignments):,} being reassigned")
    return ", ".join(facts)


def _print_topics(cluster: ClusterDescription) -> None:
    stdout.print()
    columns = ["TOPIC", "PARTITIONS", "REPLICAS", "UNDER-REPLICATED", "OFFLINE"]
    print_table(columns, [tuple(row.values()) for row in _topics(cluster)], numbers=columns[1:])


def _print_partitions(title: str, partitions: Iterable[PartitionState]) -> None:
    stdout.print()
    print_heading(title, "")
    rows = [
        (*each.partition, _leader(each), _ids(each.replicas), _ids(each.in_sync_replicas), _problem(each))
        for each in partitions
    ]
    columns = ["TOPIC", "PARTITION", "LEADER", "REPLICAS", "IN SYNC", "PROBLEM"]
    print_table(columns, rows, numbers=["PARTITION", "LEADER"])


def _print_reassignments(reassignments: Iterable[Reassignment]) -> None:
    stdout.print()
    print_heading("being reassigned", "")
    rows = [(*each.partition, _ids(each.target), _ids(each.adding), _ids(each.removing)) for each in reassignments]
    print_table(["TOPIC", "PARTITION", "TARGET", "ADDING", "REMOVING"], rows, numbers=["PARTITION"])


def _leader(partition: PartitionState) -> str:
    return "none" if partition.is_offline else str(partition.leader)


def _ids(ids: Iterable[int]) -> str:
    return ",".join(map(str, ids)) or "-"


def _problem(partition: PartitionState) -> str:
    behind = [each for each in partition.missing_replicas if each not in partition.offline_replicas]
    facts = [
        *([_offline(partition)] if partition.is_offline else []),
        *([f"broker {_ids(partition.offline_replicas)} missing"] if partition.offline_replicas else []),
        *([f"broker {_ids(behind)} not in sync"] if behind else []),
    ]
    return ", ".join(facts) or "-"


def _offline(partition: PartitionState) -> str:
    awaited = [*partition.in_sync_replicas, *partition.eligible_replicas]
    return f"offline until broker {' or '.join(map(str, awaited))} is back" if awaited else "offline"


# -- JSON


def _document(cluster: ClusterDescription) -> dict[str, Any]:
    live = {broker.node_id: broker for broker in cluster.brokers}
    return {
        "cluster_id": cluster.cluster_id,
        "controller_id": cluster.controller_id,
        "brokers": [
            {
                "node_id": node_id,
                "live": node_id in live,
                "host": live[node_id].host if node_id in live else None,
                "port": live[node_id].port if node_id in live else None,
                "rack": live[node_id].rack if node_id in live else None,
                "leaders": load.leaders,
                "replicas": load.replicas,
                "out_of_sync": load.out_of_sync,
            }
            for node_id, load in cluster.loads().items()
        ],
        "partition_count": len(cluster.partitions),
        "under_replicated": len(cluster.under_replicated),
        "offline": len(cluster.offline),
        "topics": _topics(cluster),
        "partitions": [_partition(each) for each in cluster.partitions],
        "reassignments": None if cluster.reassignments_problem else [_move(each) for each in cluster.reassignments],
    }


def _topics(cluster: ClusterDescription) -> list[dict[str, Any]]:
    by_topic: defaultdict[str, list[PartitionState]] = defaultdict(list)
    for each in cluster.partitions:
        by_topic[each.partition.topic].append(each)
    return [
        {
            "topic": name,
            "partitions": len(partitions),
            "replication_factor": max(len(each.replicas) - len(each.adding_replicas) for each in partitions),
            "under_replicated": sum(each.is_under_replicated for each in partitions),
            "offline": sum(each.is_offline for each in partitions),
        }
        for name, partitions in by_topic.items()
    ]


def _partition(each: PartitionState) -> dict[str, Any]:
    return {
        **each.partition._asdict(),
        "leader": each.leader,
        "preferred_leader": each.preferred_leader,
        "replicas": each.replicas,
        "in_sync_replicas": each.in_sync_replicas,
        "eligible_replicas": each.eligible_replicas,
        "offline_replicas": each.offline_replicas,
        "under_replicated": each.is_under_replicated,
        "offline": each.is_offline,
    }


def _move(each: Reassignment) -> dict[str, Any]:
    return {**each.partition._asdict(), "target": each.target, "adding": each.adding, "removing": each.removing}
