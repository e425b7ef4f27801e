"""Streams of produce requests as a hostile client sends them, for both forms of `take_run`.

`python -m tests.broker.hostile_requests KERNEL SEED COUNT` compares a compiled kernel with Python on many of them. That
is for a kernel with sanitizers.
"""

from __future__ import annotations

import importlib.util
import random
import sys
from pathlib import Path
from typing import Any

from skylog.broker.producer_runs import TakeRun, take_run_in_python
from skylog.protocol.frames import request_frame
from skylog.protocol.headers import RequestHeader
from skylog.protocol.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from skylog.records import Codec

from .raw import batch_of

MAX_BYTES = 600
FORM = bytes(range(60))
OFFSET_AT = 20


def load_kernel(path: Path) -> TakeRun:
    spec = importlib.util.spec_from_file_location("_producer_runs", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    take_run: TakeRun = module.take_run
    return take_run


def request(version: int, number: int, batch: bytes) -> bytes:
    data = [PartitionProduceData(index=0, records=batch)]
    body = ProduceRequest(acks=1, timeout_ms=1000, topic_data=[TopicProduceData(name="t", partition_data=data)])
    return bytes(request_frame(RequestHeader(0, version, number, "client"), body))


def key_of(version: int) -> bytes:
    """Return what all requests of a version have between their correlation ids and the sizes of their batches."""
    frame = request(version, 0, b"batch")
    return frame[12 : frame.index(b"batch") - (1 if version >= 9 else 4)]


def batches(rng: random.Random) -> bytes:
    values = [rng.choice([b"", b"value", b"longer" * 30]) for _ in range(rng.randint(1, 3))]
    fields: dict[str, Any] = rng.choice([{}, {}, {}, {"producer_id": 1, "producer_epoch": 0, "base_sequence": 0}])
    return bytes(batch_of(*values, codec=rng.choice([Codec.NONE, Codec.NONE, Codec.GZIP]), **fields))


def hostile_stream(rng: random.Random) -> tuple[int, bytes]:
    """Return a version and some requests of it: sound ones, and some with wrong bytes, missing or too many."""
    version = rng.choice([5, 8, 9, 11])
    frames = []
    for number in range(rng.randint(1, 40)):
        frame = bytearray(request(version, number, batches(rng)))
        if rng.random() < 0.1:
            for _ in range(rng.choice([1, 1, 4])):
                frame[rng.randrange(len(frame))] = rng.choice([0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)])
        if rng.random() < 0.05:
            at = rng.randrange(len(frame))
            frame[at : at + rng.randint(0, 8)] = rng.randbytes(rng.randint(0, 8))
        frames.append(bytes(frame))
    stream = b"".join(frames)
    return version, stream[: rng.randint(0, len(stream))] if rng.random() < 0.3 else stream


def differences(kernel: TakeRun, rng: random.Random) -> tuple[Any, Any]:
    """Return what both forms take from a stream. Both should be equal."""
    version, stream = hostile_stream(rng)
    numbers = (rng.choice([0, 1 << 40]), rng.choice([0, 7]), rng.choice([0, 5]), MAX_BYTES)
    found = []
    for take in (kernel, take_run_in_python):
        data = bytearray(stream)
        runs, position = [], 0
        while run := take(memoryview(data), position, len(data), version, key_of(version), FORM, OFFSET_AT, *numbers):
            position, parts, *others = run
            runs.append((position, b"".join(parts), *others))
        found.append(runs)
    return found[0], found[1]


def main(path: str, seed: str, count: str) -> None:
    kernel = load_kernel(Path(path))
    taken = 0
    for number in range(int(count)):
        ours, theirs = differences(kernel, random.Random(f"{seed} {number}"))
        assert ours == theirs, f"seed {seed} {number}"
        taken += len(ours)
    print(f"{taken} runs")


if __name__ == "__main__":
    main(*sys.argv[1:])
