"""Frames are whole and own their memory, however the bytes arrive."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skylog.errors import MalformedRequestError
from skylog.net.frame_memory import SLACK_BYTES, FrameMemory

MAX_FRAME_BYTES = 1 << 20
LARGE = 5 * SLACK_BYTES


def body(number: int, size: int) -> bytes:
    return bytes([number % 251]) * size


def framed(*bodies: bytes) -> bytes:
    return b"".join(struct.pack(">i", len(each)) + each for each in bodies)


def receive(memory: FrameMemory, data: bytes, at_most: int = MAX_FRAME_BYTES) -> tuple[list[memoryview], int]:
    """Let the memory receive everything. Return the frames, and the number of reads that had room left."""
    frames: list[memoryview] = []
    partial_reads = 0
    while data:
        room = memory.room
        count = min(len(room), len(data), at_most)
        room[:count] = data[:count]
        data = data[count:]
        partial_reads += count < len(room)
        frames += memory.received(count)
    return frames, partial_reads


@given(
    st.lists(st.sampled_from([4, 5, 100, SLACK_BYTES - 4, SLACK_BYTES - 3, SLACK_BYTES, LARGE]), max_size=12),
    st.lists(st.integers(1, 3 * SLACK_BYTES), min_size=1, max_size=5),
    st.booleans(),
)
def test_frames_are_whole_however_they_are_cut(sizes: list[int], cuts: list[int], recycles: bool) -> None:
    memory = FrameMemory(MAX_FRAME_BYTES)
    bodies = [body(number, size) for number, size in enumerate(sizes)]
    data = framed(*bodies)
    found: list[bytes] = []
    kept: list[memoryview] = []
    turn = 0
    while data:
        at_most = cuts[turn % len(cuts)]
        turn += 1
        for frame in receive(memory, data[:at_most])[0]:
            found.append(bytes(frame))
            if recycles:
                memory.recycle(frame)
            else:
                kept.append(frame)
        data = data[at_most:]
    assert found == bodies
    assert [bytes(each) for each in kept] == (bodies if not recycles else [])


def test_a_response_like_the_last_one_needs_one_read_that_leaves_room() -> None:
    memory = FrameMemory(MAX_FRAME_BYTES)
    ((frame,), _) = receive(memory, framed(body(1, LARGE)))
    memory.recycle(frame)
    room = memory.room
    assert len(room) > len(framed(body(2, LARGE)))
    assert receive(memory, framed(body(2, LARGE)))[1] == 1


def test_the_memory_of_a_recycled_frame_is_used_again() -> None:
    memory = FrameMemory(MAX_FRAME_BYTES)
    ((frame,), _) = receive(memory, framed(body(1, LARGE)))
    owner = frame.obj
    memory.recycle(frame)
    ((again,), _) = receive(memory, framed(body(2, LARGE)))
    assert again.obj is owner


def test_a_small_read_after_a_huge_frame_does_not_take_the_frames_behind_it() -> None:
    """Whatever follows a large frame in its memory has to be copied."""
    memory = FrameMemory(MAX_FRAME_BYTES)
    ((frame,), _) = receive(memory, framed(body(1, 100 * SLACK_BYTES)))
    memory.recycle(frame)
    ((frame,), _) = receive(memory, framed(body(2, LARGE)))
    memory.recycle(frame)
    assert len(memory.room) == LARGE + 4 + SLACK_BYTES


@pytest.mark.parametrize("size", [-1, 0, 3, MAX_FRAME_BYTES + 1])
def test_an_impossible_size_is_an_error(size: int) -> None:
    with pytest.raises(MalformedRequestError, match=f"a frame of {size} bytes"):
        receive(FrameMemory(MAX_FRAME_BYTES), struct.pack(">i", size))
