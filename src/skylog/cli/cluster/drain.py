"""`skylog cluster drain`: moves all replicas off a broker."""

from __future__ import annotations

import shlex
import time
from typing import TYPE_CHECKING, Annotated, Final

import typer

from skylog.cli.cluster import moves
from skylog.cli.cluster.moves import DryRun, Order, Throttle
from skylog.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap
from skylog.errors import ErrorCode, KafkaError
from skylog.terminal import fail, note, print_json

if TYPE_CHECKING:
    from skylog.client import ClusterAdmin, Reassignment, ReassignmentPlan

_PATIENCE_S: Final = 5.0
_PAUSE_S: Final = 0.2


def drain(
    broker: Annotated[
        int, typer.Argument(metavar="BROKER", min=0, help="The id of the broker, live or not.", show_default=False)
    ],
    throttle: Throttle = None,
    dry_run: DryRun = False,
    cancel: Annotated[bool, typer.Option("--cancel", help="Cancel the drain; the replicas stay.")] = False,
    json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Move all replicas off a broker, to remove it from the cluster.

    Ends when the broker has no replicas. Then stop it soon: a topic that is created later may be placed on it again.
    Topics that are created meanwhile are moved as well.
    Ctrl-C ends only the waiting: the brokers continue. The same command waits again and removes the throttle at the
    end.

    [bold]skylog cluster drain 3 --dry-run[/]

    [bold]skylog cluster drain 3 --throttle 50MB[/]
    """
    from skylog.client import ClusterAdmin, Connection

    admin = ClusterAdmin(Connection(bootstrap))
    leaving = [each for each in admin.describe().reassignments if broker in each.removing]
    if cancel:
        moves.cancel(admin, leaving, {each.partition.topic for each in leaving}, json=json)
        return
    limit = moves.parse_throttle(throttle)
    again, give_up = _command(broker, throttle, bootstrap), _command(broker, None, bootstrap, "--cancel")
    order = Order(limit, None, wait=True, again=again, cancel=give_up)
    plan = _plan(admin, broker)
    if not json and plan.moves:
        moves.print_plan(plan)
    if dry_run:
        if json:
            print_json(moves.document(plan, None, dry_run=True))
        note("dry run: nothing was changed")
        return
    _move_all(admin, broker, plan, leaving, order)
    if json:
        print_json({"broker": broker, "dry_run": False, "complete": True, "moves": moves.plan_document(plan)})
    note(f"broker {broker} has no replicas; you can stop it")


def _move_all(
    admin: ClusterAdmin, broker: int, plan: ReassignmentPlan, leaving: list[Reassignment], order: Order
) -> None:
    while True:
        progress = moves.carry_out(admin, plan, leaving, order)
        if progress is not None and progress.abandoned:
            moves.report(progress)
        leaving, plan = [], _rest(admin, broker)
        if not plan.moves:
            return


def _rest(admin: ClusterAdmin, broker: int) -> ReassignmentPlan:
    """Return what is left to move. The brokers learn one after another that a reassignment is complete."""
    from skylog.client import ReassignmentPlan

    deadline = time.monotonic() + _PATIENCE_S
    while broker in admin.describe().used_broker_ids:
        if time.monotonic() > deadline:
            return _plan(admin, broker)
        time.sleep(_PAUSE_S)
    return ReassignmentPlan(())


def _plan(admin: ClusterAdmin, broker: int) -> ReassignmentPlan:
    try:
        return admin.plan_drain(broker)
    except KafkaError as error:
        if error.code is not ErrorCode.INVALID_REPLICATION_FACTOR:
            raise
        fail(
            f"broker {broker} cannot be drained: {error} without it; add a broker, or reduce the number of replicas: "
            "skylog cluster reassign --topic TOPIC --replication-factor N"
        )


def _command(broker: int, throttle: str | None, bootstrap: str, *more: str) -> str:
    words = ["skylog", "cluster", "drain", str(broker), *more]
    words += [] if throttle is None else ["--throttle", throttle]
    words += [] if bootstrap == DEFAULT_BOOTSTRAP else ["--bootstrap", bootstrap]
    return shlex.join(words)
