"""Shows a plan of moves, carries it out and follows it. Shared by `reassign` and `drain`."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from skylog.cli.options import parse_bytes
from skylog.errors import ErrorCode, KafkaError, SkylogError
from skylog.model import TopicPartition
from skylog.terminal import fail, note, print_json, print_table, stderr

if TYPE_CHECKING:
    from rich.progress import Progress

    from skylog.client import ClusterAdmin, Reassignment, ReassignmentPlan, ReassignmentProgress

Check = Callable[[], None]

Throttle = Annotated[
    str | None,
    typer.Option(
        "--throttle",
        metavar="BYTES/S",
        help="Limit what each broker sends and receives for this, such as 50MB.",
        show_default="no limit",
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show the plan without carrying it out.")]

INTERRUPTED: Final = 130


@dataclass(frozen=True, slots=True)
class Order:
    """How to carry out a plan.

    `topics` are those to remove the throttle from, None for all. `again` is the command that continues, `cancel` the
    one that gives up.
    """

    throttle: int | None
    topics: Collection[str] | None
    wait: bool
    again: str
    cancel: str


def parse_throttle(text: str | None) -> int | None:
    return None if text is None else parse_bytes(text.removesuffix("/s"), "--throttle")


def print_plan(plan: ReassignmentPlan) -> None:
    rows = [(*move.partition, _ids(move.from_replicas), _ids(move.to_replicas)) for move in plan.moves]
    print_table(["TOPIC", "PARTITION", "FROM", "TO"], rows, numbers=["PARTITION"])
    note(f"{_partitions(len(plan.moves))} to change, {plan.copies} replicas to copy")


def plan_document(plan: ReassignmentPlan) -> list[dict[str, Any]]:
    return [
        {**move.partition._asdict(), "from_replicas": move.from_replicas, "to_replicas": move.to_replicas}
        for move in plan.moves
    ]


def carry_out(
    admin: ClusterAdmin, plan: ReassignmentPlan, under_way: Collection[Reassignment], order: Order
) -> ReassignmentProgress | None:
    """Begin the moves, wait for them and for those `under_way`, and remove the throttle.

    Returns the final progress; None without waiting. Exits if it is interrupted.
    """
    if under_way:
        note(f"{_partitions(len(under_way))} being reassigned already")
    whole = plan.including(under_way)
    _note_replaced(admin, plan)
    try:
        with _noticing_ctrl_c() as check:
            if order.throttle is not None and whole.moves:
                _throttle(admin, whole, order.throttle)
            _begin(admin, plan, order)
            _warn_of_offline(admin, whole)
            return _finish(admin, whole.targets, order, check)
    except KeyboardInterrupt:
        _advise(order)
        fail("interrupted", INTERRUPTED)


def _note_replaced(admin: ClusterAdmin, plan: ReassignmentPlan) -> None:
    """Name the reassignments that this one replaces, such as those of a drain that still waits for them."""
    moving = admin.list_reassignments() if plan.moves else []
    replaced = [each for each in moving if plan.targets.get(each.partition, each.target) != each.target]
    if replaced:
        note(f"{_partitions(len(replaced))} being reassigned to other brokers: this replaces it")


@contextmanager
def _noticing_ctrl_c() -> Iterator[Check]:
    """Yield a function that raises KeyboardInterrupt after Ctrl-C.

    Python's own handler raises it anywhere. Requests run event loops of their own, and between them it would get lost:
    in a loop that is done already, or in a destructor.
    """
    pressed = threading.Event()

    def check() -> None:
        if pressed.is_set():
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, lambda *_: pressed.set())
    try:
        yield check
    finally:
        signal.signal(signal.SIGINT, before)


def _finish(
    admin: ClusterAdmin, targets: Mapping[TopicPartition, tuple[int, ...]], order: Order, check: Check
) -> ReassignmentProgress | None:
    if not order.wait:
        _advise(order)
        return None
    try:
        progress = _follow(admin, targets, check)
        if order.throttle is not None:
            admin.clear_throttle(order.topics)
    except SkylogError:
        _advise(order)
        raise
    return progress


def _advise(order: Order) -> None:
    """Say how to go on with a reassignment that nobody waits for."""
    is_throttled = order.throttle is not None
    note(f"the brokers carry out the reassignment{', throttled' if is_throttled else ''}")
    note(f"to wait for the end{' and remove the throttle' if is_throttled else ''}: {order.again}")
    note(f"to cancel it: {order.cancel}")


def _begin(admin: ClusterAdmin, plan: ReassignmentPlan, order: Order) -> None:
    try:
        admin.reassign(plan.targets)
    except SkylogError:
        if order.throttle is not None:
            admin.clear_throttle(order.topics)
        raise


def _warn_of_offline(admin: ClusterAdmin, plan: ReassignmentPlan) -> None:
    """Name the partitions that nobody can copy now. Otherwise the waiting would seem to have no reason."""
    names = [str(each.partition) for each in admin.describe().offline if each.partition in plan.targets]
    if names:
        shown = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
        note(
            f"without a leader, and not copied before there is one: {shown}; start the brokers that have them, or "
            "give up what only those have: skylog cluster elect --unclean"
        )


def _throttle(admin: ClusterAdmin, plan: ReassignmentPlan, bytes_per_s: int) -> None:
    try:
        admin.set_throttle(plan, bytes_per_s)
    except KafkaError as error:
        if error.code is not ErrorCode.INVALID_CONFIG:
            raise
        fail(f"{error}; the brokers cannot limit the rate: leave out --throttle")


def _follow(
    admin: ClusterAdmin, targets: Mapping[TopicPartition, tuple[int, ...]], check: Check
) -> ReassignmentProgress:
    with _progress_bar() as bar:
        task = bar.add_task("partitions", total=len(targets), left="")
        for progress in admin.follow(targets):
            check()
            bar.update(task, completed=progress.done, left=_left(progress))
    return progress


def _left(progress: ReassignmentProgress) -> str:
    return "" if progress.bytes_left is None else f"{progress.bytes_left / 1e6:,.1f} MB left"


def report(progress: ReassignmentProgress) -> None:
    """Print the outcome, and exit with an error if partitions have not reached their target."""
    note(f"{_partitions(progress.done)} moved" if progress.total else "nothing to move")
    if progress.abandoned:
        names = ", ".join(map(str, progress.abandoned[:5]))
        fail(
            f"{_partitions(len(progress.abandoned))} did not reach the target: {names}; the reassignment was cancelled "
            "or replaced, or the topic was deleted; see: skylog cluster describe"
        )
    if progress.done:
        note("to let the preferred replicas lead: skylog cluster elect")


def cancel(admin: ClusterAdmin, chosen: Iterable[Reassignment], topics: Collection[str], *, json: bool) -> None:
    """Cancel reassignments, and remove the throttle of topics."""
    cancelled = admin.cancel_reassignments([each.partition for each in chosen])
    admin.clear_throttle(topics)
    if json:
        print_json({"cancelled": [each.partition._asdict() for each in cancelled]})
    note(f"cancelled the reassignment of {_partitions(len(cancelled))}; the replicas are as before")


def _partitions(count: int) -> str:
    return f"{count:,} partition{'' if count == 1 else 's'}"


def _ids(ids: Iterable[int]) -> str:
    return ",".join(map(str, ids))


def _progress_bar() -> Progress:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[left]}", markup=False),
        TimeElapsedColumn(),
        console=stderr,
        transient=True,
        disable=not stderr.is_terminal,
    )


def document(plan: ReassignmentPlan, progress: ReassignmentProgress | None, *, dry_run: bool) -> dict[str, Any]:
    return {
        "dry_run": dry_run,
        "complete": progress is not None and not progress.abandoned,
        "moves": plan_document(plan),
        "abandoned": [key._asdict() for key in progress.abandoned] if progress is not None else [],
    }
