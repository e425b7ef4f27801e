"""`skylog transactions`: lists, describes and aborts transactions, and finds those that hang."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from skylog.cli.confirmation import confirm
from skylog.cli.options import (
    DEFAULT_BOOTSTRAP,
    AsJson,
    Bootstrap,
    Yes,
    parse_duration_ms,
    parse_partitions,
)
from skylog.errors import SkylogError
from skylog.model import TopicPartition
from skylog.printable import escape_controls
from skylog.terminal import note, print_heading, print_json, print_table

if TYPE_CHECKING:
    from skylog.client.transactions import OpenTransaction, TransactionAdmin, TransactionDescription

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="""List, describe and abort transactions.

    [bold]skylog transactions list[/]
    """,
)

Id = Annotated[str, typer.Argument(metavar="ID", help="The transactional id.", show_default=False)]
DEFAULT_AGE: Final = "15m"
OlderThan = Annotated[
    str, typer.Option("--older-than", metavar="DURATION", help="Hanging ones without a message for this long.")
]
Topic = Annotated[
    str | None, typer.Option("--topic", metavar="TOPIC[:0,1]", help="Only these partitions.", show_default=False)
]


@app.command("list")
def list_transactions(
    state: Annotated[
        list[str] | None, typer.Option("--state", help="Only those in this state, such as Ongoing; can be repeated.")
    ] = None,
    json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """List the transactional ids and the state of their last transaction.

    [bold]skylog transactions list --state Ongoing[/]
    """
    found = _admin(bootstrap).list_transactions(state or ())
    if json:
        print_json(
            [
                {
                    "transactional_id": each.transactional_id,
                    "state": each.state,
                    "producer_id": each.producer_id,
                    "coordinator": each.coordinator,
                }
                for each in found
            ]
        )
    elif found:
        cells = [
            (escape_controls(each.transactional_id), each.state, each.producer_id, each.coordinator) for each in found
        ]
        print_table(["ID", "STATE", "PRODUCER", "COORDINATOR"], cells, numbers=["PRODUCER", "COORDINATOR"])
    else:
        note("there are no transactional ids" + (" in this state" if state else ""))


@app.command("describe")
def describe(transactional_id: Id, json: AsJson = False, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP) -> None:
    """Show the state of a transactional id, its producer and the partitions of its transaction.

    [bold]skylog transactions describe billing-1[/]
    """
    found = _admin(bootstrap).describe_transaction(transactional_id)
    if json:
        print_json(_description(found))
        return
    facts = [found.state, f"producer {found.producer_id} epoch {found.producer_epoch}"]
    facts.append(f"timeout {found.timeout_ms / 1000:g} s")
    if found.start_ms is not None:
        facts.append(f"open for {max(time.time() - found.start_ms / 1000, 0):.0f} s")
    print_heading(escape_controls(found.transactional_id), ", ".join(facts))
    if found.partitions:
        print_table(["TOPIC", "PARTITION"], [tuple(each) for each in found.partitions], numbers=["PARTITION"])


def _description(found: TransactionDescription) -> dict[str, Any]:
    return {
        "transactional_id": found.transactional_id,
        "state": found.state,
        "producer_id": found.producer_id,
        "producer_epoch": found.producer_epoch,
        "timeout_ms": found.timeout_ms,
        "start_ms": found.start_ms,
        "partitions": [each._asdict() for each in found.partitions],
    }


@app.command("find-hanging")
def find_hanging(
    topic: Topic = None,
    older_than: OlderThan = DEFAULT_AGE,
    json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Find transactions that are open in a partition and that no coordinator will end.

    They hold back every consumer that reads committed messages. End them with `skylog transactions abort --hanging`.

    [bold]skylog transactions find-hanging --topic orders[/]
    """
    found = _find_hanging(_admin(bootstrap), topic, older_than)
    if json:
        print_json([_open_transaction(each) for each in found])
    else:
        _print_hanging(found)


def _find_hanging(admin: TransactionAdmin, topic: str | None, older_than: str) -> list[OpenTransaction]:
    return admin.find_hanging(_partitions(admin, topic), parse_duration_ms(older_than, "--older-than") / 1000)


