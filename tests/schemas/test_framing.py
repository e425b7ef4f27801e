from __future__ import annotations

import pytest

from skylog.schemas.framing import FrameError, frame, unframe


def test_a_frame_is_a_zero_byte_and_the_id_in_four_bytes() -> None:
    assert frame(0x01020304, b"abc") == b"\x00\x01\x02\x03\x04abc"


def test_a_frame_comes_apart_again_without_a_copy() -> None:
    value = frame(7, b"payload")
    found = unframe(value)
    assert (found.schema_id, bytes(found.payload)) == (7, b"payload")
    assert found.payload.obj is value


@pytest.mark.parametrize(("value", "reason"), [(b"", "0 bytes"), (b"\x00\x00\x00\x00", "4 bytes"), (b"{}    ", "0x7b")])
def test_other_values_are_refused_with_the_reason(value: bytes, reason: str) -> None:
    with pytest.raises(FrameError, match=reason):
        unframe(value)
