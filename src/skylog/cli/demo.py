"""`skylog demo`: the options, the messages before and after the run, and the exit code."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from skylog.cli.search import print_answer
from skylog.demo.layout import EVENTS
from skylog.errors import SkylogError
from skylog.search_index import search
from skylog.terminal import note, stdout, write

if TYPE_CHECKING:
    from skylog.demo.layout import Layout
    from skylog.demo.run import DemoRun
    from skylog.demo.stop_condition import StopCondition

NOT_BALANCED: Final = 1
ABORTED: Final = 130
SECONDS_WITHOUT_TERMINAL: Final = 90.0
KILL_AFTER_S: Final = 30.0
QUERY: Final = "comet years"
_ANSWERS: Final = 3


def demo(
    seconds: Annotated[
        float | None,
        typer.Option(
            "--seconds",
            min=1,
            metavar="N",
            help="How long the website sends events.",
            show_default="until Ctrl-C; 90 without a terminal",
        ),
    ] = None,
    rate: Annotated[float, typer.Option("--rate", min=1, max=50_000, help="Events per second.")] = 500,
    data_dir: Annotated[
        Path, typer.Option("--data-dir", help="Directory for all files; a second run continues with them.")
    ] = Path("data"),
    port: Annotated[
        int, typer.Option("--port", min=0, max=65535, help="Port of the first broker; 0 picks a free one.")
    ] = 9092,
    brokers: Annotated[
        int,
        typer.Option(
            "--brokers", min=1, max=9, help="Brokers; of several, one is killed in the middle and comes back."
        ),
    ] = 1,
    secure: Annotated[
        bool, typer.Option("--secure", help="Everything logs in, over TLS, and has only the rights that it needs.")
    ] = False,
) -> None:
    """Run the whole system on this machine: a broker or a cluster, a website's events, and the data pipeline on Spark.

    At the end the counts of all tiers are compared. Exits with 0 if everything that was produced was also stored,
    consumed and landed, and with 1 otherwise. Requires Java 17 and [bold]pip install 'skylog\\[spark]'[/].

    [bold]skylog demo[/]

    [bold]skylog demo --seconds 30 --rate 2000 --port 0[/]

    [bold]skylog demo --brokers 3 --secure[/]
    """
    from skylog.cli.requirements import check_requirements
    from skylog.demo.run import DemoRun
    from skylog.demo.stop_condition import StopCondition

    if seconds is None and not stdout.is_terminal:
        seconds = SECONDS_WITHOUT_TERMINAL
    check_requirements()
    stop_condition = StopCondition(seconds)
    kill_after_s = KILL_AFTER_S if seconds is None else min(seconds / 2, KILL_AFTER_S)
    run = DemoRun(_make_layout(data_dir), brokers, port, rate, kill_after_s, is_secure=secure)
    try:
        is_balanced = _run(run, stop_condition, seconds, brokers)
    except KeyboardInterrupt:
        run.abort()
        note("aborted; no stored message is lost")
        sys.stdout.flush()
        # A normal exit would wait for threads and clients that try to send their queues to the killed broker.
        os._exit(ABORTED)
    _print_result(run, brokers, is_balanced=is_balanced)
    if not is_balanced:
        raise typer.Exit(NOT_BALANCED)


def _make_layout(data_dir: Path) -> Layout:
    from skylog.demo.layout import Layout

    try:
        data_dir.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SkylogError(f"cannot create --data-dir {data_dir}: {error.strerror}") from error
    return Layout(data_dir)


def _run(run: DemoRun, stop_condition: StopCondition, seconds: float | None, brokers: int) -> bool:
    """Run the demo and return whether the counts balance. After an exception no child process is left running."""
    try:
        if brokers > 1:
            note(f"starting ZooKeeper and {brokers} brokers")
        run.start_servers()
        limit = "" if seconds is None else f"the demo ends after {seconds:g} s; "
        note(f"broker{'s' * (brokers > 1)} at {run.bootstrap}, all files in {run.layout.root}")
        if run.access.folder is not None:
            note(f"everything logs in over TLS; commands do with SKYLOG_CONFIG={run.access.client_file()}")
        login = "" if run.access.folder is None else " (log in as admin, with the password of that file)"
        note(f"console: {run.console_url}{login}")
        note(f"{limit}Ctrl-C stops it cleanly, a second Ctrl-C kills it")
        return run.run(stop_condition)
    except Exception:
        run.close()
        raise


def _print_result(run: DemoRun, brokers: int, *, is_balanced: bool) -> None:
    layout, access = run.layout, run.access
    if is_balanced:
        stdout.print("[bold green]balanced:[/] produced = stored = consumed = landed\n")
    else:
        stdout.print("[bold red]not balanced:[/] the table above shows what is missing, and where\n")
    write(f"skylog search {QUERY} --index {layout.search}\n")
    print_answer(search(layout.search, QUERY, _ANSWERS))
    write("\n")
    command = f"serve --data-dir {layout.broker}" if brokers == 1 else f"cluster up --data-dir {layout.cluster}"
    if access.server_file is not None and brokers == 1:
        command += f" --config {access.server_file}"
    login = "" if access.folder is None else f"  export SKYLOG_CONFIG={access.client_file()}\n"
    write(
        "Next steps:\n"
        f"  skylog {command}     and in another terminal\n{login}"
        f"  skylog audit show --topic {EVENTS}; skylog groups list; skylog tail {EVENTS}\n"
        f"  sqlite3 {layout.visits} 'SELECT * FROM visits ORDER BY visits DESC'\n"
        f"  duckdb -c \"SELECT event, count(*) FROM delta_scan('{layout.table}') GROUP BY event\"\n"
        f"  less {layout.spark_log}     the log of Spark and the jobs\n"
        f"  rm -r {layout.root}     to start over\n"
    )
