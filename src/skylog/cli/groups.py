"""`skylog groups`: see how far consumer groups are, move them, delete them."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from skylog.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, Yes, parse_partitions, parse_when
from skylog.cli.output import fail, note, print_heading, print_json, print_table, stdout
from skylog.errors import SkylogError
from skylog.printable import escape_controls

if TYPE_CHECKING:
    from skylog.client import ConsumerGroup, ConsumerGroups, GroupMember, OffsetMove, ResetPlan, ResetTo

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="""See how far consumer groups are, move them, delete them.

    [bold]skylog groups describe billing[/]
    """,
)

Group = Annotated[str, typer.Argument(metavar="GROUP", help="The group.", show_default=False)]
Groups = Annotated[list[str], typer.Argument(metavar="GROUP…", help="One or more groups.", show_default=False)]


@app.command("list")
def list_groups(json: AsJson = False, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP) -> None:
    """List the groups, with how many messages they still have to read.

    [bold]skylog groups list[/]
    """
    found = _groups(bootstrap).list_groups()
    if json:
        print_json([_summary(group) | {"members": len(group.members)} for group in found])
    elif found:
        cells = [
            (group.name, group.state, group.protocol or "-", len(group.members), f"{group.lag:,}") for group in found
        ]
        print_table(["GROUP", "STATE", "PROTOCOL", "MEMBERS", "LAG"], cells, numbers=["MEMBERS", "LAG"])
    else:
        note("there are no groups yet; one is made when a consumer with a group.id subscribes or commits")


@app.command("describe")
def describe(names: Groups, json: AsJson = False, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP) -> None:
    """Show how far groups are in each partition, and who reads it.

    The lag is what is still to be read: up to the log's end, from the committed offset or, where nothing was committed,
    from the log's start.

    [bold]skylog groups describe billing[/]
    """
    found = _groups(bootstrap).describe_groups(list(dict.fromkeys(names)))
    if json:
        print_json([_description(group) for group in found])
    else:
        for group in found:
            _print_description(group)


def _summary(group: ConsumerGroup) -> dict[str, Any]:
    return {"group": group.name, "state": group.state, "protocol": group.protocol, "lag": group.lag}


def _description(group: ConsumerGroup) -> dict[str, Any]:
    return _summary(group) | {
        "members": [
            {
                "member_id": member.member_id,
                "client_id": member.client_id,
                "host": member.host,
                "instance_id": member.instance_id,
                "partitions": [key._asdict() for key in member.partitions],
            }
            for member in group.members
        ],
        "partitions": [
            {
                **each.partition._asdict(),
                "committed_offset": each.committed_offset,
                "start_offset": each.offsets.start_offset if each.offsets is not None else None,
                "end_offset": each.offsets.end_offset if each.offsets is not None else None,
                "lag": each.lag,
                "member_id": each.member.member_id if each.member else None,
            }
            for each in group.partitions
        ],
    }


def _print_description(group: ConsumerGroup) -> None:
    count = f"{len(group.members)} member{'' if len(group.members) == 1 else 's'}"
    facts = [group.state, *([group.protocol] if group.protocol else []), count, f"total lag {group.lag:,}"]
    print_heading(group.name, ", ".join(facts))
    rows: list[tuple[object, ...]] = [
        (
            *each.partition,
            _or_dash(each.committed_offset),
            _or_dash(each.offsets.end_offset if each.offsets is not None else None),
            _or_dash(each.lag),
            *_member_cells(each.member),
        )
        for each in group.partitions
    ]
    idle = [member for member in group.members if not member.partitions]
    rows += [("-", "-", "-", "-", "-", *_member_cells(member)) for member in idle]
    columns = ["TOPIC", "PARTITION", "COMMITTED", "END OFFSET", "LAG", "CLIENT", "HOST", "MEMBER"]
    print_table(columns, rows, numbers=["PARTITION", "COMMITTED", "END OFFSET", "LAG"])
    stdout.print()


def _member_cells(member: GroupMember | None) -> tuple[str, str, str]:
    return ("-", "-", "-") if member is None else (member.client_id, member.host, member.member_id)


def _or_dash(number: int | None) -> str:
    return "-" if number is None else str(number)


@app.command("reset")
def reset(
    name: Group,
    to_earliest: Annotated[bool, typer.Option("--to-earliest", help="Read everything again.")] = False,
    to_latest: Annotated[bool, typer.Option("--to-latest", help="Skip what is there.")] = False,
    to_time: Annotated[
        str | None,
        typer.Option("--to-time", metavar="WHEN", help="To the first message since 2024-05-01T12:00, or 30m (ago)."),
    ] = None,
    to_offset: Annotated[int | None, typer.Option("--to-offset", min=0, help="To this offset.")] = None,
    shift_by: Annotated[
        int | None, typer.Option("--shift-by", metavar="N", help="So many further; back, if negative.")
    ] = None,
    topic: Annotated[
        list[str] | None,
        typer.Option(
            "--topic", metavar="TOPIC[:0,1…]", help="A topic, or some partitions of it; may be given many times."
        ),
    ] = None,
    all_topics: Annotated[bool, typer.Option("--all-topics", help="Every partition that `describe` shows.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be done.")] = False,
    yes: Yes = False,
    json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Set the offsets from which a group goes on reading. Its consumers must be stopped.

    What lies outside of the log is moved to its start or end. With --topic the group need not be there yet.

    [bold]skylog groups reset billing --to-time 1h --topic orders --dry-run[/]

    [bold]skylog groups reset billing --shift-by -100 --topic orders:0,3 --yes[/]
    """
    to, value = _target(to_earliest, to_latest, to_time, to_offset, shift_by)
    if bool(topic) == all_topics:
        raise typer.BadParameter("say where: --topic, once or more, or --all-topics")
    wanted = parse_partitions(topic, "--topic") if topic else None
    groups = _groups(bootstrap)
    plan = groups.plan_reset(name, to, value, wanted)
    if not dry_run:
        plan.group.check_inactive()
        if not yes:
            _want_terminal("a reset forgets how far the group was", "look first with --dry-run, then say so with --yes")
    if not json:
        _print_plan(plan)
    where = f"{len(plan.moves)} partition{'' if len(plan.moves) == 1 else 's'}"
    if not dry_run:
        if not yes:
            _ask(f"Reset group {name} in {where}?", "nothing was changed")
        groups.reset(plan)
    if json:
        print_json({"group": name, "dry_run": dry_run, "partitions": [_move(each) for each in plan.moves]})
    note(_outcome(plan) if dry_run else f"reset group '{name}' in {where}")


