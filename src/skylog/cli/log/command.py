"""The commands `skylog log dump` and `skylog log verify`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from skylog.cli.options import AsJson
from skylog.errors import SkylogError
from skylog.printable import escape_controls, iso_time, json_text
from skylog.terminal import byte_progress, print_json, write

if TYPE_CHECKING:
    from skylog.cli.log.log_check import LogReport
    from skylog.cli.log.segment_files import LogFiles, ReadOnlyFile, SegmentFile
    from skylog.cli.message_view import FileMessage
    from skylog.records import BatchHeader

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="""Inspect log files on disk, without a broker and without changing them.

    [bold]skylog log verify skylog-data[/]
    """,
)

Paths = Annotated[
    list[Path],
    typer.Argument(
        metavar="DIR|FILE…", help="Data directories, partition directories or .log files.", show_default=False
    ),
]

_COLUMNS = ("BASE OFFSET", "LAST OFFSET", "POSITION", "SIZE", "COUNT", "CODEC", "MAX TIMESTAMP", "PRODUCER", "FLAGS")
_ROW = "{:>12} {:>12} {:>11} {:>9} {:>7} {:<6} {:<24} {:<22} {}\n"


@app.command("dump")
def dump(
    paths: Paths,
    records: Annotated[bool, typer.Option("--records", help="Also list the records of each batch.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object per batch, for scripts.")] = False,
) -> None:
    """List the batches of log files: offsets, position, size, codec, timestamps, producer, leader epoch.

    Checks every batch. If a file is damaged, the listing stops at the first bad byte, with exit code 1.

    [bold]skylog log dump skylog-data/orders-0 --records[/]
    """
    from skylog.cli.log.segment_files import find_logs
    from skylog.storage.scan import TornLogError

    for log in find_logs(paths):
        for segment in log.segments:
            try:
                _dump_segment(segment, log, records, json)
            except TornLogError as torn:
                raise SkylogError(
                    f"{segment.path}: byte {torn.position}: {torn}; see: skylog log verify {segment.path}"
                ) from torn


def _dump_segment(segment: SegmentFile, log: LogFiles, records: bool, json: bool) -> None:
    if not json:
        write(f"{escape_controls(str(segment.path))}\n{_ROW.format(*_COLUMNS)}")
    for file, position, header in segment.batches():
        if json:
            document = _batch_object(segment, position, header)
            if records:
                document["records"] = list(_record_objects(log, file, position, header))
            write(json_text(document) + "\n")
        else:
            write(_batch_row(position, header))
            if records:
                _write_records(log, file, position, header)


def _batch_object(segment: SegmentFile, position: int, header: BatchHeader) -> dict[str, Any]:
    return {
        "file": str(segment.path),
        "position": position,
        "size_bytes": header.size_bytes,
        "base_offset": header.base_offset,
        "last_offset": header.last_offset,
        "count": header.record_count,
        "codec": header.codec.name.lower(),
        "base_timestamp": iso_time(header.base_timestamp),
        "max_timestamp": iso_time(header.max_timestamp),
        "timestamp_type": "LogAppendTime" if header.is_log_append_time else "CreateTime",
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "base_sequence": header.base_sequence,
        "leader_epoch": header.partition_leader_epoch,
        "is_transactional": header.is_transactional,
        "is_control": header.is_control,
        "crc": f"{header.crc:#010x}",
    }


def _batch_row(position: int, header: BatchHeader) -> str:
    producer = "-"
    if header.producer_id >= 0:
        producer = f"{header.producer_id}/{header.producer_epoch} seq {header.base_sequence}"
    flags = [
        f"epoch={header.partition_leader_epoch}",
        *(["append-time"] if header.is_log_append_time else []),
        *(["transactional"] if header.is_transactional else []),
        *(["control"] if header.is_control else []),
    ]
    return _ROW.format(
        header.base_offset,
        header.last_offset,
        position,
        header.size_bytes,
        header.record_count,
        header.codec.name.lower(),
        iso_time(header.max_timestamp) or "-",
        producer,
        " ".join(flags),
    )


def _messages(log: LogFiles, file: ReadOnlyFile, position: int, header: BatchHeader) -> Iterator[FileMessage]:
    from skylog.cli.message_view import FileMessage
    from skylog.records import read_records

    topic, _, partition = log.directory.absolute().name.rpartition("-")
    number = int(partition) if partition.isdecimal() else -1
    for record in read_records(file.read(position, header.size_bytes)):
        yield FileMessage(topic, number, record.offset, record.timestamp, record.key, record.value, record.headers)


def _record_objects(log: LogFiles, file: ReadOnlyFile, position: int, header: BatchHeader) -> Iterator[dict[str, Any]]:
    from skylog.message_document import as_object

    for message in _messages(log, file, position, header):
        document = as_object(message)
        del document["topic"], document["partition"]
        yield document


def _write_records(log: LogFiles, file: ReadOnlyFile, position: int, header: BatchHeader) -> None:
    from skylog.cli.message_view import as_line

    for message in _messages(log, file, position, header):
        write("    " + as_line(message, meta=True, pretty=False))


@app.command("verify")
def verify(paths: Paths, json: AsJson = False) -> None:
    """Check all CRCs, the order of offsets, and the indexes against the log.

    Prints the first bad byte of each file, the problem, and what a restart of the broker would do. Exits with 1 if it
    finds damage.

    [bold]skylog log verify skylog-data[/]
    """
    from skylog.cli.log.log_check import LogReport, check_log
    from skylog.cli.log.segment_files import find_logs

    logs = find_logs(paths)
    total = sum(segment.path.stat().st_size for log in logs for segment in log.segments)
    report = LogReport()
    with byte_progress(shown=True) as progress:
        task = progress.add_task("checking", total=total)
        for log in logs:
            check_log(log, report, lambda count: progress.advance(task, count))
    if json:
        print_json(_report_object(report))
    else:
        _print_report(report)
    if report.damage:
        sys.exit(1)


def _report_object(report: LogReport) -> dict[str, Any]:
    return {
        "sound": not report.damage,
        "segments": report.segments,
        "batches": report.batches,
        "records": report.records,
        "size_bytes": report.size_bytes,
        "damage": [
            {
                "file": str(each.file),
                "position": each.position,
                "problem": each.problem,
                "consequence": each.consequence,
            }
            for each in report.damage
        ],
    }


def _print_report(report: LogReport) -> None:
    for each in report.damage:
        write(f"{escape_controls(str(each.file))}: byte {each.position}: {each.problem}\n    {each.consequence}\n")
    found = f"{len(report.damage)} damaged" if report.damage else "all sound"
    write(
        f"{report.segments:,} segments, {report.batches:,} batches, {report.records:,} records, "
        f"{report.size_bytes:,} bytes: {found}\n"
    )
