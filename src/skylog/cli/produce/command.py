"""The options of `skylog produce`, and the loop that reads and sends lines."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO, Final

import typer

from skylog.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, CodecName, parse_pairs
from skylog.cli.produce.input_format import Arguments, InputError, InputFormat, JsonFormat, TextFormat, header_name
from skylog.errors import SkylogError
from skylog.terminal import byte_progress, fail, note

if TYPE_CHECKING:
    from skylog.cli.produce.sender import Sender

MAX_LINE_BYTES: Final = 100_000_000
DELIVERY_TIMEOUT_S: Final = 30
POLL_EVERY: Final = 256
INTERRUPTED: Final = 130


class Acks(StrEnum):
    NONE = "0"
    LEADER = "1"
    ALL = "all"


def produce(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic to send to.", show_default=False)],
    file: Annotated[Path | None, typer.Option("--file", help="File to read.", show_default="standard input")] = None,
    key: Annotated[str | None, typer.Option("--key", help="The key of every message.")] = None,
    key_separator: Annotated[
        str | None, typer.Option("--key-separator", metavar="SEP", help="Separates key and value in each line.")
    ] = None,
    null_value: Annotated[
        str | None,
        typer.Option("--null-value", metavar="TEXT", help="Send values equal to TEXT as null (tombstones)."),
    ] = None,
    partition: Annotated[
        int | None, typer.Option("--partition", min=0, help="The partition to send to.", show_default="by the key")
    ] = None,
    header: Annotated[
        list[str] | None,
        typer.Option("--header", metavar="NAME=VALUE", help="A header of every message; can be repeated."),
    ] = None,
    json_input: Annotated[
        bool,
        typer.Option(
            "--json-input", help="Each line is a JSON object with key, value, headers…, as printed by tail --json."
        ),
    ] = False,
    codec: Annotated[CodecName, typer.Option("--codec", help="Compression codec.")] = CodecName.NONE,
    acks: Annotated[
        Acks, typer.Option("--acks", help="Acknowledgements to wait for: none, the leader, or all in-sync replicas.")
    ] = Acks.ALL,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Send each line of a file, or of standard input, as a message.

    [bold]echo 'user-7:signed up' | skylog produce events --key-separator :[/]

    [bold]skylog tail events --no-follow --json | skylog produce copy --json-input[/]
    """
    from skylog.cli.produce.sender import Sender
    from skylog.client import Connection

    fixed: Arguments = {}
    if partition is not None:
        fixed["partition"] = partition
    if key is not None:
        fixed["key"] = os.fsencode(key)
    if header:
        fixed["headers"] = [(header_name(name), os.fsencode(value)) for name, value in parse_pairs(header, "--header")]
    line_format = _choose_format(fixed, key, key_separator, null_value, json_input)
    settings = {
        "acks": acks.value,
        "enable.idempotence": acks == Acks.ALL,
        "compression.type": codec.value,
        "message.max.bytes": MAX_LINE_BYTES,
        "message.timeout.ms": DELIVERY_TIMEOUT_S * 1000,
    }
    with ExitStack() as stack:
        source = _open(file, stack)
        sender = Sender(Connection(bootstrap), topic, settings)
        if partition is not None:
            sender.check_partition(partition)
        _run(source, line_format, sender, file)


def _choose_format(
    fixed: Arguments, key: str | None, key_separator: str | None, null_value: str | None, json_input: bool
) -> InputFormat:
    if json_input:
        if key_separator is not None or null_value is not None:
            raise typer.BadParameter(
                "cannot be combined with --key-separator or --null-value", param_hint="--json-input"
            )
        return JsonFormat(fixed)
    if key_separator is not None and key is not None:
        raise typer.BadParameter("cannot be combined with --key", param_hint="--key-separator")
    if key_separator == "":
        raise typer.BadParameter("must not be empty", param_hint="--key-separator")
    return TextFormat(
        fixed,
        None if key_separator is None else os.fsencode(key_separator),
        None if null_value is None else os.fsencode(null_value),
    )


def _open(file: Path | None, stack: ExitStack) -> BinaryIO:
    if file is None:
        return sys.stdin.buffer
    try:
        return stack.enter_context(open(file, "rb"))
    except OSError as error:
        raise SkylogError(f"cannot read --file {file}: {error.strerror}") from error


def _run(source: BinaryIO, line_format: InputFormat, sender: Sender, file: Path | None) -> None:
    """Send all lines and print the result. Exits with 1 if a message was not delivered."""
    failure: SkylogError | None = None
    started = time.monotonic()
    timeout_s: float = DELIVERY_TIMEOUT_S + 5
    code = 1
    try:
        _send_lines(source, line_format, sender, file)
    except SkylogError as error:
        failure = error
    except KeyboardInterrupt:
        failure, code, timeout_s = SkylogError("interrupted"), INTERRUPTED, 5
    delivered = sender.finish(timeout_s)
    failure = failure or sender.failure
    if failure is None and delivered < sender.accepted_count:
        failure = SkylogError("not all messages were acknowledged in time")
    elapsed_s = time.monotonic() - started
    note(
        f"sent {delivered:,} messages, {sender.accepted_bytes:,} bytes in {elapsed_s:.2f} s "
        f"({delivered / max(elapsed_s, 1e-9):,.0f} messages/s)"
    )
    if failure is not None:
        lost = sender.accepted_count - delivered
        fail(f"{failure}; {lost:,} messages were not delivered" if lost else str(failure), code)


def _send_lines(source: BinaryIO, line_format: InputFormat, sender: Sender, file: Path | None) -> None:
    typed = file is None and source.isatty()
    if typed:
        note("each line that you type is a message; Ctrl-D ends")
    total = file.stat().st_size if file is not None and file.is_file() else None
    with byte_progress(shown=not typed) as progress:
        task = progress.add_task(str(file or "stdin"), total=total or None)
        advance: Callable[..., None] = partial(progress.update, task)
        read_bytes = 0
        for number, line in enumerate(iter(partial(source.readline, MAX_LINE_BYTES), b""), start=1):
            read_bytes += len(line)
            try:
                sender.send(line_format.parse(line[:-1] if line[-1] == 10 else line))
            except InputError as error:
                raise InputError(f"line {number}: {error}") from error
            if typed or number % POLL_EVERY == 0:
                sender.poll()
                advance(completed=read_bytes)
