"""Consumer groups: how fast they rebalance, commit and stay alive.

* A rebalance: all members of a stable group rejoin with new metadata and sync, each on its own connection. The time
  runs from the first join sent to the last sync response read. Requests are built before it and responses decoded
  after it. Generation and leader of the next round are known in advance, and checked.
* Commits of 1 and of 100 partitions by members of 8 groups, beside produces of one message on as many connections.
* Heartbeats of 1,000 members of one group, beside ApiVersions requests of the same length, the cost of a request
  without work.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from benchmarks import frames, load
from benchmarks.channel import Channel, create_topic
from benchmarks.report import Column, Options, Plot, Report, Table, median
from benchmarks.servers import GENERATOR_CORE, Server, broker, pin
from skylog.errors import ErrorCode
from skylog.protocol.api_versions import ApiVersionsRequest
from skylog.protocol.apis import API_SPECS
from skylog.protocol.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from skylog.protocol.frames import SIZE_BYTES, request_frame
from skylog.protocol.headers import RequestHeader, read_response_header
from skylog.protocol.heartbeat import HeartbeatRequest
from skylog.protocol.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from skylog.protocol.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from skylog.protocol.schema import Message
from skylog.protocol.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse

VERSIONS = {
    OffsetCommitRequest.api_key: 8,
    FindCoordinatorRequest.api_key: 4,
    JoinGroupRequest.api_key: 9,
    HeartbeatRequest.api_key: 4,
    SyncGroupRequest.api_key: 5,
    ApiVersionsRequest.api_key: 3,
}
TOPIC = "groups"
PARTITIONS = 100
GROUP_SIZES = (100, 1000)
CONNECTIONS = 8
IN_FLIGHT = 5
SESSION_TIMEOUT_MS = 1_800_000
JOINS_PER_ROUND = 1000
"""Decides how many rebalances of a group are measured, three at least."""
HEARTBEAT_ERROR_AT = 4 + 4 + 1 + 4
API_VERSIONS_ERROR_AT = 4 + 4

Answer = TypeVar("Answer", bound=Message)


def run(options: Options) -> Report:
    pin(os.getpid(), GENERATOR_CORE)
    work_dir = Path(tempfile.mkdtemp(prefix="skylog-groups-", dir=options.work_dir))
    try:
        with broker(work_dir, "--set=log.cleaner.enable=false") as server:
            create_topic(server.address, TOPIC, PARTITIONS)
            _make_coordinator(server)
            groups = {size: Members(server, f"of-{size}", size) for size in GROUP_SIZES}
            rebalances = [_rebalances(server, group, options) for group in groups.values()]
            heartbeats = _heartbeats(server, groups[max(GROUP_SIZES)], options)
            for group in groups.values():
                group.close()
            commits = _commits(server, options)
    finally:
        shutil.rmtree(work_dir)
        os.sched_setaffinity(0, range(os.cpu_count() or 1))
    return _report(rebalances, commits, heartbeats)


# -- requests and answers


def _frame(request: Message) -> bytes:
    header = RequestHeader(request.api_key, VERSIONS[request.api_key], 7, frames.CLIENT_ID.decode())
    return bytes(request_frame(header, request))


def _decode(kind: type[Answer], answer: bytes) -> Answer:
    version = VERSIONS[kind.api_key]
    _, at = read_response_header(answer, API_SPECS[kind.api_key].response_header_version(version), SIZE_BYTES)
    return kind.read(answer, version, at)[0]


def _expect(found: int, wanted: ErrorCode = ErrorCode.NONE) -> None:
    if found != wanted:
        raise RuntimeError(f"the broker answered with {ErrorCode(found).name}, expected {wanted.name}")


def _make_coordinator(server: Server) -> None:
    """Request the coordinator of a group, which makes the broker create its offsets topic."""
    with Channel(server.address) as channel:
        answer = channel.ask(_frame(FindCoordinatorRequest(coordinator_keys=["any"])))
    _expect(_decode(FindCoordinatorResponse, answer).coordinators[0].error_code)


class Members:
    """All members of one group, each with its own connection. The group is stable between calls."""

    def __init__(self, server: Server, group_id: str, size: int) -> None:
        self.group_id = group_id
        self.generation = 0
        self.leader = ""
        self.channels = [Channel(server.address) for _ in range(size)]
        started = time.perf_counter()
        self.member_ids = self._get_member_ids()
        joins = [self._join(member_id) for member_id in self.member_ids]
        self._take_joins(self._ask_all(joins))
        self._take_syncs(self._ask_all(self._syncs(self.generation)))
        self.forming_seconds = time.perf_counter() - started

    def _get_member_ids(self) -> list[str]:
        """Get an id for each new member, which must then join with it (KIP-394)."""
        answers = [
            _decode(JoinGroupResponse, answer) for answer in self._ask_all([self._join("")] * len(self.channels))
        ]
        for answer in answers:
            _expect(answer.error_code, ErrorCode.MEMBER_ID_REQUIRED)
        return [answer.member_id for answer in answers]

    def rebalance(self) -> float:
        """Run one round and return its duration."""
        generation = self.generation + 1
        joins = [self._join(member_id, generation) for member_id in self.member_ids]
        syncs = self._syncs(generation)
        started = time.perf_counter()
        joined = self._ask_all(joins)
        synced = self._ask_all(syncs)
        taken = time.perf_counter() - started
        leader = self.leader
        self._take_joins(joined)
        self._take_syncs(synced)
        if (self.generation, self.leader) != (generation, leader):
            raise RuntimeError(f"generation {self.generation} instead of {generation}, or another leader")
        return taken

    def _ask_all(self, requests: list[bytes]) -> list[bytes]:
        """Send every member's request, then read all responses: the broker responds only after the last request."""
        for channel, request in zip(self.channels, requests, strict=True):
            channel.sock.sendall(request)
        return [channel.ask(b"") for channel in self.channels]

    def _join(self, member_id: str, note: int = 0) -> bytes:
        """Return a join with a consumer's subscription. A changed `note` in it triggers a rebalance."""
        name = TOPIC.encode()
        count, note_bytes = (1).to_bytes(4, "big"), note.to_bytes(4, "big")
        subscription = b"\0\1" + count + len(name).to_bytes(2, "big") + name + b"\0\0\0\4" + note_bytes + bytes(4)
        return _frame(
            JoinGroupRequest(
                group_id=self.group_id,
                session_timeout_ms=SESSION_TIMEOUT_MS,
                rebalance_timeout_ms=60_000,
                member_id=member_id,
                protocol_type="consumer",
                protocols=[JoinGroupRequestProtocol(name="range", metadata=subscription)],
            )
        )

    def _syncs(self, generation: int) -> list[bytes]:
        shares = [
            SyncGroupRequestAssignment(member_id=member_id, assignment=self._assignment(number))
            for number, member_id in enumerate(self.member_ids)
        ]
        return [
            _frame(
                SyncGroupRequest(
                    group_id=self.group_id,
                    generation_id=generation,
                    member_id=member_id,
                    protocol_type="consumer",
                    protocol_name="range",
                    assignments=shares if member_id == self.leader else [],
                )
            )
            for member_id in self.member_ids
        ]

    def _assignment(self, number: int) -> bytes:
        """Return an assignment, opaque to the broker, as long as that of a consumer with one partition."""
        return number.to_bytes(4, "big") * 6

    def _take_joins(self, answers: list[bytes]) -> None:
        joined = [_decode(JoinGroupResponse, answer) for answer in answers]
        for each in joined:
            _expect(each.error_code)
        if len({(each.generation_id, each.leader) for each in joined}) != 1:
            raise RuntimeError("members got different generations or leaders")
        self.generation, self.leader = joined[0].generation_id, joined[0].leader

    def _take_syncs(self, answers: list[bytes]) -> None:
        for number, answer in enumerate(answers):
            synced = _decode(SyncGroupResponse, answer)
            _expect(synced.error_code)
            if synced.assignment != self._assignment(number):
                raise RuntimeError("a member was given the assignment of another one")

    def close(self) -> None:
        for channel in self.channels:
            channel.close()


