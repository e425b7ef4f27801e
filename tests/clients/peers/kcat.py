"""kcat, the command line client over an older librdkafka, behind the producing and reading half of a peer."""

from __future__ import annotations

import json
import re
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from .peer import CODECS, PATIENCE_S, At, Code, Place, Position, Refused, Tail
from .record import Record

# kcat prints librdkafka's texts, not codes.
_CODE_OF_TEXT = {
    "Message size too large": Code.MESSAGE_TOO_LARGE,
    "Unknown topic or partition": Code.UNKNOWN_TOPIC_OR_PARTITION,
    "Invalid topic": Code.INVALID_TOPIC_EXCEPTION,
    "Local: Unknown topic": Code.INVALID_TOPIC_EXCEPTION,  # the broker has refused the name before the first message
}


class KcatReader:
    """Lines of a running consumer; a timer ends a process that stays silent, which ends the reading."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def take(self, count: int) -> list[Record]:
        return [self._next() for _ in range(count)]

    def _next(self) -> Record:
        assert self._process.stdout is not None
        timer = threading.Timer(PATIENCE_S, self._process.kill)
        timer.start()
        try:
            line = self._process.stdout.readline()
        finally:
            timer.cancel()
        if not line:
            raise TimeoutError("kcat ended or said nothing")
        return _record(json.loads(line))

    def settle(self) -> None:
        """Wait for the remark that the end was reached."""
        assert self._process.stderr is not None
        for line in self._process.stderr:
            if "Reached end" in line:
                return
        raise TimeoutError("kcat never reached the end")


def _record(fields: dict[str, Any]) -> Record:
    names_and_values = fields.get("headers", [])
    pairs = zip(names_and_values[::2], names_and_values[1::2], strict=True)
    headers = tuple((name, None if value is None else value.encode()) for name, value in pairs)
    value, key = (None if fields[name] is None else fields[name].encode() for name in ("payload", "key"))
    return Record(value, key, headers, fields["ts"], fields["offset"])


class KcatPeer:
    """kcat gives one producing call one set of headers and the time of the call, and JSON output wants UTF-8."""

    codecs = CODECS

    def __init__(self, bootstrap: str, program: str = "kcat", config: Path | None = None) -> None:
        """`config` is a file with the settings of TLS and logins: `-X` would split a password at its commas."""
        self.bootstrap = bootstrap
        self.program = program
        self._begin = [program, *([] if config is None else ["-F", str(config)]), "-b", bootstrap]

    def run(self, *arguments: str, stdin: str = "") -> str:
        command = [*self._begin, *arguments]
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
        if done.returncode:
            for text, code in _CODE_OF_TEXT.items():
                if text in done.stderr:
                    raise Refused(code, done.stderr)
            raise AssertionError(f"kcat {' '.join(arguments)}: {done.stderr}")
        return done.stdout

    def produce(
        self,
        topic: str,
        partition: int,
        records: Sequence[Record],
        *,
        codec: str = "none",
        acks: str = "all",
        idempotent: bool = False,
    ) -> None:
        """Runs of records with equal headers go out by one call; a file per record would cost a process each."""
        settings = ["-z", codec, "-X", f"acks={acks}", "-X", f"enable.idempotence={str(idempotent).lower()}"]
        settings += ["-X", "message.max.bytes=20000000", "-X", "linger.ms=100"]
        headers: list[str] = []
        for name, value in records[0].headers if records else ():
            headers += ["-H", name if value is None else f"{name}={value.decode()}"]
        assert all(record.headers == records[0].headers for record in records)
        lines = "".join(f"{_text(record.key)}\t{_text(record.value)}\n" for record in records)
        # -K splits key from value; -Z turns what is empty into null.
        with tempfile.NamedTemporaryFile("w", suffix=".kcat") as source:
            Path(source.name).write_text(lines)
            self.run("-P", "-t", topic, "-p", str(partition), "-K", "\t", "-Z", *settings, *headers, "-l", source.name)

    @contextmanager
    def open(self, topic: str, partition: int, start: Position) -> Iterator[KcatReader]:
        match start:
            case Place():
                offset = start.value
            case Tail(count):
                offset = f"-{count}"
            case At(timestamp_ms):
                offset = f"s@{timestamp_ms}"
            case int():
                offset = str(start)
        command = [*self._begin, "-C", "-J", "-u", "-t", topic, "-p", str(partition)]
        process = subprocess.Popen(
            [*command, "-o", offset], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, bufsize=1
        )
        with process:
            try:
                reader = KcatReader(process)
                if start is Place.END:
                    reader.settle()
                yield reader
            finally:
                process.terminate()

    def offset_for(self, topic: str, partition: int, at: Place | At) -> int | None:
        match at:
            case Place.BEGINNING:
                time = -2
            case Place.END:
                time = -1
            case At(timestamp_ms):
                time = timestamp_ms
        answer = self.run("-Q", "-t", f"{topic}:{partition}:{time}")
        match = re.search(r"offset (-?\d+)", answer)
        assert match, answer
        offset = int(match[1])
        return None if offset == -1 else offset


def _text(data: bytes | None) -> str:
    return "" if data is None else data.decode()
