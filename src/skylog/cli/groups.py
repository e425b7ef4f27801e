"""`skylog groups`: lists, describes, resets and deletes consumer groups."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from skylog.cli.confirmation import ask, require_terminal
from skylog.cli.denials import seen_with_login
from skylog.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, Yes, parse_partitions, parse_when
from skylog.errors import SkylogError
from skylog.terminal import note, print_heading, print_json, print_table, stdout

if TYPE_CHECKING:
    from skylog.client import ConsumerGroup, ConsumerGroups, GroupMember, OffsetMove, ResetPlan, ResetTo

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="""List, describe, reset and delete consumer groups.

    [bold]skylog groups describe billing[/]
    """,
)

Group = Annotated[str, typer.Argument(metavar="GROUP", help="The group.", show_default=False)]
Groups = Annotated[list[str], typer.Argument(metavar="GROUP…", help="One or more groups.", show_default=False)]


@app.command("list")
def list_groups(json: AsJson = False, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP) -> None:
    """List the groups and their lag.

    [bold]skylog groups list[/]
    """
    found = _groups(bootstrap).list_groups()
    if json:
        print_json([_summary(group) | {"members": len(group.members)} for group in found])
    elif found:
        cells = [
            (group.name, group.type, group.state, group.protocol or "-", len(group.members), f"{group.lag:,}")
            for group in found
        ]
        columns = ["GROUP", "TYPE", "STATE", "PROTOCOL", "MEMBERS", "LAG"]
        print_table(columns, cells, numbers=["MEMBERS", "LAG"])
    else:
        created = "a group is created when a consumer with a group.id subscribes or commits"
        note(f"there are no groups{seen_with_login()}; {created}")


@app.command("describe")
def describe(names: Groups, json: AsJson = False, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP) -> None:
    """Show the committed offset, lag and member of each partition, and the epochs of a consumer group.

    The lag is the distance from the committed offset to the log's end. Without a committed offset it counts from the
    log's start.

    [bold]skylog groups describe billing[/]
    """
    found = _groups(bootstrap).describe_groups(list(dict.fromkeys(names)))
    if json:
        print_json([_description(group) for group in found])
    else:
        for group in found:
            _print_description(group)


def _summary(group: ConsumerGroup) -> dict[str, Any]:
    return {
        "group": group.name,
        "type": group.type,
        "state": group.state,
        "protocol": group.protocol,
        "lag": group.lag,
    }


def _description(group: ConsumerGroup) -> dict[str, Any]:
    return _summary(group) | {
        "epoch": group.epoch,
        "target_epoch": group.target_epoch,
        "members": [
            {
                "member_id": member.member_id,
                "client_id": member.client_id,
                "host": member.host,
                "instance_id": member.instance_id,
                "partitions": [key._asdict() for key in member.partitions],
                "target": None if member.target is None else [key._asdict() for key in member.target],
                "epoch": member.epoch,
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
    facts = [group.state, *([group.protocol] if group.protocol else []), count]
    if group.type == "consumer":
        facts.insert(0, "consumer protocol")
    if group.epoch is not None:
        facts.append(f"epoch {group.epoch}, assignment epoch {group.target_epoch}")
    facts.append(f"total lag {group.lag:,}")
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
    _print_progress(group)


def _print_progress(group: ConsumerGroup) -> None:
    """Print the members of a consumer group that have not reached their target assignment."""
    late = [member for member in group.members if member.target is not None and member.target != member.partitions]
    if late:
        rows = [
            (member.member_id, _or_dash(member.epoch), len(member.partitions), len(member.target or ()))
            for member in late
        ]
        columns = ["MEMBER", "EPOCH", "ASSIGNED", "TARGET"]
        print_table(columns, rows, numbers=columns[1:])
        stdout.print()


def _member_cells(member: GroupMember | None) -> tuple[str, str, str]:
    return ("-", "-", "-") if member is None else (member.client_id, member.host, member.member_id)


def _or_dash(number: int | None) -> str:
    return "-" if number is None else str(number)


@app.command("reset")
def reset(
    name: Group,
    to_earliest: Annotated[bool, typer.Option("--to-earliest", help="To the start of the log.")] = False,
    to_latest: Annotated[bool, typer.Option("--to-latest", help="To the end of the log.")] = False,
    to_time: Annotated[
        str | None,
        typer.Option(
            "--to-time", metavar="WHEN", help="To the first message at or after 2024-05-01T12:00, or 30m (ago)."
        ),
    ] = None,
    to_offset: Annotated[int | None, typer.Option("--to-offset", min=0, help="To this offset.")] = None,
    shift_by: Annotated[
        int | None, typer.Option("--shift-by", metavar="N", help="Forward by N messages, or backward if N is negative.")
    ] = None,
    topic: Annotated[
        list[str] | None,
        typer.Option("--topic", metavar="TOPIC[:0,1…]", help="A topic, or some of its partitions; can be repeated."),
    ] = None,
    all_topics: Annotated[bool, typer.Option("--all-topics", help="All partitions that `describe` shows.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the changes without making them.")] = False,
    yes: Yes = False,
    json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Set the committed offsets of a group. Its consumers must be stopped.

    Offsets outside the log are moved to its start or end. With --topic, the group does not have to exist.

    [bold]skylog groups reset billing --to-time 1h --topic orders --dry-run[/]

    [bold]skylog groups reset billing --shift-by -100 --topic orders:0,3 --yes[/]
    """
    to, value = _target(to_earliest, to_latest, to_time, to_offset, shift_by)
    if bool(topic) == all_topics:
        raise typer.BadParameter("choose the partitions: --topic, which can be repeated, or --all-topics")
    partitions = parse_partitions(topic, "--topic") if topic else None
    groups = _groups(bootstrap)
    plan = groups.plan_reset(name, to, value, partitions)
    if not dry_run:
        plan.group.check_inactive()
        if not yes:
            require_terminal("a reset replaces the committed offsets", "check with --dry-run, then confirm with --yes")
    if not json:
        _print_plan(plan)
    where = f"{len(plan.moves)} partition{'' if len(plan.moves) == 1 else 's'}"
    if not dry_run:
        if not yes:
            ask(f"Reset group {name} in {where}?", "nothing was changed")
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
            limits = f"from {move.offsets.start_offset} to {move.offsets.end_offset}"
            note(f"{move.partition} has offsets {limits}: {move.wanted_offset} was changed to {move.to_offset}")


