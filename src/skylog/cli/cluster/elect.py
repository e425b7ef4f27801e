"""`skylog cluster elect`: moves leaders."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from skylog.cli.confirmation import confirm
from skylog.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, Yes
from skylog.model import TopicPartition
from skylog.terminal import fail, note, print_json, print_table

if TYPE_CHECKING:
    from skylog.client import ClusterAdmin, Election


def elect(
    topic: Annotated[
        str | None,
        typer.Option("--topic", metavar="TOPIC", help="Only this topic.", show_default="all topics"),
    ] = None,
    partition: Annotated[
        list[int] | None,
        typer.Option("--partition", min=0, help="Only this partition; can be repeated.", show_default="all"),
    ] = None,
    leader: Annotated[
        int | None,
        typer.Option("--leader", min=0, metavar="BROKER", help="Make this broker the leader of one partition."),
    ] = None,
    unclean: Annotated[
        bool,
        typer.Option(
            "--unclean", help="Elect any live replica where there is no leader. Messages that it lacks are lost."
        ),
    ] = False,
    yes: Yes = False,
    json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Move leaders back to the preferred replicas, the first in the list of each partition.

    A preferred replica must be in sync. Use this after a broker was away, to spread the load again.

    --leader makes a replica in sync the leader. Kafka's protocol has no request for that. So it is a reassignment that
    puts the broker first in the list of replicas, which copies nothing, and an election of the preferred replica.

    [bold]skylog cluster elect[/]

    [bold]skylog cluster elect --topic orders --partition 0 --leader 2[/]
    """
    if partition and topic is None:
        raise typer.BadParameter("needs --topic", param_hint="--partition")
    if leader is not None and (unclean or topic is None or len(partition or ()) != 1):
        raise typer.BadParameter("needs --topic and one --partition, without --unclean", param_hint="--leader")
    from skylog.client import ClusterAdmin, Connection

    admin = ClusterAdmin(Connection(bootstrap))
    wanted = _partitions(admin, topic, partition)
    if leader is not None and wanted is not None:
        elections = [each for each in [admin.make_leader(wanted[0], leader)] if each.leader != each.former_leader]
    else:
        if unclean and not yes:
            _confirm(admin, wanted)
        elections = admin.elect_leaders(wanted, unclean=unclean)
        if unclean and any(each.error is None for each in elections):
            note("the end of a transaction may be lost, too; after 15 minutes run: skylog transactions find-hanging")
    _report(elections, json=json)


def _partitions(admin: ClusterAdmin, topic: str | None, numbers: list[int] | None) -> list[TopicPartition] | None:
    if topic is None:
        return None
    if numbers:
        return [TopicPartition(topic, number) for number in dict.fromkeys(numbers)]
    return [each.partition for each in admin.describe([topic]).partitions]


def _confirm(admin: ClusterAdmin, wanted: list[TopicPartition] | None) -> None:
    offline = [each.partition for each in admin.describe().offline if wanted is None or each.partition in wanted]
    if not offline:
        return
    names = ", ".join(map(str, offline[:5])) + (f" and {len(offline) - 5} more" if len(offline) > 5 else "")
    confirm(f"Elect leaders of {names}, even if messages are lost?", "an unclean election can lose messages")


def _report(elections: list[Election], *, json: bool) -> None:
    failed = [each for each in elections if each.error is not None]
    if json:
        print_json([_document(each) for each in elections])
    elif elections:
        rows = [
            (*each.partition, _id(each.former_leader), "-" if each.error else _id(each.leader), each.error or "-")
            for each in elections
        ]
        print_table(["TOPIC", "PARTITION", "FROM", "TO", "ERROR"], rows, numbers=["PARTITION", "FROM", "TO"])
    moved = sum(each.error is None and each.leader != each.former_leader for each in elections)
    note(f"{moved} leader{'' if moved == 1 else 's'} moved" if elections else "no election was needed")
    if failed:
        fail(
            f"{len(failed)} election{'' if len(failed) == 1 else 's'} failed; start the missing brokers, or wait until "
            "their replicas are in sync: skylog cluster describe"
        )


def _id(node_id: int) -> str:
    return "none" if node_id < 0 else str(node_id)


def _document(election: Election) -> dict[str, Any]:
    return {
        **election.partition._asdict(),
        "from_leader": election.former_leader,
        "to_leader": election.leader,
        "error": None if election.error is None else str(election.error),
    }
