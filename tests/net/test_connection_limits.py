"""Limits of connections: the decisions, and a listener that follows them."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skylog.config import parse
from skylog.errors import ConfigError
from skylog.net import NetConfig
from skylog.net.connection_limits import ConnectionLimits, Limits, ListenerLimits, Refusal
from skylog.testing import wait_until as until

from .server import Client, NetServer
from .test_connection import echo

HERE = "127.0.0.1"


class TestDecisions:
    def test_an_address_with_too_many_connections_is_refused_until_one_ends(self) -> None:
        limits = ConnectionLimits(Limits(per_address=2, overrides={"b": 1}))
        assert [limits.admit(address, 0.0)[0] for address in "aab"] == [None] * 3
        assert [limits.admit(address, 0.0)[0] for address in "ab"] == [Refusal.TOO_MANY] * 2
        limits.release("a")
        assert limits.admit("a", 0.0)[0] is None
        assert (limits.total, limits.refused[Refusal.TOO_MANY]) == (3, 2)

    def test_nothing_is_accepted_while_there_are_too_many(self) -> None:
        limits = ConnectionLimits(Limits(total=1))
        assert limits.wait_s(0.0) == 0
        limits.admit("a", 0.0)
        assert limits.wait_s(0.0) == inf
        limits.reconfigure(Limits(total=2))
        assert limits.wait_s(0.0) == 0

    @given(pauses=st.lists(st.floats(0, 0.2), max_size=300))
    def test_the_rate_of_all_is_kept(self, pauses: list[float]) -> None:
        limits, now_s = ConnectionLimits(Limits(rate=5)), 0.0
        for accepted, pause_s in enumerate(pauses, 1):
            now_s += pause_s
            while (wait_s := limits.wait_s(now_s)) > 0:
                now_s += wait_s
            limits.admit("a", now_s)
            assert accepted <= 5 * (now_s + 11) + 1

    def test_an_address_that_is_too_fast_waits_and_others_do_not(self) -> None:
        limits = ConnectionLimits(Limits())
        limits.connection_rate = {"a": 1.0}.get
        assert [limits.admit("a", 0.0)[0] for _ in range(10)] == [None] * 10
        refusal, wait_s = limits.admit("a", 0.0)
        assert (refusal, 0 < wait_s <= 1) == (Refusal.TOO_FAST, True)
        assert limits.admit("b", 0.0)[0] is None
        assert limits.admit("a", 12.0)[0] is None  # the refused one was not counted
        assert limits.total == 12

    def test_a_full_listener_leaves_the_others_their_places(self) -> None:
        limits = ConnectionLimits(Limits(total=3, listeners={"public": ListenerLimits(total=1)}))
        limits.admit("a", 0.0, "public")
        assert (limits.wait_s(0.0, "public"), limits.wait_s(0.0, "internal")) == (inf, 0)
        limits.release("a", "public")
        assert limits.wait_s(0.0, "public") == 0

    def test_a_listener_with_room_waits_while_the_broker_is_full(self) -> None:
        limits = ConnectionLimits(Limits(total=1, listeners={"public": ListenerLimits(total=5)}))
        limits.admit("a", 0.0, "other")
        assert limits.wait_s(0.0, "public") == inf
        assert limits.wait_s(0.0, "between", is_protected=True) == 0

    def test_the_protected_listener_has_a_limit_of_its_own(self) -> None:
        limits = ConnectionLimits(Limits(total=5, listeners={"between": ListenerLimits(total=1)}))
        limits.admit("a", 0.0, "between", is_protected=True)
        assert limits.wait_s(0.0, "between", is_protected=True) == inf

    def test_a_listener_that_gets_too_many_at_once_waits_and_others_do_not(self) -> None:
        limits = ConnectionLimits(Limits(listeners={"public": ListenerLimits(rate=1)}))
        while not limits.wait_s(0.0, "public"):
            limits.admit("a", 0.0, "public")
        assert limits.total <= 12
        assert limits.wait_s(0.0, "other") == 0
        assert limits.wait_s(12.0, "public") == 0


def test_overrides_are_addresses_with_counts() -> None:
    key = "max.connections.per.ip.overrides"
    config = parse(NetConfig, {key: "127.0.0.1:200,[::1]:50"})
    assert config.max_connections_per_ip_overrides == ("127.0.0.1:200", "[::1]:50")
    for text in ("127.0.0.1", "localhost:1", "127.0.0.1:-1", "127.0.0.1:x"):
        with pytest.raises(ConfigError, match="expected IP addresses"):
            parse(NetConfig, {key: text})


def test_connections_of_an_address_beyond_its_limit_are_closed_and_others_stay() -> None:
    with NetServer(echo, max_connections_per_ip=2) as server, Client(server) as one, Client(server) as two:
        assert one.ask(b"1") == two.ask(b"1") == b"1"
        with Client(server) as three:
            assert three.is_closed()
        two.socket.close()
        until(lambda: server.do(lambda: server.listener.limits.total) == 1, "the place to be free")
        with Client(server) as four:
            assert four.ask(b"4") == b"4"


def test_connections_beyond_the_limit_of_all_wait_until_others_end() -> None:
    with NetServer(echo, max_connections=2) as server, Client(server) as one, Client(server) as two:
        assert one.ask(b"1") == two.ask(b"1") == b"1"
        with Client(server) as three:
            three.send(b"3")
            assert three.is_silent(0.2)
            assert one.ask(b"1") == b"1"
            two.socket.close()
            assert three.receive() == b"3"


def test_another_limit_counts_at_once() -> None:
    with NetServer(echo, max_connections=1) as server, Client(server) as one:
        assert one.ask(b"1") == b"1"
        with Client(server) as two:
            two.send(b"2")
            assert two.is_silent(0.1)
            server.do(lambda: server.listener.reconfigure(replace(NetConfig(), max_connections=2)))
            assert two.receive() == b"2"


def test_a_broker_takes_the_place_of_the_connection_that_is_idle_longest() -> None:
    with NetServer(echo, max_connections=2) as server:
        own = server.run(server.listener.listen("127.0.0.1", 0, name="BETWEEN", is_protected=True))
        with Client(server) as idle, Client(server) as busy:
            assert idle.ask(b"i") == b"i"
            assert busy.ask(b"b") == b"b"
            with Client(server) as waiting:
                server.port = own
                with Client(server) as broker:
                    assert broker.ask(b"x") == b"x"
                    assert idle.is_closed()
                    assert busy.ask(b"b") == b"b"
                    assert waiting.is_silent(0.05)


def test_connections_beyond_the_limit_of_a_listener_wait_and_other_listeners_serve() -> None:
    with NetServer(echo) as server:
        only_one = replace(NetConfig(), by_listener={("public", "max.connections"): 1})
        server.do(lambda: server.listener.reconfigure(only_one))
        other, server.port = server.port, server.run(server.listener.listen("127.0.0.1", 0, name="PUBLIC"))
        with Client(server) as one, Client(server) as two:
            assert one.ask(b"1") == b"1"
            two.send(b"2")
            assert two.is_silent(0.1)
            server.port = other
            with Client(server) as three:
                assert three.ask(b"3") == b"3"
            one.socket.close()
            assert two.receive() == b"2"


def test_an_address_that_connects_too_fast_is_closed_after_a_wait() -> None:
    with NetServer(echo) as server:
        server.do(lambda: setattr(server.listener.limits, "connection_rate", {HERE: 0.1}.get))
        with Client(server) as one, Client(server) as two:
            assert one.ask(b"1") == b"1"
            assert two.is_closed()
            assert one.ask(b"1") == b"1"


def test_the_rate_of_all_makes_further_connections_wait() -> None:
    with NetServer(echo, max_connection_creation_rate=1) as server:
        clients = [Client(server) for _ in range(12)]  # a burst of ten is free
        try:
            for client in clients:
                client.send(b"x")
            for client in clients[:10]:
                assert client.receive() == b"x"
            assert clients[-1].receive() == b"x"
        finally:
            for client in clients:
                client.socket.close()
