"""`skylog replay`: copies a range of a topic into another topic."""

from __future__ import annotations

import re
import shlex
import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from skylog.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, CodecName, parse_when
from skylog.cli.stop_signals import stopped_by_signals
from skylog.errors import SkylogError
from skylog.terminal import fail, note, print_json, stderr

if TYPE_CHECKING:
    from rich.progress import Progress

    from skylog.client import Place, Replay, ReplayPlan

INTERRUPTED: Final = 130

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_OFFSETS: Final = re.compile(r"\d+:\d+(?:,\d+:\d+)*", re.ASCII)
_OFFSET: Final = re.compile(r"\d+", re.ASCII)


def replay(
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="The topic to read.", show_default=False)],
    start: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="WHERE",
            help="The first message: an offset, 0:OFFSET,1:OFFSET by partition, start, or a time: "
            "2024-05-01T12:00, or 30m (ago).",
            show_default=False,
        ),
    ],
    into: Annotated[
        str | None,
        typer.Option(
            "--into",
            metavar="TOPIC",
            help="The target topic; created with the same number of partitions if it does not exist.",
            show_default=False,
        ),
    ] = None,
    back: Annotated[
        bool,
        typer.Option("--back", help="Send dead letters back to the topics that they came from, instead of --into."),
    ] = False,
    end: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="WHERE",
            help="The end of the range (exclusive), in the same forms; end is the current end of the log.",
        ),
    ] = "end",
    partition: Annotated[
        list[int] | None,
        typer.Option("--partition", min=0, help="Only this partition; can be repeated.", show_default="all"),
    ] = None,
    rate: Annotated[
        int | None, typer.Option("--rate", min=1, help="Maximum messages per second.", show_default="no limit")
    ] = None,
    keep_partitions: Annotated[
        bool | None,
        typer.Option(
            "--keep-partitions/--by-key",
            help="Choose the partition with the same number, or by key.",
            show_default="same number if both topics have as many",
        ),
    ] = None,
    codec: Annotated[CodecName, typer.Option("--codec", help="Compression codec.")] = CodecName.NONE,
    json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    into_bootstrap: Annotated[
        str | None,
        typer.Option(
            "--into-bootstrap", metavar="HOST:PORT", help="The cluster of the target topic.", show_default="--bootstrap"
        ),
    ] = None,
) -> None:
    """Copy a range of a topic's messages, with their keys, headers and timestamps.

    The range is fixed at the start, so a topic can be replayed into itself. Retention uses the original timestamps, so
    the target topic may soon delete old messages. Ctrl-C stops the replay and prints the command that continues it.

    [bold]skylog replay orders --from 2h --into orders-again[/]

    [bold]skylog replay orders --from 1200 --to 1300 --partition 0 --into debug --rate 100[/]

    [bold]skylog replay orders.dead --from start --back[/]
    """
    from skylog.client import Admin, Connection, Replay, plan_replay, plan_return

    if (into is None) is not back:
        raise typer.BadParameter("choose one: --into TOPIC, or --back for dead letters", param_hint="--into")
    now_ms = time.time_ns() // 1_000_000
    places = _place(start, now_ms, "--from"), _place(end, now_ms, "--to")
    origin, destination = Connection(bootstrap), Connection(into_bootstrap or bootstrap)
    if into is None:
        plan = plan_return(
            Admin(origin),
            source,
            start=places[0],
            end=places[1],
            partitions=partition,
            keep_partitions=keep_partitions is not False,
        )
    else:
        plan = plan_replay(
            Admin(origin),
            Admin(destination),
            source,
            into,
            start=places[0],
            end=places[1],
            partitions=partition,
            keep_partitions=keep_partitions,
        )
    if source == into and origin.bootstrap == destination.bootstrap:
        note(f"'{source}' is replayed into itself: its consumers will receive these messages again")
    running = Replay(plan, origin, destination, rate_limit=rate, codec=codec.value)
    failure: SkylogError | None = None
    try:
        _run(running)
    except SkylogError as error:
        failure = error
    _report(running, json=json)
    if not running.is_complete:
        options: dict[str, object] = {"--rate": rate, "--bootstrap": bootstrap, "--into-bootstrap": into_bootstrap}
        options |= {"--codec": codec.value}
        note(f"continue with: {_continuation(running, options)}")
        if failure is not None:
            fail(f"{failure}; if you continue, the last messages may be duplicated")
        fail("interrupted", INTERRUPTED)