def _move(move: OffsetMove) -> dict[str, Any]:
    return {
        **move.partition._asdict(),
        "from_offset": move.from_offset,
        "to_offset": move.to_offset,
        "wanted_offset": move.wanted_offset,
        "clamped": move.is_clamped,
    }


def _outcome(plan: ResetPlan) -> str:
    """Return the note after a dry run."""
    try:
        plan.group.check_inactive()
    except SkylogError as error:
        return f"dry run: nothing was changed; the reset would fail now: {error}"
    return "dry run: nothing was changed"


@app.command("delete")
def delete(names: Groups, yes: Yes = False, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP) -> None:
    """Delete groups and their committed offsets. Their consumers must be stopped.

    [bold]skylog groups delete billing --yes[/]
    """
    groups = _groups(bootstrap)
    unique = list(dict.fromkeys(names))
    found = groups.describe_groups(unique)
    for group in found:
        group.check_inactive()
    if not yes:
        require_terminal("deleting groups cannot be undone")
        count = sum(each.committed_offset is not None for group in found for each in group.partitions)
        ask(f"Delete {', '.join(unique)} with {count:,} committed offsets?", "nothing was deleted")
    groups.delete_groups(unique)
    note(f"deleted {', '.join(unique)}")


def _groups(bootstrap: str) -> ConsumerGroups:
    from skylog.client import Connection, ConsumerGroups

    return ConsumerGroups(Connection(bootstrap))