# -- the three parts


def _rebalances(server: Server, group: Members, options: Options) -> dict[str, Any]:
    size = len(group.channels)
    rounds = max(3, JOINS_PER_ROUND * options.rounds // size)
    group.rebalance()
    before = server.cpu_seconds()
    seconds = [group.rebalance() for _ in range(rounds)]
    cpu_seconds = server.cpu_seconds() - before
    return {
        "members": size,
        "rounds": rounds,
        "forming_ms": group.forming_seconds * 1e3,
        "ms": median(seconds) * 1e3,
        "slowest_ms": max(seconds) * 1e3,
        "joins_s": size / median(seconds),
        "cpu_us": cpu_seconds / rounds / size * 1e6,
    }


def _drive(server: Server, requests: list[list[bytes]], error_at: int, options: Options) -> dict[str, float]:
    before = server.cpu_seconds()
    taken = load.run(server.address, requests, in_flight=IN_FLIGHT, error_at=error_at, seconds=options.seconds * 2)
    cpu_us = (server.cpu_seconds() - before) / taken.total_requests * 1e6
    return {"rate": taken.requests_per_second, "cpu_us": cpu_us, "busy": taken.busy}


def _in_turns(kinds: dict[str, Callable[[], dict[str, float]]], rounds: int) -> list[dict[str, Any]]:
    """Return one row of medians per kind of request. `ratio` compares its rate with that of the last one."""
    taken: dict[str, list[dict[str, float]]] = {name: [] for name in kinds}
    for _ in range(rounds):
        for name, measure in kinds.items():
            taken[name].append(measure())
    rows: list[dict[str, Any]] = [
        {"request": name} | {key: median([each[key] for each in runs]) for key in runs[0]}
        for name, runs in taken.items()
    ]
    for row in rows:
        row["ratio"] = row["rate"] / rows[-1]["rate"]
        row["cpu_ratio"] = row["cpu_us"] / rows[-1]["cpu_us"]
    return rows


def _commits(server: Server, options: Options) -> list[dict[str, Any]]:
    groups = [Members(server, f"commits-{number}", 1) for number in range(CONNECTIONS)]
    produce = frames.produce_request(TOPIC, frames.record_batch(1)).data

    def committing(partitions: int) -> Callable[[], dict[str, float]]:
        requests = [_commit(group, partitions) for group in groups]
        _check_commit(groups[0].channels[0].ask(requests[0]), partitions)
        return lambda: _drive(server, [[request] * 64 for request in requests], _commit_error_at(), options)

    kinds = {
        "commit of 1 partition": committing(1),
        f"commit of {PARTITIONS} partitions": committing(PARTITIONS),
        "produce of 1 message": lambda: _drive(
            server, [[produce] * 64] * CONNECTIONS, frames.produce_error_at(TOPIC), options
        ),
    }
    rows = _in_turns(kinds, options.rounds)
    for row, partitions in zip(rows, (1, PARTITIONS), strict=False):
        row["partitions_s"] = row["rate"] * partitions
    for group in groups:
        group.close()
    return rows


def _commit(group: Members, partitions: int) -> bytes:
    rows = [OffsetCommitRequestPartition(partition_index=n, committed_offset=1_000_000 + n) for n in range(partitions)]
    return _frame(
        OffsetCommitRequest(
            group_id=group.group_id,
            generation_id_or_member_epoch=group.generation,
            member_id=group.member_ids[0],
            topics=[OffsetCommitRequestTopic(name=TOPIC, partitions=rows)],
        )
    )


def _check_commit(answer: bytes, partitions: int) -> None:
    (topic,) = _decode(OffsetCommitResponse, answer).topics
    for row in topic.partitions:
        _expect(row.error_code)
    if len(topic.partitions) != partitions:
        raise RuntimeError(f"{len(topic.partitions)} partitions were answered for, not {partitions}")


def _commit_error_at() -> int:
    """Return the position of the first partition's error code: after header, throttle time, counts, name and index."""
    return 4 + 4 + 1 + 4 + 1 + 1 + len(TOPIC) + 1 + 4


def _heartbeats(server: Server, group: Members, options: Options) -> list[dict[str, Any]]:
    """Measure heartbeats. Each connection sends those of its share of the members, one after the other."""
    heartbeats = [
        _frame(HeartbeatRequest(group_id=group.group_id, generation_id=group.generation, member_id=member_id))
        for member_id in group.member_ids
    ]
    shares = [heartbeats[number::CONNECTIONS] for number in range(CONNECTIONS)]
    questions = [[_api_versions(len(heartbeats[0]))] * len(shares[0])] * CONNECTIONS
    kinds = {
        "heartbeat": lambda: _drive(server, shares, HEARTBEAT_ERROR_AT, options),
        "ApiVersions": lambda: _drive(server, questions, API_VERSIONS_ERROR_AT, options),
    }
    rows = _in_turns(kinds, options.rounds)
    for row in rows:
        row["request_bytes"] = len(heartbeats[0])
    return rows


def _api_versions(length: int) -> bytes:
    """Return a request of `length` bytes, padded with the client's name."""
    bare = len(_frame(ApiVersionsRequest(client_software_name="", client_software_version="1")))
    request = _frame(ApiVersionsRequest(client_software_name="b" * (length - bare), client_software_version="1"))
    if len(request) != length:
        raise RuntimeError(f"a request of {len(request)} bytes instead of {length}")
    return request


# -- the report


def _report(
    rebalances: list[dict[str, Any]], commits: list[dict[str, Any]], heartbeats: list[dict[str, Any]]
) -> Report:
    report = Report("groups", "rebalances, commits and heartbeats of consumer groups")
    columns = [
        Column("members", "members", "{:,d}"),
        Column("rounds", "rebalances", "{:d}"),
        Column("forming_ms", "forming the group ms", "{:.0f}"),
        Column("ms", "rebalance ms", "{:.1f}"),
        Column("slowest_ms", "slowest ms", "{:.1f}"),
        Column("joins_s", "joins/s", "{:,.0f}"),
        Column("cpu_us", "broker µs CPU per member", "{:.0f}"),
    ]
    report.tables.append(Table("from the first join to the last sync answer", columns, rebalances))
    columns = [
        Column("request", "request"),
        Column("request_bytes", "bytes", "{:d}"),
        Column("rate", "requests/s", "{:,.0f}"),
        Column("ratio", "ratio", "{:.2f}"),
        Column("partitions_s", "partitions/s", "{:,.0f}"),
        Column("cpu_us", "broker µs CPU per request", "{:.1f}"),
        Column("cpu_ratio", "CPU ratio", "{:.2f}"),
        Column("busy", "generator busy", "{:.2f}"),
    ]
    how = f"{CONNECTIONS} connections, {IN_FLIGHT} in flight each"
    used = [column for column in columns if column.key != "request_bytes"]
    report.tables.append(Table(f"commits, {how}", used, commits))
    used = [column for column in columns if column.key != "partitions_s"]
    report.tables.append(Table(f"heartbeats of {max(GROUP_SIZES):,} members of one group, {how}", used, heartbeats))
    joins = {"skylog": [row["joins_s"] for row in rebalances]}
    labels = [f"{row['members']} members" for row in rebalances]
    report.plots.append(Plot("rebalance", "joins/s", labels, joins))
    rows = [*commits, *heartbeats]
    rates = {"skylog": [row["rate"] for row in rows]}
    report.plots.append(Plot("requests of groups", "requests/s", [row["request"] for row in rows], rates))
    report.notes.append("Ratios are to the last row of their table. An ApiVersions answer is the longer one.")
    return report