def _place(text: str, now_ms: int, option: str) -> Place:
    from skylog.client import LogEdge

    if text in ("start", "end"):
        return LogEdge(text)
    if _OFFSET.fullmatch(text):
        return int(text)
    if _OFFSETS.fullmatch(text):
        pairs = (item.split(":") for item in text.split(","))
        return {int(partition): int(offset) for partition, offset in pairs}
    try:
        return _EPOCH + timedelta(milliseconds=parse_when(text, now_ms, option))
    except typer.BadParameter as error:
        raise typer.BadParameter(f"{error.message}; or an offset, start or end", param_hint=option) from None


def _run(running: Replay) -> None:
    """Run to the end or the first signal. A second signal ends the command at once."""
    plan = running.plan
    start_offsets = sum(offsets.start_offset for offsets in plan.ranges.values())
    with stopped_by_signals(running.stop), _progress_bar() as bar:
        task = bar.add_task(f"{plan.source} → {plan.target}", total=plan.offset_count, rate="")
        for progress in running.run():
            covered = sum(progress.next_offsets.values()) - start_offsets
            speed = progress.messages / max(progress.elapsed_s, 1e-9)
            bar.update(task, completed=covered, rate=f"{speed:,.0f} messages/s")


def _progress_bar() -> Progress:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}", markup=False),
        TimeRemainingColumn(),
        console=stderr,
        transient=True,
        disable=not stderr.is_terminal,
    )


def _report(running: Replay, *, json: bool) -> None:
    progress = running.progress
    if json:
        print_json(_as_object(running.plan, running))
    speed = progress.messages / max(progress.elapsed_s, 1e-9)
    how = "to the same partitions" if running.plan.keeps_partitions else "by key"
    target = running.plan.target if running.plan.is_back else f"'{running.plan.target}'"
    note(
        f"replayed {progress.messages:,} messages of '{running.plan.source}' into {target}, {how}, "
        f"in {progress.elapsed_s:.2f} s ({speed:,.0f} messages/s)"
    )


def _as_object(plan: ReplayPlan, running: Replay) -> dict[str, Any]:
    progress = running.progress
    return {
        "source": plan.source,
        "into": None if plan.is_back else plan.target,
        "created": plan.new_partitions is not None,
        "keeps_partitions": plan.keeps_partitions,
        "complete": running.is_complete,
        "messages": progress.messages,
        "elapsed_s": round(progress.elapsed_s, 3),
        "partitions": [
            {
                "partition": key.partition,
                "start_offset": offsets.start_offset,
                "end_offset": offsets.end_offset,
                "next_offset": progress.next_offsets[key.partition],
            }
            for key, offsets in plan.ranges.items()
        ],
    }


def _continuation(running: Replay, options: dict[str, object]) -> str:
    """Return the command that copies the rest."""
    plan, next_offsets = running.plan, running.progress.next_offsets
    left = {
        key.partition: offsets
        for key, offsets in plan.ranges.items()
        if next_offsets[key.partition] < offsets.end_offset
    }
    words = ["skylog", "replay", plan.source]
    words += ["--from", ",".join(f"{number}:{next_offsets[number]}" for number in left)]
    words += ["--to", ",".join(f"{number}:{offsets.end_offset}" for number, offsets in left.items())]
    words += ["--back"] if plan.is_back else ["--into", plan.target]
    words += ["--keep-partitions" if plan.keeps_partitions else "--by-key"]
    for option, value in options.items():
        if value not in (None, DEFAULT_BOOTSTRAP, CodecName.NONE.value):
            words += [option, str(value)]
    return shlex.join(words)
