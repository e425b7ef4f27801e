"""`skylog cluster registry`: brokers, consumers, owners and offsets, the four registries of the Kafka paper."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from skylog.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap
from skylog.terminal import print_heading, print_json, print_table, stdout

if TYPE_CHECKING:
    from skylog.client import ClusterDescription, ConsumerGroup

Row = dict[str, Any]

_MAX_NAMES: Final = 5
_PLACES: Final = {
    "brokers": "in the metadata store: an entry of each live broker",
    "consumers": "in the memory of each group's coordinator: the members, and the topics assigned to them",
    "owners": "in the memory of each group's coordinator: the member that reads a partition",
    "offsets": "in the topic __consumer_offsets: what each group has committed",
}


def registry(json: AsJson = False, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP) -> None:
    """Show the four registries of the Kafka paper: brokers, consumers, owners and offsets.

    The paper kept all of them in ZooKeeper. The headings say where they are kept today.

    [bold]skylog cluster registry[/]

    [bold]skylog cluster registry --json[/]
    """
    from skylog.client import ClusterAdmin, Connection, ConsumerGroups

    connection = Connection(bootstrap)
    cluster = ClusterAdmin(connection).describe()
    groups = ConsumerGroups(connection).list_groups()
    registries = {
        "brokers": _brokers(cluster),
        "consumers": _consumers(groups),
        "owners": _owners(groups),
        "offsets": _offsets(groups),
    }
    if json:
        print_json(registries)
    else:
        for name, rows in registries.items():
            _print(name, rows)


def _brokers(cluster: ClusterDescription) -> list[Row]:
    held: dict[int, dict[str, list[int]]] = {}
    for each in cluster.partitions:
        for node_id in each.replicas:
            held.setdefault(node_id, {}).setdefault(each.partition.topic, []).append(each.partition.partition)
    return [
        {
            "broker": broker.node_id,
            "host": broker.host,
            "port": broker.port,
            "rack": broker.rack,
            "topics": held.get(broker.node_id, {}),
        }
        for broker in cluster.brokers
    ]


def _consumers(groups: Iterable[ConsumerGroup]) -> list[Row]:
    return [
        {
            "group": group.name,
            "member_id": member.member_id,
            "client_id": member.client_id,
            "host": member.host,
            "topics": sorted({key.topic for key in member.partitions}),
        }
        for group in groups
        for member in group.members
    ]


def _owners(groups: Iterable[ConsumerGroup]) -> list[Row]:
    return [
        {"group": group.name, **each.partition._asdict(), "member_id": each.member.member_id}
        for group in groups
        for each in group.partitions
        if each.member is not None
    ]


def _offsets(groups: Iterable[ConsumerGroup]) -> list[Row]:
    return [
        {"group": group.name, **each.partition._asdict(), "offset": each.committed_offset, "lag": each.lag}
        for group in groups
        for each in group.partitions
        if each.committed_offset is not None
    ]


def _print(name: str, rows: list[Row]) -> None:
    print_heading(name, _PLACES[name])
    if rows:
        numbers = ("BROKER", "PORT", "PARTITION", "OFFSET", "LAG")
        columns = [key.replace("_", " ").upper() for key in rows[0]]
        print_table(columns, [[_cell(value) for value in row.values()] for row in rows], numbers=numbers)
    else:
        stdout.print("none", style="dim")
    stdout.print()


def _cell(value: Any) -> str:
    if isinstance(value, dict):
        return _shortened([f"{name}:{','.join(map(str, numbers))}" for name, numbers in value.items()])
    if isinstance(value, list):
        return _shortened(value)
    return "-" if value is None else str(value)


def _shortened(names: list[str]) -> str:
    more = len(names) - _MAX_NAMES
    return " ".join(names[:_MAX_NAMES]) + (f" and {more} more" if more > 0 else "") or "-"
