"""The simulated network: order within a connection, blocked links, ends of processes and of machines."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random

import pytest

from skylog.simulation.loop import DeadlockError, VirtualLoop
from skylog.simulation.network import Network
from skylog.simulation.process import Process
from skylog.simulation.trace import Trace

PORT = 9


class Hosts:
    """A server that keeps what it receives, and a client."""

    def __init__(self) -> None:
        self.loop = VirtualLoop(Random(1))
        self.network = self.loop.network = Network(self.loop, Random(2), Trace(self.loop.time))
        self.server, self.client = Process("server", "server"), Process("client", "client")
        self.received = bytearray()
        self.is_over = False

    async def serve(self) -> None:
        async def keep(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
            while data := await reader.read(100):
                self.received += data
            self.is_over = True

        await asyncio.start_server(keep, "server", PORT)

    def run(self, scenario: Callable[[], Awaitable[None]]) -> None:
        async def play() -> None:
            await self.server.call(self.loop.create_task, self.serve())
            await self.client.call(self.loop.create_task, scenario())

        self.loop.run_until_complete(play())
        self.loop.release()


def test_bytes_arrive_in_order_however_long_each_segment_takes() -> None:
    hosts = Hosts()

    async def scenario() -> None:
        _, writer = await asyncio.open_connection("server", PORT)
        for number in range(200):
            writer.write(bytes([number]))
        await asyncio.sleep(10)
        assert hosts.received == bytes(range(200))

    hosts.run(scenario)


def test_a_blocked_link_keeps_what_is_sent_until_it_is_healed() -> None:
    hosts = Hosts()

    async def scenario() -> None:
        _, writer = await asyncio.open_connection("server", PORT)
        writer.write(b"a")
        await asyncio.sleep(1)
        hosts.network.block("client", "server")
        writer.write(b"b")
        await asyncio.sleep(60)
        assert hosts.received == b"a"
        hosts.network.heal("client", "server")
        writer.write(b"c")
        await asyncio.sleep(5)
        assert hosts.received == b"abc"

    hosts.run(scenario)


def test_a_process_that_is_killed_ends_its_connections_and_refuses_others() -> None:
    hosts = Hosts()

    async def scenario() -> None:
        reader, _ = await asyncio.open_connection("server", PORT)
        hosts.server.end()
        hosts.network.end_process(hosts.server)
        assert await reader.read(1) == b""
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("server", PORT)

    hosts.run(scenario)


def test_a_machine_without_power_says_nothing() -> None:
    hosts = Hosts()

    async def scenario() -> None:
        reader, _ = await asyncio.open_connection("server", PORT)
        hosts.server.end()
        hosts.network.cut_power("server")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reader.read(1), 20)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.open_connection("server", PORT), 20)

    hosts.run(scenario)


def test_a_paused_process_goes_on_with_what_it_has_missed() -> None:
    hosts = Hosts()

    async def scenario() -> None:
        _, writer = await asyncio.open_connection("server", PORT)
        hosts.server.pause()
        writer.write(b"a")
        await asyncio.sleep(20)
        assert hosts.received == b""
        hosts.loop.resume(hosts.server)
        await asyncio.sleep(1)
        assert hosts.received == b"a"

    hosts.run(scenario)


def test_virtual_time_costs_nothing_and_a_deadlock_is_found() -> None:
    loop = VirtualLoop(Random(1))
    began = loop.time()
    loop.run_until_complete(asyncio.sleep(1_000_000))
    assert loop.time() == began + 1_000_000
    with pytest.raises(DeadlockError):
        loop.run_until_complete(loop.create_future())
    loop.release()


def test_one_segment_is_held_back_and_what_follows_on_its_connection_waits_for_it() -> None:
    hosts = Hosts()
    held: list[float] = []

    async def scenario() -> None:
        _, writer = await asyncio.open_connection("server", PORT)
        hosts.network.hold_next("client", lambda data: data == b"b", 5, lambda: held.append(hosts.loop.time()))
        began = hosts.loop.time()
        for data in (b"a", b"b", b"b"):
            writer.write(data)
        await asyncio.sleep(1)
        assert hosts.received == b"a"
        assert held == [began]
        _, other = await asyncio.open_connection("server", PORT)
        other.write(b"b")  # another connection overtakes it, and only one segment is held back
        await asyncio.sleep(1)
        assert hosts.received == b"ab"
        await asyncio.sleep(5)
        assert hosts.received == b"abbb"

    hosts.run(scenario)


def test_a_stalled_host_keeps_what_it_sends_until_it_may_go_on() -> None:
    hosts = Hosts()

    async def scenario() -> None:
        _, writer = await asyncio.open_connection("server", PORT)
        hosts.network.stall("client", "server")
        writer.write(b"a")
        await asyncio.sleep(5)
        assert hosts.received == b""
        assert writer.transport.get_write_buffer_size() == 1
        hosts.network.heal_all()
        await asyncio.sleep(1)
        assert hosts.received == b"a"

    hosts.run(scenario)
