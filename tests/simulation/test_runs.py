"""Whole clusters of the real broker code on virtual time: fixed seeds, a few fresh ones, and the same trace twice.

`make simulate SEEDS=1000` runs more of them.
"""

from __future__ import annotations

import bdb
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence

import pytest

from skylog.audit.report import Report
from skylog.audit.stored_progress import StoredProgress
from skylog.audit.stored_reports import StoredReports
from skylog.audit.stored_tier import StoredTier
from skylog.broker.fetch_sessions import FetchSession
from skylog.errors import ErrorCode, KafkaError
from skylog.model import TopicPartition
from skylog.simulation import __main__ as command
from skylog.simulation import seeds as seeds_module
from skylog.simulation.__main__ import main
from skylog.simulation.bugs import BUGS
from skylog.simulation.drills import DRILLS
from skylog.simulation.run import Result, Visit
from skylog.simulation.seams import Patches
from skylog.simulation.seeds import Summary, run_seed, run_seeds
from skylog.simulation.shrinking import shortest_plan
from skylog.simulation.workloads import Workload
from skylog.simulation.world import World
from skylog.storage.files import FileSlice
from skylog.storage.readable_log import ReadableLog
from tests.proof import proof, some
from tests.seeds import seed_of_the_day

FIXED = (1, 2, 5, 9, 10, 12, 13, 16, 17, 21, 22, 25, 29, 33, 47, 52, 30002, 30003, 30007, 30011, 30015, 30023, 30058)
"""Every workload and drill, and most kinds of faults."""

WITH_SETS = [12, 15, 23]
"""Audit, consumer group, transactions. The order of sets depends on hashes, and the trace of 23 once did, too."""

ONCE_FAILED = {
    859: "an index was judged by batches behind a damaged length, which nobody can find",
    64: "others had compacted what was damaged here, so it was never repaired",
    256: "a failed read of an emptied batch was a traceback",
    188: "behind a batch that a new leader did not have, another one was stored, and it was refused for ever",
    2254: "a crash brought back batches that a truncation had cut off, in a file before the recovery point",
    2201: "the run itself took records for lost that were deleted while it read them",
    1163: "a duplicate was refused while five later batches were stored, and was not recognized any more",
    2080: "a damaged leader led on because too few were in sync without it, and nobody could catch up from it",
    2216: "the run itself did not start a broker again that was still stopping when everything was healed",
    982: "records that were deleted on request came back with a leader that was not live then",
    2554: "a follower went on truncating a log that had failed",
    3152: "a follower that waited for its checkpoint truncated again with every answer of the leader",
    36: "a full disk was a traceback of the audit",
    600: "a failing disk was, too",
    468: "the audit counted the messages that a damaged header claimed",
    3311: "consumers could read what their leader had not synced, although every append had to be",
    30038: "the run itself made a file of a directory whose removal was not on disk when power was lost",
    30106: "damage of deleted records could not be repaired, and was tried for ever",
    30131: "an index was judged by a damaged batch that seemed longer than it is",
    1171: "the state of groups was unavailable until a scrub found the damaged batch",
}
"""Seeds that have found a defect of the broker."""

FOUND = {
    "KIP-279": 1,
    "KAFKA-7128": 13,
    "KAFKA-13916": 5,
    "KAFKA-14617": 21,
    "KAFKA-14704": 37,
    "KAFKA-7415": 1,
    "KAFKA-7897": 1,
    "KAFKA-13141": 1,
    "KAFKA-9491": 17,
    "KAFKA-7164": 1,
    "KAFKA-18723": 141,
    "KIP-890": 9,
    "KAFKA-14880": 29,
    "KAFKA-9144": 25,
    "KAFKA-17754": 117,
    "KAFKA-6361": 37,
    "KAFKA-12686": 149,
    "KAFKA-14139": 113,
    "KAFKA-18660": 101,
    "KAFKA-19367": 29,
    "KIP-101-logs": 1,
    "KAFKA-10706": 1,
    "KAFKA-9838": 2,
    "KIP-101": 22,
    "Redpanda-6018": 23,
    "Redpanda-5026": 35,
    "KAFKA-12751": 5,
    "KAFKA-2729": 411,
}
"""The first of a few seeds with which the simulation finds a bug whose mend is undone."""

