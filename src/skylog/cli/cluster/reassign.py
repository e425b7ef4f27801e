"""`skylog cluster reassign`: moves the replicas of topics to other brokers."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Annotated

import typer

from skylog.cli.cluster import moves
from skylog.cli.cluster.moves import DryRun, Order, Throttle
from skylog.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, parse_numbers
from skylog.terminal import note, print_json


def reassign(
    topic: Annotated[
        list[str] | None,
        typer.Option("--topic", metavar="TOPIC", help="A topic to move; can be repeated.", show_default=False),
    ] = None,
    all_topics: Annotated[bool, typer.Option("--all-topics", help="Move all topics, internal ones included.")] = False,
    brokers: Annotated[
        str | None,
        typer.Option(
            "--brokers", metavar="1,2,3", help="The brokers to use, and no others.", show_default="all live brokers"
        ),
    ] = None,
    replication_factor: Annotated[
        int | None,
        typer.Option("--replication-factor", min=1, help="Number of replicas.", show_default="as many as now"),
    ] = None,
    throttle: Throttle = None,
    dry_run: DryRun = False,
    wait: Annotated[
        bool, typer.Option("--wait/--no-wait", help="Wait until it is complete, then remove the throttle.")
    ] = True,
    cancel: Annotated[
        bool, typer.Option("--cancel", help="Cancel the reassignments of the topics that are under way.")
    ] = False,
    json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Spread the replicas of topics evenly over brokers, or change their number.

    Shows the plan first, which copies as few replicas as possible. Producers and consumers continue meanwhile. Ctrl-C
    ends only the waiting: the brokers continue. The same command waits again and removes the throttle at the end.

    [bold]skylog cluster reassign --topic orders --brokers 1,2,3 --dry-run[/]

    [bold]skylog cluster reassign --topic orders --replication-factor 3 --throttle 50MB[/]
    """
    if bool(topic) == all_topics:
        raise typer.BadParameter("choose the topics: --topic, which can be repeated, or --all-topics")
    from skylog.client import ClusterAdmin, Connection

    admin = ClusterAdmin(Connection(bootstrap))
    cluster = admin.describe(topic)
    names = sorted({each.partition.topic for each in cluster.partitions})
    if cancel:
        moves.cancel(admin, cluster.reassignments, names, json=json)
        return
    limit = moves.parse_throttle(throttle)
    usable = None if brokers is None else parse_numbers(brokers, "--brokers")
    plan = admin.plan_reassignment(topic, usable, replication_factor)
    options = {"--brokers": brokers, "--replication-factor": replication_factor, "--throttle": throttle}
    choice = ["--all-topics"] if all_topics else [word for name in topic or () for word in ("--topic", name)]
    again, give_up = _command(choice, options, bootstrap), _command([*choice, "--cancel"], {}, bootstrap)
    if not json and plan.moves:
        moves.print_plan(plan)
    if dry_run:
        if json:
            print_json(moves.document(plan, None, dry_run=True))
        note("dry run: nothing was changed")
        return
    progress = moves.carry_out(admin, plan, cluster.reassignments, Order(limit, names, wait, again, give_up))
    if json:
        print_json(moves.document(plan, progress, dry_run=False))
    if progress is not None:
        moves.report(progress)


def _command(words: list[str], options: Mapping[str, object], bootstrap: str) -> str:
    given = {**options, "--bootstrap": None if bootstrap == DEFAULT_BOOTSTRAP else bootstrap}
    pairs = [word for option, value in given.items() if value is not None for word in (option, str(value))]
    return shlex.join(["skylog", "cluster", "reassign", *words, *pairs])
