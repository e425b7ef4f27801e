"""The command: its options, what it says before and after, and its exit code."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from skylog.cli.demo.places import EVENTS
from skylog.cli.output import note, stdout, write
from skylog.errors import SkylogError

if TYPE_CHECKING:
    from skylog.cli.demo.ending import Ending
    from skylog.cli.demo.places import Places
    from skylog.cli.demo.story import Story

NOT_BALANCED: Final = 1
ABORTED: Final = 130
SECONDS_WITHOUT_TERMINAL: Final = 90.0


def demo(
    seconds: Annotated[
        float | None,
        typer.Option(
            "--seconds",
            min=1,
            metavar="N",
            help="How long the website has visitors.",
            show_default="until Ctrl-C; 90 without a terminal",
        ),
    ] = None,
    rate: Annotated[float, typer.Option("--rate", min=1, max=50_000, help="Events per second.")] = 500,
    data_dir: Annotated[
        Path, typer.Option("--data-dir", help="Where everything is kept; a second run goes on with it.")
    ] = Path("data"),
    port: Annotated[
        int, typer.Option("--port", min=0, max=65535, help="Port of the broker; 0 picks a free one.")
    ] = 9092,
) -> None:
    """Show everything at once: a broker, a website's events, and the data pipeline on Spark.

    At the end every tier's counts are compared. Exits with 0 if what was produced was stored, consumed and landed, and
    with 1 if not. Wants Java and [bold]pip install 'skylog\\[spark]'[/].

    [bold]skylog demo[/]

    [bold]skylog demo --seconds 30 --rate 2000 --port 0[/]
    """
    from skylog.cli.demo.ending import Ending
    from skylog.cli.demo.story import Story
    from skylog.cli.requirements import check_requirements

    if seconds is None and not stdout.is_terminal:
        seconds = SECONDS_WITHOUT_TERMINAL
    check_requirements()
    ending = Ending(seconds)
    story = Story(_make_places(data_dir), port, rate)
    try:
        is_balanced = _tell(story, ending, seconds)
    except KeyboardInterrupt:
        story.abort()
        note("aborted; nothing that was stored is lost")
        sys.stdout.flush()
        # Threads and clients would wait for a broker that is gone, in order to send what is left.
        os._exit(ABORTED)
    _print_end(story.places, is_balanced=is_balanced)
    if not is_balanced:
        raise typer.Exit(NOT_BALANCED)


def _make_places(data_dir: Path) -> Places:
    from skylog.cli.demo.places import Places

    try:
        data_dir.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SkylogError(f"cannot make --data-dir {data_dir}: {error.strerror}") from error
    return Places(data_dir)


def _tell(story: Story, ending: Ending, seconds: float | None) -> bool:
    """The whole of it; whether the books balance. Whatever fails, nothing is left running."""
    try:
        story.start_broker()
        limit = "" if seconds is None else f"it ends after {seconds:g} s; "
        note(f"broker at {story.bootstrap}, everything under {story.places.root}")
        note(f"in the browser: {story.console_url}")
        note(f"{limit}Ctrl-C ends it in good order, a second one at once")
        return story.run(ending)
    except Exception:
        story.close()
        raise


def _print_end(places: Places, *, is_balanced: bool) -> None:
    if is_balanced:
        stdout.print("[bold green]balanced:[/] produced = stored = consumed = landed\n")
    else:
        stdout.print("[bold red]not balanced:[/] the verdicts above say what is missing, and where\n")
    root = places.root
    write(
        "Look further:\n"
        f"  skylog serve --data-dir {places.broker}     and in another terminal\n"
        f"  skylog audit show --topic {EVENTS}; skylog groups list; skylog tail {EVENTS}\n"
        f"  sqlite3 {places.visits} 'SELECT * FROM visits ORDER BY visits DESC'\n"
        f"  duckdb -c \"SELECT event, count(*) FROM '{places.table}/event_date=*/*/*.parquet' GROUP BY event\"\n"
        f"  less {places.spark_log}     what Spark had to say\n"
        f"  rm -r {root}     to begin anew\n"
    )