SAME_DRILL = 4 * len(DRILLS)
"""The same drill comes again after this many seeds. Any change of the broker may move a find from one to the next."""


def show(result: Result) -> str:
    return "\n".join([*result.violations[:20], f"python -m skylog.simulation --seed {result.scenario.seed} --trace"])


@pytest.mark.parametrize("number", FIXED)
def test_a_fixed_seed_violates_nothing(number: int) -> None:
    result = run_seed(number)
    assert result.acknowledged > 0
    assert not result.violations, show(result)


@pytest.mark.parametrize("number", some(list(ONCE_FAILED), 2), ids=ONCE_FAILED.get)
def test_a_seed_that_once_failed_violates_nothing(number: int) -> None:
    result = run_seed(number)
    assert not result.violations, show(result)


def test_fresh_seeds_violate_nothing() -> None:
    first = seed_of_the_day()
    for number in range(first, first + proof(500, 3)):
        result = run_seed(number)
        assert not result.violations, show(result)


def test_a_seed_gives_the_same_trace_twice() -> None:
    first, second = run_seed(11), run_seed(11)
    assert first.trace.lines == second.trace.lines
    assert first.trace.digest == second.trace.digest


def test_another_process_with_other_hashes_and_without_compiled_code_gives_the_same_traces() -> None:
    numbers = some([*WITH_SETS, *FIXED], len(WITH_SETS))
    assert _digests_of(numbers, {"PYTHONHASHSEED": "1"}) == _digests_of(
        numbers, {"PYTHONHASHSEED": "2", "SKYLOG_PURE": "1"}
    )


def _digests_of(numbers: Sequence[int], variables: Mapping[str, str]) -> list[str]:
    code = f"from skylog.simulation.seeds import summarize; print(*(summarize(each).digest for each in {numbers}))"
    environment = {**os.environ, **variables}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    return done.stdout.split()


@pytest.mark.parametrize("name", some(list(FOUND), 14))
def test_a_bug_whose_mend_is_undone_is_found(name: str) -> None:
    first = FOUND[name]
    numbers = range(first, first + 8 * SAME_DRILL, SAME_DRILL)
    assert any(run_seed(number, BUGS[name].undo).violations for number in numbers)


def test_brokers_that_remember_only_what_they_have_counted_themselves_are_found() -> None:
    """A leader that comes back goes on where it was, although others have counted meanwhile."""
    append = StoredTier._append

    def remember_own_reports(patches: Patches) -> None:
        async def read_nothing(*_: object) -> None: ...

        async def append_and_remember(tier: StoredTier, reports: Sequence[Report]) -> None:
            await append(tier, reports)
            for each in reports:
                name = TopicPartition(each.topic, each.partition or 0)
                first = StoredProgress(each.topic_id, each.end_offset or 0, [0])
                tier._reports._read.partitions[name] = first

        patches.setattr(StoredReports, "catch_up", read_nothing)
        patches.setattr(StoredTier, "_append", append_and_remember)

    result = run_seed(48, remember_own_reports)
    assert any(line.startswith("books: t from ") for line in result.violations), result.violations[:3]


def test_a_broker_that_goes_on_with_what_a_fetch_session_has_forgotten_is_found() -> None:
    update = FetchSession.update

    def forget_nothing(patches: Patches) -> None:
        patches.setattr(FetchSession, "update", lambda self, call: update(self, call._replace(forgotten=[])))

    result = run_seed(30011, forget_nothing)
    assert any("is not part of the session" in line for line in result.violations), result.violations[:3]


def test_a_leader_that_denies_what_it_has_is_found() -> None:
    """Consumers would begin again at the start or at the end."""
    read = ReadableLog.read_checked

    def deny_the_end(patches: Patches) -> None:
        def read_unless_at_the_end(
            self: ReadableLog, offset: int, max_bytes: int, at_least_one: bool = True, end_offset: int | None = None
        ) -> FileSlice | None:
            if end_offset is not None and end_offset < offset + 1 <= self.log_end_offset:
                raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
            return read(self, offset, max_bytes, at_least_one, end_offset)

        patches.setattr(ReadableLog, "read_checked", read_unless_at_the_end)

    assert any(line.startswith("denied: ") for line in run_seed(30011, deny_the_end).violations)