def _target(
    to_earliest: bool, to_latest: bool, to_time: str | None, to_offset: int | None, shift_by: int | None
) -> tuple[ResetTo, int]:
    from skylog.client import ResetTo

    targets = {
        ResetTo.EARLIEST: 0 if to_earliest else None,
        ResetTo.LATEST: 0 if to_latest else None,
        ResetTo.TIME: None if to_time is None else parse_when(to_time, time.time_ns() // 1_000_000, "--to-time"),
        ResetTo.OFFSET: to_offset,
        ResetTo.SHIFT: shift_by,
    }
    given = [(to, value) for to, value in targets.items() if value is not None]
    if len(given) != 1:
        raise typer.BadParameter("choose one of --to-earliest, --to-latest, --to-time, --to-offset and --shift-by")
    return given[0]


def _print_plan(plan: ResetPlan) -> None:
    columns = ["TOPIC", "PARTITION", "FROM", "TO", "LAG"]
    rows = [
        (*move.partition, _or_dash(move.from_offset), move.to_offset, move.offsets.end_offset - move.to_offset)
        for move in plan.moves
    ]
    print_table(columns, rows, numbers=columns[1:])
    for move in plan.moves:
        if move.is_clamped:
            limits = f"from {move.offsets.start_offset} up to {move.offsets.end_offset}"
            note(f"{move.partition} has the offsets {limits}: {move.to_offset} instead of {move.wanted_offset}")


def _move(move: OffsetMove) -> dict[str, Any]:
    return {
        **move.partition._asdict(),
        "from_offset": move.from_offset,
        "to_offset": move.to_offset,
        "wanted_offset": move.wanted_offset,
        "clamped": move.is_clamped,
    }


def _outcome(plan: ResetPlan) -> str:
    """What to say after a dry run."""
    try:
        plan.group.check_inactive()
    except SkylogError as error:
        return f"nothing was changed, and could not be now: {error}"
    return "nothing was changed: this was a dry run"


@app.command("delete")
def delete(names: Groups, yes: Yes = False, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP) -> None:
    """Delete groups and the offsets they have committed. Their consumers must be stopped.

    [bold]skylog groups delete billing --yes[/]
    """
    groups = _groups(bootstrap)
    unique = list(dict.fromkeys(names))
    found = groups.describe_groups(unique)
    for group in found:
        group.check_inactive()
    if not yes:
        _want_terminal("deleting groups cannot be undone", "say so with --yes")
        count = sum(each.committed_offset is not None for group in found for each in group.partitions)
        _ask(f"Delete {', '.join(unique)} with {count:,} committed offsets?", "nothing was deleted")
    groups.delete_groups(unique)
    note(f"deleted {', '.join(unique)}")


def _want_terminal(danger: str, advice: str) -> None:
    if not sys.stdin.isatty():
        fail(f"{danger}: without a terminal to ask in, {advice}")


def _ask(question: str, refusal: str) -> None:
    if not typer.confirm(escape_controls(question), err=True):
        fail(refusal)


def _groups(bootstrap: str) -> ConsumerGroups:
    from skylog.client import Connection, ConsumerGroups

    return ConsumerGroups(Connection(bootstrap))
