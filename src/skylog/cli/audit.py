"""`skylog audit`: compares the counts of all tiers."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from skylog.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, parse_duration_ms, parse_when
from skylog.printable import escape_controls, iso_time
from skylog.terminal import fail, note, print_heading, print_json, print_table, stderr, stdout, write

if TYPE_CHECKING:
    from skylog.audit.report import Tier
    from skylog.audit.verdict import Balance, Sizes
    from skylog.audit_topic import AuditTopic

NOT_BALANCED: Final = 1
NOTHING_TO_JUDGE: Final = 2
RETRY_S: Final = 0.25
FOREVER_MS: Final = 1 << 62
PROGRESS_FROM: Final = 20_000  # reports; reading fewer takes no noticeable time

_STYLES: Final = {
    "unjudged": "dim",
    "open": "dim",
    "complete": "green",
    "late": "yellow",
    "lost": "bold red",
    "duplicated": "bold red",
}

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="""Compare the message counts of producers, brokers and consumers.

    [bold]skylog audit show --since 1h[/]
    """,
)

Topics = Annotated[
    list[str] | None,
    typer.Option("--topic", metavar="TOPIC", help="Only this topic; can be repeated.", show_default="all"),
]
Groups = Annotated[
    list[str] | None,
    typer.Option(
        "--group",
        metavar="GROUP",
        help="Only this group; can be repeated. With --topic, it must have reported.",
        show_default="all",
    ),
]
Since = Annotated[
    str | None, typer.Option("--since", metavar="WHEN", help="Start at a time: 2024-05-01T12:00, or 30m (ago).")
]
Until = Annotated[str | None, typer.Option("--until", metavar="WHEN", help="Only windows that start before a time.")]
Grace = Annotated[
    str, typer.Option("--grace", metavar="TIME", help="How long a window stays open for reports after its end.")
]
Window = Annotated[
    str, typer.Option("--window", metavar="TIME", help="Length of a window; at least that of the tiers.")
]
Tiers = Annotated[
    str | None,
    typer.Option(
        "--tiers",
        metavar="TIERS",
        help="Tiers that must have counted in a window, or it is late: produced,stored,consumed,landed.",
        show_default="none",
    ),
]


Mirror = Annotated[
    str | None,
    typer.Option("--mirror", metavar="HOST:PORT", help="Also count what a cluster that mirrors this one has stored."),
]
MirrorPrefix = Annotated[str, typer.Option("--mirror-prefix", help="The prefix of this cluster's topics there.")]


@dataclass(frozen=True, slots=True)
class WindowSelection:
    """The windows to compare, and the tiers and groups that must have counted in them."""

    topics: list[str] | None
    groups: list[str] | None
    since_ms: int
    until_ms: int
    grace_ms: int
    window_ms: int
    required: frozenset[Tier]

    @classmethod
    def parse(
        cls,
        topics: list[str] | None,
        groups: list[str] | None,
        since: str | None,
        until: str | None,
        grace: str,
        window: str,
        tiers: str | None,
    ) -> WindowSelection:
        from skylog.audit.counts import SMALLEST_WINDOW_MS

        now_ms = _now_ms()
        window_ms = parse_duration_ms(window, "--window")
        if window_ms < SMALLEST_WINDOW_MS:
            raise typer.BadParameter(f"must be at least {SMALLEST_WINDOW_MS}ms", param_hint="--window")
        return cls(
            topics or None,
            groups or None,
            0 if since is None else parse_when(since, now_ms, "--since"),
            FOREVER_MS if until is None else parse_when(until, now_ms, "--until"),
            parse_duration_ms(grace, "--grace"),
            window_ms,
            _parse_tiers(tiers),
        )

    def balances(self, reports: AuditTopic, *, is_all_closed: bool = False) -> list[Balance]:
        """Return the selected windows of `reports`. With `is_all_closed`, no window counts as open."""
        now_ms = FOREVER_MS if is_all_closed else _now_ms()
        found = reports.books(self.window_ms).balance(
            now_ms,
            self.grace_ms,
            topics=self.topics,
            groups=self.groups,
            required=self.required,
            tables=reports.mirrors,
        )
        return [
            balance
            for balance in found
            if balance.window_end_ms > self.since_ms and reports.begins_ms <= balance.window_start_ms < self.until_ms
        ]


def _parse_tiers(text: str | None) -> frozenset[Tier]:
    from skylog.audit.report import Tier

    names = [] if text is None else [name.strip() for name in text.split(",")]
    unknown = [name for name in names if name not in list(Tier)]
    if unknown:
        raise typer.BadParameter(f"'{unknown[0]}' is not a tier: choose from {','.join(Tier)}", param_hint="--tiers")
    return frozenset(map(Tier, names))


@app.command("show")
def show(
    topic: Topics = None,
    group: Groups = None,
    since: Since = None,
    until: Until = None,
    grace: Grace = "2m",
    window: Window = "60s",
    tiers: Tiers = None,
    mirror: Mirror = None,
    mirror_prefix: MirrorPrefix = "",
    with_bytes: Annotated[bool, typer.Option("--bytes", help="Also show the number of bytes.")] = False,
    json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Show the counts of produced, stored, consumed and landed messages per topic and window, with a verdict.

    Each tier is compared with the one before it. docs/audit.md explains the verdicts.

    [bold]skylog audit show --topic orders --since 1h[/]
    """
    from skylog.audit_topic import AuditTopic

    selection = WindowSelection.parse(topic, group, since, until, grace, window, tiers)
    reports = AuditTopic(bootstrap)
    _refresh(reports)
    _add_mirror(reports, mirror, mirror_prefix)
    found = selection.balances(reports)
    if json:
        print_json([balance_object(balance) for balance in found])
    else:
        for name, rows in groupby(found, key=lambda balance: balance.topic):
            print_topic(name, list(rows), with_bytes=with_bytes)
        if not found:
            note("no reports match the selection")
    _note_skipped(reports)


