"""A network in memory: hosts, links that delay or drop, and TCP connections between processes.

Bytes of one connection arrive in order. Each segment takes a time drawn from the seed, so connections overtake each
other. A blocked link keeps the segments, as retransmission does, and delivers them when it is healed. A link is blocked
in one direction. A host without power answers nothing; one whose process has ended refuses connections.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable
from contextvars import Context
from random import Random
from typing import Any, Final, NamedTuple

from skylog.simulation.loop import VirtualLoop
from skylog.simulation.process import Process, current_process
from skylog.simulation.sockets import ListeningSocket, StreamServer, StreamTransport, TcpSocket
from skylog.simulation.trace import STORE_PORT, Trace

LATENCY_S: Final = 0.0005
SLOWER: Final = 40  # one segment in a hundred takes this many times as long
RETRANSMIT_S: Final = 1.0
GIVE_UP_AFTER: Final = 40
_GAP_S: Final = 1e-6
_FIRST_DESCRIPTOR: Final = 1_000_000
_FIRST_PORT: Final = 40_000

Deliver = Callable[[], None]
Link = tuple[str, str]


class Hold(NamedTuple):
    """One segment to come that will take longer: the first of a host that matches."""

    source: str
    matches: Callable[[bytes], bool]
    seconds: float
    then: Callable[[], object]


class Network:
    """All hosts and connections. Links are pairs of host names, from sender to receiver."""

    def __init__(self, loop: VirtualLoop, rng: Random, trace: Trace) -> None:
        self.loop = loop
        self.trace = trace
        self.sockets: dict[int, ListeningSocket | TcpSocket] = {}
        self.latency_s = LATENCY_S
        """The longest time that a segment usually takes."""
        self._rng = rng
        self._kernel = Context()
        self._next_descriptor = _FIRST_DESCRIPTOR
        self._next_port = _FIRST_PORT
        self._listening: dict[tuple[str, int], ListeningSocket] = {}
        self._blocked: set[Link] = set()
        self._kept: defaultdict[Link, list[Deliver]] = defaultdict(list)
        self._delays: dict[Link, float] = {}
        self._flushed_at: dict[Link, float] = {}  # when the kept segments of a link arrive
        self._without_power: set[str] = set()
        self._holds: list[Hold] = []
        self._stalled: set[Link] = set()

    def new_descriptor(self) -> int:
        self._next_descriptor += 1
        return self._next_descriptor

    # -- faults

    def block(self, source: str, target: str) -> None:
        self._blocked.add((source, target))

    def heal(self, source: str, target: str) -> None:
        """Let segments pass again. Those that were kept arrive first, after the time of a retransmission."""
        link = source, target
        self._blocked.discard(link)
        kept = self._kept.pop(link, [])
        if kept:
            arrives_at = self._flushed_at[link] = self.loop.time() + self._rng.random() * RETRANSMIT_S
            self.loop.call_at(arrives_at, lambda: self._arrive_together(link, kept), context=self._kernel)

    def heal_all(self) -> None:
        for source, target in sorted(self._blocked):
            self.heal(source, target)
        self._delays.clear()
        self._holds.clear()
        for source, target in sorted(self._stalled):
            self.let_send(source, target)

    def delay(self, source: str, target: str, seconds: float) -> None:
        """Let each segment take up to this much longer."""
        self._delays[source, target] = seconds

    def hold_next(
        self, source: str, matches: Callable[[bytes], bool], seconds: float, then: Callable[[], object] = lambda: None
    ) -> None:
        """Let the next segment of a host that matches take this much longer. `then` is called when it is sent."""
        self._holds.append(Hold(source, matches, seconds, then))

    def held_s(self, source: str, data: bytes) -> float:
        """Return how much longer a segment takes that is sent now."""
        for hold in self._holds:
            if hold.source == source and hold.matches(data):
                self._holds.remove(hold)
                self.trace.add(source, f"this is held back for {hold.seconds:.1f} s")
                self.loop.call_soon(hold.then, context=self._kernel)
                return hold.seconds
        return 0.0

    def stall(self, source: str, target: str) -> None:
        """Let a host believe that its connections to another one are full: it keeps what it has to send."""
        self._stalled.add((source, target))

    def let_send(self, source: str, target: str) -> None:
        self._stalled.discard((source, target))
        for sock in list(self.sockets.values()):
            if isinstance(sock, TcpSocket) and (sock.host, sock.peer_host) == (source, target):
                sock.check_room()

    def is_stalled(self, source: str, target: str) -> bool:
        return (source, target) in self._stalled

    def reset(self, first: str, second: str) -> None:
        """Break the connections between two hosts."""
        for sock in list(self.sockets.values()):
            if isinstance(sock, TcpSocket) and {sock.host, sock.peer_host} == {first, second}:
                sock.break_off()

    def cut_power(self, host: str) -> None:
        """Drop everything a host has, without a word to the others."""
        self._without_power.add(host)
        for sock in self._of_host(host):
            self._forget(sock)

    def power_on(self, host: str) -> None:
        self._without_power.discard(host)

    def end_process(self, process: Process) -> None:
        """Close what a process has left open, as its kernel does."""
        for sock in self._of_host(process.host):
            if sock.process is process:
                sock.close()

    def _of_host(self, host: str) -> list[ListeningSocket | TcpSocket]:
        return [sock for sock in self.sockets.values() if sock.host == host]

    def _forget(self, sock: ListeningSocket | TcpSocket) -> None:
        self.sockets.pop(sock.fileno(), None)
        if isinstance(sock, ListeningSocket):
            self._listening.pop((sock.host, sock.port), None)

    # -- segments

    def transmit(
        self, source: str, target: str, deliver: Deliver, not_before: float = 0.0, held_s: float = 0.0
    ) -> float:
        """Call `deliver` when a segment arrives. Return the time, or that of the sending while the link is blocked."""
        now = self.loop.time()
        link = source, target
        if link in self._blocked:
            self._kept[link].append(deliver)
            return max(now, not_before)
        arrives_at = max(
            max(not_before, self._flushed_at.get(link, 0.0)) + _GAP_S,  # timers of the same time have no order
            now + self._latency_s(link) + held_s,
        )
        self.loop.call_at(arrives_at, lambda: self._arrive(link, deliver, 0), context=self._kernel)
        return arrives_at

    def _latency_s(self, link: Link) -> float:
        rng = self._rng
        scale = self.latency_s * SLOWER if rng.random() < 0.01 else self.latency_s
        return 0.0001 + rng.random() * (scale + self._delays.get(link, 0.0))

    def _arrive_together(self, link: Link, kept: list[Deliver]) -> None:
        for deliver in kept:
            self._arrive(link, deliver, 0)

    def _arrive(self, link: Link, deliver: Deliver, attempt: int) -> None:
        if link[1] not in self._without_power:
            deliver()
        elif attempt < GIVE_UP_AFTER:
            again = lambda: self._arrive(link, deliver, attempt + 1)  # noqa: E731
            self.loop.call_later(RETRANSMIT_S, again, context=self._kernel)

    # -- connections

    def bind(self, sock: ListeningSocket, port: int) -> None:
        if (sock.host, port) in self._listening:
            raise OSError(98, f"{sock.host}:{port} is in use")
        self._listening[sock.host, port] = sock
        self.sockets[sock.fileno()] = sock

    def unbind(self, sock: ListeningSocket | TcpSocket) -> None:
        self._forget(sock)

    async def connect(self, target: str, port: int) -> TcpSocket:
        """Connect the current process. Raises ConnectionRefusedError; waits for ever for a host that is silent."""
        process = _running_process()
        connected: asyncio.Future[TcpSocket] = self.loop.create_future()
        self._next_port += 1
        own_port = self._next_port

        def arrive() -> None:
            listening = self._listening.get((target, port))
            if listening is None:
                self.transmit(target, process.host, refuse)
                return
            near = TcpSocket(self, process, process.host, own_port, target, port)
            far = TcpSocket(self, listening.process, target, port, process.host, own_port)
            near.other, far.other = far, near
            self.sockets[near.fileno()], self.sockets[far.fileno()] = near, far
            listening.offer(far)
            far.arrived_at = self.transmit(target, process.host, lambda: answer(near))

        def answer(near: TcpSocket) -> None:
            if connected.done() or not process.is_alive:
                near.close()
            else:
                connected.set_result(near)

        def refuse() -> None:
            if not connected.done():
                connected.set_exception(ConnectionRefusedError(111, f"{target}:{port} refuses connections"))

        self.transmit(process.host, target, arrive)
        return await connected

    async def open_stream(self, protocol_factory: Callable[[], Any], host: str, port: int) -> tuple[Any, Any]:
        sock = await self.connect(host, port)
        protocol = protocol_factory()
        return StreamTransport(self.loop, sock, protocol), protocol

    def serve_streams(self, protocol_factory: Callable[[], Any], port: int) -> StreamServer:
        process = _running_process()
        listening = ListeningSocket(self, process)
        listening.bind((process.host, port or STORE_PORT))  # only the store leaves the choice to the system
        return StreamServer(self.loop, listening, protocol_factory)


def _running_process() -> Process:
    process = current_process()
    assert process is not None, "only simulated processes use the network"
    return process
