"""The options of `skylog tail`."""

from __future__ import annotations

import time
from typing import Annotated, Final

import typer

from skylog.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, parse_when

DEFAULT_COUNT: Final = 10
INTERRUPTED: Final = 130


def tail(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic to read.", show_default=False)],
    count: Annotated[
        int | None,
        typer.Option(
            "-n",
            "--count",
            min=0,
            help="Number of last messages; with a start position, the maximum number of messages.",
            show_default=str(DEFAULT_COUNT),
        ),
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow/--no-follow", help="Wait for new messages, or stop at the end.")
    ] = True,
    from_beginning: Annotated[bool, typer.Option("--from-beginning", help="Start at the oldest message.")] = False,
    offset: Annotated[int | None, typer.Option("--offset", min=0, help="Start at this offset.")] = None,
    when: Annotated[
        str | None, typer.Option("--time", metavar="WHEN", help="Start at a time: 2024-05-01T12:00, or 30m (ago).")
    ] = None,
    partition: Annotated[
        list[int] | None,
        typer.Option("--partition", min=0, help="Only this partition; can be repeated.", show_default="all"),
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

    Control characters are escaped. Use --json for the exact content.

    [bold]skylog tail orders[/]

    [bold]skylog tail orders --time 1h --no-follow --json[/]
    """
    from skylog.cli.tail.topic_tail import MessagePrinter, StartPosition, TopicTail
    from skylog.client import Connection

    if sum((from_beginning, offset is not None, when is not None)) > 1:
        raise typer.BadParameter("choose one of --from-beginning, --offset and --time")
    timestamp_ms = None if when is None else parse_when(when, time.time_ns() // 1_000_000)
    start = StartPosition(from_beginning, offset, timestamp_ms)
    printer = MessagePrinter(json=json, meta=meta, pretty=pretty)
    topic_tail = TopicTail(Connection(bootstrap), topic, partition, printer)
    try:
        if start.is_given:
            topic_tail.show_from(start, count, follow=follow)
        else:
            topic_tail.show_last(DEFAULT_COUNT if count is None else count, follow=follow)
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None