@app.command("verify")
def verify(
    topic: Topics = None,
    group: Groups = None,
    since: Since = None,
    until: Until = None,
    grace: Grace = "2m",
    window: Window = "60s",
    tiers: Tiers = None,
    mirror: Mirror = None,
    mirror_prefix: MirrorPrefix = "",
    wait_s: Annotated[
        float | None,
        typer.Option(
            "--wait",
            metavar="SECONDS",
            min=0,
            help="Wait up to this time for all windows to balance; without a grace period.",
            show_default=False,
        ),
    ] = None,
    json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Exit with 0 if the counts balance, 1 if they do not, 2 if there is nothing to judge.

    Lists the windows that are not complete. Open windows are not judged, except with --wait.

    [bold]skylog audit verify --since 1d[/]

    [bold]skylog audit verify --topic orders --tiers produced,stored,consumed --wait 30[/]
    """
    from skylog.audit import NoAuditTopicError
    from skylog.audit_topic import AuditTopic

    selection = WindowSelection.parse(topic, group, since, until, grace, window, tiers)
    reports = AuditTopic(bootstrap)
    deadline = time.monotonic() + (wait_s or 0)
    while True:
        found: list[Balance] = []
        try:
            _refresh(reports)
            _add_mirror(reports, mirror, mirror_prefix)
            found = selection.balances(reports, is_all_closed=wait_s is not None)
        except NoAuditTopicError as error:
            if time.monotonic() >= deadline:
                fail(str(error), NOTHING_TO_JUDGE)
        code = exit_code(found)
        if code == 0 or time.monotonic() >= deadline:
            break
        time.sleep(RETRY_S)
    _print_verification(found, code, json=json)
    _note_skipped(reports)
    raise typer.Exit(code)


def _add_mirror(reports: AuditTopic, mirror: str | None, prefix: str) -> None:
    if mirror is not None:
        from skylog.audit_topic import AuditTopic

        mirrored = AuditTopic(mirror)
        _refresh(mirrored)
        reports.add_mirror(mirrored, prefix, mirror)


# -- output


def print_topic(name: str, rows: Sequence[Balance], *, with_bytes: bool) -> None:
    from rich.text import Text

    groups = sorted({group for row in rows for group in row.consumed})
    tables = sorted({table for row in rows for table in row.landed})
    readers = [*(f"CONSUMED BY {each}" for each in groups), *(f"LANDED IN {each}" for each in tables)]
    numbers: list[str] = []
    for title in ("PRODUCED", "STORED", *map(escape_controls, readers)):
        numbers += [title, "BYTES"] if with_bytes else [title]
    lines = []
    for row in rows:
        line: list[object] = [_window_time(row)]
        for messages, size_bytes in zip(_each(row, groups, tables), _each(row.sizes, groups, tables), strict=True):
            line += [_or_dash(messages), _size(size_bytes)] if with_bytes else [_or_dash(messages)]
        lines.append([*line, Text(escape_controls(str(row)), style=_STYLES[row.verdict])])
    print_heading(name, _tally(rows))
    print_table(["WINDOW", *numbers, "VERDICT"], lines, numbers=numbers)
    stdout.print()


def _each(row: Balance | Sizes, groups: Sequence[str], tables: Sequence[str]) -> list[int | None]:
    """Return the counts of a row, one for each column."""
    return [row.produced, row.stored, *map(row.consumed.get, groups), *map(row.landed.get, tables)]


def _print_verification(found: Sequence[Balance], code: int, *, json: bool) -> None:
    wrong = [balance for balance in found if _is_judged(balance) and not balance.is_balanced]
    if json:
        print_json(
            {"is_balanced": code == 0, "windows": _counts(found), "wrong": [balance_object(row) for row in wrong]}
        )
        return
    for balance in wrong:
        write(f"{_window_time(balance)}  {escape_controls(f'{balance.topic}  {balance}')}\n")
    write({0: "balanced", NOT_BALANCED: "not balanced", NOTHING_TO_JUDGE: "nothing to judge"}[code])
    write(f": {_tally(found)}\n")


def exit_code(found: Sequence[Balance]) -> int:
    judged = [balance for balance in found if _is_judged(balance)]
    if not judged:
        return NOTHING_TO_JUDGE
    return 0 if all(balance.is_balanced for balance in judged) else NOT_BALANCED


def _is_judged(balance: Balance) -> bool:
    return balance.verdict not in ("unjudged", "open")


def _counts(found: Sequence[Balance]) -> dict[str, int]:
    """Return the number of windows by verdict."""
    return dict(Counter(balance.verdict.value for balance in found))


def _tally(found: Sequence[Balance]) -> str:
    windows = f"{len(found):,} window{'' if len(found) == 1 else 's'}"
    return ", ".join([windows, *(f"{count:,} {verdict}" for verdict, count in _counts(found).items())])


def balance_object(balance: Balance) -> dict[str, Any]:
    from skylog.audit.balance_document import balance_document

    return {"window_start": iso_time(balance.window_start_ms), **balance_document(balance)}


def _window_time(balance: Balance) -> str:
    """Format the start of a window in local time, with milliseconds only if they are not zero."""
    try:
        moment = datetime.fromtimestamp(balance.window_start_ms // 1000)
    except (ValueError, OverflowError, OSError):
        return f"{balance.window_start_ms} ms"
    is_whole = balance.window_start_ms % 1000 == 0 and balance.window_end_ms % 1000 == 0
    return f"{moment:%Y-%m-%d %H:%M:%S}" + ("" if is_whole else f".{balance.window_start_ms % 1000:03d}")


def _or_dash(number: int | None) -> str:
    return "-" if number is None else f"{number:,}"


def _size(size_bytes: int | None) -> str:
    """Format a size in the units of progress bars: `1.2 kB`."""
    from rich.filesize import decimal

    return "-" if size_bytes is None else decimal(size_bytes)


def _refresh(reports: AuditTopic) -> None:
    status = stderr.status("")

    def show(done: int, total: int) -> None:
        if total >= PROGRESS_FROM:
            status.update(f"read {done:,} of {total:,} reports")
            status.start()

    try:
        reports.refresh(show)
    finally:
        status.stop()


def _note_skipped(reports: AuditTopic) -> None:
    if reports.foreign_count:
        note(f"{reports.foreign_count:,} messages of the audit topic are not reports and were skipped")
    if reports.begins_ms:
        note(f"the audit topic begins at {iso_time(reports.begins_ms)}: earlier windows were skipped")


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
