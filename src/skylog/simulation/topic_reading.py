"""What is stored in the end: a topic as a consumer reads it, and the batches in the files of its replicas."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from skylog.model import TopicPartition
from skylog.net.peer import PeerError
from skylog.records import InvalidBatchError, check_batch, iterate_batches
from skylog.simulation.checks import Batches, differing_replicas, holes, wrong_entries
from skylog.simulation.clients.connections import Connections
from skylog.simulation.clients.reader import PartitionReader
from skylog.simulation.history import Value
from skylog.simulation.world import World

REPAIR_PAUSE_S: Final = 2.0
"""The longest time between two reads of a damaged batch, which is repaired by a scrub within a minute."""


@dataclass
class TopicContent:
    """The values of each partition by offset, and the end offsets of those that were read to their end."""

    logs: dict[int, dict[int, Value]] = field(default_factory=dict)
    ends: dict[int, int] = field(default_factory=dict)


def begin_reading(
    world: World,
    topic: str,
    partitions: int,
    *,
    read_committed: bool = False,
    decode: Callable[[bytes], Value] = Value.decode,
) -> TopicContent:
    """Read a topic in processes of its own. The content is complete when it has all `ends`."""
    content = TopicContent()

    async def read(partition: int) -> None:
        connections = Connections("checker", world.hosts, world.rng(f"checker/{topic}/{partition}/{decode.__name__}"))
        reader = PartitionReader(connections, topic, partition, 0, read_committed=read_committed, decode=decode)
        found = content.logs.setdefault(partition, {})
        while partition not in content.ends:
            damaged = reader.damaged
            try:
                messages = await reader.poll() or ()
                for offset in [each for each in found if each < reader.begins_at]:
                    del found[offset]  # the rest up to there was deleted before it was read
                found.update((message.offset, message.value) for message in messages)
            except PeerError:
                connections.forget_leader(topic, partition)
                await connections.pause()
            if reader.damaged > damaged:
                await connections.pause(REPAIR_PAUSE_S)
            if 0 <= reader.high_watermark <= reader.offset:
                content.ends[partition] = reader.offset

    for partition in range(partitions):
        content.logs[partition] = {}
        world.spawn("checker", lambda partition=partition: read(partition))  # type: ignore[misc]
    return content


def compare_replicas(world: World, topic: str, ends: dict[int, int]) -> list[str]:
    """Return the differences between the replicas of a topic, below the end offsets."""
    found = []
    for index, image in enumerate(world.topics()[topic].partitions):
        name = TopicPartition(topic, index)
        start = max(_start_offset(world, node, name) for node in image.replicas)
        folders = {node: world.machines[node].disk.path / str(name) for node in image.replicas}
        replicas = {node: _batches(folder, start) for node, folder in folders.items()}
        found += differing_replicas(str(name), replicas, ends[index])
    return found


def _start_offset(world: World, node: int, name: TopicPartition) -> int:
    """Return where a replica begins. Its files may have deleted batches before that, which nobody repairs."""
    broker = world.machines[node].broker
    partition = broker.replicas.find(name) if broker is not None else None
    return partition.log.log_start_offset if partition is not None else 0


def wrong_indexes(world: World) -> list[str]:
    """Return the holes in the logs of all brokers that serve, and the entries of offset indexes that are wrong.

    What lies behind a damaged batch is not judged: its length may be wrong. A scrub repairs it within a minute.
    """
    found = []
    for machine in world.machines.values():
        for partition in machine.broker.replicas.all() if machine.broker is not None else ():
            name = f"{partition.name} of {machine.host}"
            ends: dict[int, int] = {}
            is_sound = True
            for segment in partition.log._segments:
                data = segment.path.read_bytes()
                batches = list(iterate_batches(data))
                ends |= {header.base_offset: header.end_offset for _, header in batches}
                known_bytes = segment.size_bytes
                if world.has_damage:
                    known_bytes = sound_bytes(data)
                    is_sound = is_sound and known_bytes == len(data)
                entries = segment.offset_index.between(0, known_bytes)
                found += wrong_entries(name, entries, {header.base_offset: at for at, header in batches})
            if is_sound and not partition.log.config.is_compacted:
                found += holes(name, ends)
    return found


def sound_bytes(data: bytes | bytearray) -> int:
    """Return where the first damaged batch of a file begins. Its length may be wrong, and so may all behind it."""
    position = 0
    while position < len(data):
        try:
            position += check_batch(data, position).size_bytes
        except InvalidBatchError:
            break
    return position


def describe_disks(world: World) -> list[str]:
    """Return one line for each log on each disk: its segments, with offsets and leader epochs of their batches."""
    found = []
    for machine in world.machines.values():
        for folder in sorted(path for path in machine.disk.path.iterdir() if path.is_dir()):
            segments = [_describe(path) for path in sorted(folder.glob("*.log"))]
            if any(segments):
                found.append(f"{machine.host} {folder.name}: {'; '.join(segments)}")
    return found


def _describe(path: Path) -> str:
    headers = [header for _, header in iterate_batches(path.read_bytes())]
    epochs = sorted({header.partition_leader_epoch for header in headers})
    if not headers:
        return ""
    return f"{path.name}: offsets {headers[0].base_offset} to {headers[-1].end_offset - 1} of epochs {epochs}"


def _batches(folder: Path, start_offset: int) -> Batches:
    found = {}
    for path in sorted(folder.glob("*.log")):
        data = path.read_bytes()
        for position, header in iterate_batches(data):
            if header.end_offset > start_offset:
                found[header.base_offset] = data[position : position + header.size_bytes]
    return found