def _print_hanging(found: Sequence[OpenTransaction]) -> None:
    if not found:
        note("no transaction hangs")
        return
    cells = [(*each.partition, each.start_offset, each.producer_id, _time(each.last_timestamp_ms)) for each in found]
    headings = ["TOPIC", "PARTITION", "START OFFSET", "PRODUCER", "LAST MESSAGE"]
    print_table(headings, cells, numbers=["PARTITION", "START OFFSET", "PRODUCER"])


@app.command("abort")
def abort(
    transactional_id: Annotated[
        str | None, typer.Argument(metavar="[ID]", help="The transactional id.", show_default=False)
    ] = None,
    topic: Annotated[
        str | None,
        typer.Option("--topic", metavar="TOPIC[:0,1]", help="The partition of a hanging one.", show_default=False),
    ] = None,
    start_offset: Annotated[
        int | None,
        typer.Option("--start-offset", metavar="N", help="The first offset of a hanging one.", show_default=False),
    ] = None,
    hanging: Annotated[bool, typer.Option("--hanging", help="All that find-hanging finds.")] = False,
    older_than: OlderThan = DEFAULT_AGE,
    yes: Yes = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Abort the open transaction of an id and fence its producer, or end hanging ones in their partitions.

    [bold]skylog transactions abort billing-1[/]

    [bold]skylog transactions abort --topic orders:0 --start-offset 4711[/]

    [bold]skylog transactions abort --hanging[/]
    """
    is_by_offset = topic is not None and start_offset is not None
    if (transactional_id is not None) + is_by_offset + hanging != 1 or (
        topic is not None and not is_by_offset and not hanging
    ):
        raise typer.BadParameter("give a transactional id, --topic and --start-offset, or --hanging")
    admin = _admin(bootstrap)
    if hanging:
        _abort_hanging(admin, _find_hanging(admin, topic, older_than), yes)
    elif transactional_id is not None:
        _confirm(f"Abort the transaction of {transactional_id} and fence its producer", yes)
        admin.fence(transactional_id)
        note(f"the producer of {transactional_id} is fenced")
    else:
        assert topic is not None
        _abort_at(admin, topic, start_offset, yes)


def _abort_hanging(admin: TransactionAdmin, found: Sequence[OpenTransaction], yes: bool) -> None:
    _print_hanging(found)
    if found:
        _confirm(f"Abort {'this transaction' if len(found) == 1 else f'these {len(found)} transactions'}", yes)
        for each in found:
            admin.abort(each)
            note(f"the transaction in {each.partition} is aborted")


def _abort_at(admin: TransactionAdmin, topic: str, start_offset: int | None, yes: bool) -> None:
    partitions = _partitions(admin, topic)
    found = [each for each in admin.open_transactions(partitions) if each.start_offset == start_offset]
    if len(found) != 1:
        raise SkylogError(f"no transaction begins at offset {start_offset} of {topic}")
    _confirm(f"Abort the transaction of producer {found[0].producer_id} in {found[0].partition}", yes)
    admin.abort(found[0])
    note(f"the transaction in {found[0].partition} is aborted")


def _confirm(what: str, yes: bool) -> None:
    if not yes:
        confirm(f"{what}?", "aborting cannot be undone", "nothing was aborted")


def _partitions(admin: TransactionAdmin, topic: str | None) -> list[TopicPartition] | None:
    if topic is None:
        return None
    ((name, numbers),) = parse_partitions([topic], "--topic").items()
    return admin.partitions_of(name) if numbers is None else [TopicPartition(name, each) for each in sorted(numbers)]


def _open_transaction(each: OpenTransaction) -> dict[str, Any]:
    return {
        **each.partition._asdict(),
        "start_offset": each.start_offset,
        "producer_id": each.producer_id,
        "producer_epoch": each.producer_epoch,
        "last_timestamp_ms": each.last_timestamp_ms,
    }


def _time(timestamp_ms: int) -> str:
    return datetime.fromtimestamp(timestamp_ms / 1000).isoformat(" ", "seconds")


def _admin(bootstrap: str) -> TransactionAdmin:
    from skylog.client.transactions import TransactionAdmin

    return TransactionAdmin(bootstrap)
