"""Clients of librdkafka as they are made."""

from __future__ import annotations

import signal

import pytest

from skylog.client import Connection


class Interrupting(str):
    """The name of a setting during whose reading somebody presses Ctrl-C."""

    def __str__(self) -> str:
        signal.raise_signal(signal.SIGINT)
        return "group.id"


def test_ctrl_c_while_a_client_is_made_is_ctrl_c_and_nothing_else() -> None:
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        Connection("127.0.0.1:1").consumer({Interrupting("group.id"): "g"})
    assert signal.getsignal(signal.SIGINT) is before