def test_what_is_found_inside_a_broker_ends_the_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seed", str(FOUND["KIP-279"]), "--undo", "KIP-279", "--trace"]) == 1
    shown = capsys.readouterr().out
    assert "inside: t-0: " in shown
    lines = [line for line in shown.splitlines() if line.startswith(" 10")]
    (watched,) = (line for line in lines if " watch " in line)
    assert lines[-1].split()[0] == watched.split()[0], "the run went on"
    assert re.search(r"--undo KIP-279 --faults \d+ --trace", shown)


def test_a_failed_seed_shows_what_was_found_and_what_is_on_disk(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seed", str(FOUND["KAFKA-9838"]), "--undo", "KAFKA-9838", "--faults", "20"]) == 1
    shown = capsys.readouterr().out
    assert "inconsistent read: " in shown
    assert re.search(r"^on disk: broker-\d t-0: 0{20}.log: offsets 0 to \d+ of epochs \[0", shown, re.MULTILINE)


def test_a_run_can_be_stopped_at_a_time_of_its_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    stopped: list[float] = []

    def look(world: World) -> None:
        stopped.append(world.loop.time())
        assert world.machines[1].broker is not None

    monkeypatch.setattr(command, "enter_debugger", look)
    assert main(["--seed", "9", "--replay", "--at", "1003.5"]) == 0
    assert stopped == [1003.5]


def test_leaving_the_debugger_after_a_failed_run_is_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    entered: list[Result] = []

    def leave(result: Result) -> int:
        entered.append(result)
        raise bdb.BdbQuit

    monkeypatch.setattr(command, "enter_debugger_after", leave)
    monkeypatch.setattr(command, "shortest_plan", lambda count, _: count)
    assert main(["--seed", str(FOUND["KIP-279"]), "--undo", "KIP-279", "--replay"]) == 1
    assert entered[0].violations


@pytest.mark.parametrize("option", ["--trace", "--replay", "--faults=3"])
def test_what_shows_one_run_requires_its_seed(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([option])
    assert "add --seed" in capsys.readouterr().err


def test_a_broker_that_is_to_start_while_it_stops_starts_afterwards() -> None:
    """A stop may take longer than the fault, and even than the storm: nobody else would start the broker."""

    def restart(world: World) -> None:
        world.machines[1].stop()
        world.machines[1].start()

    result = run_seed(2216, None, 0, Visit(1000.5, restart))
    assert not result.violations, show(result)
    happened = [line.split(maxsplit=1)[1] for line in result.trace.lines]
    stopped = next(index for index, line in enumerate(happened) if re.fullmatch("broker-1 +has stopped", line))
    assert re.fullmatch("broker-1 +starts", happened[stopped + 1])


def test_more_seeds_than_the_first_processes_run_are_run_by_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seeds_module, "RUNS_PER_PROCESS", 2)
    numbers = range(1, 1 + 4 * 6, 4)
    assert [summary.seed for summary in run_seeds(numbers, 2)] == list(numbers)


def test_a_run_of_many_seeds_shows_how_far_it_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "SEEDS_PER_LINE", 2)
    summaries = [Summary(number, ["lost"] if number == 2 else [], "", 900.0, 10) for number in (1, 2, 3)]
    monkeypatch.setattr(command, "run_seeds", lambda *_: iter(summaries))
    assert main(["--seeds", "3", "--jobs", "1"]) == 1
    shown = capsys.readouterr().out.splitlines()
    assert shown[0] == "seed 2 fails: lost (1 violations)"
    assert shown[1] == "2 of 3 seeds, 0.50 simulated hours, 1 failed so far"
    assert re.fullmatch(r"3 seeds, 0.75 simulated hours in 0 s, 30 messages acknowledged, 1 seeds failed", shown[2])
    assert shown[3] == "python -m skylog.simulation --seed 2"


def test_a_failure_of_the_run_itself_is_a_violation_and_the_other_seeds_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ValueError("of the simulation")

    monkeypatch.setattr(Workload, "start", fail)
    (found,) = run_seed(1).violations
    assert found == "the run itself failed: ValueError: of the simulation"


def test_the_shortest_plan_that_fails_may_be_in_between() -> None:
    assert shortest_plan(5, lambda kept: kept == 3) == 3
    assert shortest_plan(5, lambda kept: False) == 5
