"""`skylog tail`: show the messages of a topic, and follow it."""

from __future__ import annotations

import time
from typing import Annotated, Final

import typer

from skylog.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, parse_when

DEFAULT_COUNT: Final = 10
INTERRUPTED: Final = 130


def tail(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="What to read.", show_default=False)],
    count: Annotated[
        int | None,
        typer.Option(
            "-n",
            "--count",
            min=0,
            help="How many of the last messages; with a start given, stop after so many.",
            show_default=str(DEFAULT_COUNT),
        ),
    ] = None,
    follow: Annotated[bool, typer.Option("--follow/--no-follow", help="Wait for more, or end at the end.")] = True,
    from_beginning: Annotated[bool, typer.Option("--from-beginning", help="Start at the oldest message.")] = False,
    offset: Annotated[int | None, typer.Option("--offset", min=0, help="Start at this offset.")] = None,
    when: Annotated[
        str | None, typer.Option("--time", metavar="WHEN", help="Start at a time: 2024-05-01T12:00, or 30m (ago).")
    ] = None,
    partition: Annotated[
        list[int] | None,
        typer.Option("--partition", min=0, help="Only this one; may be given many times.", show_default="all"),
    ] = None,
    meta: Annotated[
        bool | None,
        typer.Option(
            "--meta/--no-meta",
            help="Show partition:offset, time, key and headers before each value.",
            show_default="in a terminal",
        ),
    ] = None,
    pretty: Annotated[
        bool | None,
        typer.Option("--pretty/--no-pretty", help="Indent JSON values.", show_default="in a terminal"),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object per message, for scripts.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Show the last messages of a topic, and follow it until Ctrl-C.

    Control characters in messages are shown as escapes; use --json for the exact content.

    [bold]skylog tail orders[/]

    [bold]skylog tail orders --time 1h --no-follow --json[/]
    """
    from skylog.cli.following import Following, Printer, Start
    from skylog.client import Connection

    if sum((from_beginning, offset is not None, when is not None)) > 1:
        raise typer.BadParameter("choose one of --from-beginning, --offset and --time")
    timestamp_ms = None if when is None else parse_when(when, time.time_ns() // 1_000_000)
    start = Start(from_beginning, offset, timestamp_ms)
    following = Following(Connection(bootstrap), topic, partition, Printer(json=json, meta=meta, pretty=pretty))
    try:
        if start.is_given:
            following.show_from(start, count, follow=follow)
        else:
            following.show_last(DEFAULT_COUNT if count is None else count, follow=follow)
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None
