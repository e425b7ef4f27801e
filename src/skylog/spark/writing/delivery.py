"""The driver's part of a write: from the files that tasks have staged to records in the log, each once.

A write without a stream is sent and forgotten. A micro-batch leaves its manifest behind, by which the next attempt
knows what was done: see `manifest`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from pathlib import Path

from skylog.errors import KafkaError
from skylog.model import TopicPartition
from skylog.spark.leaders import Leaders
from skylog.spark.wire import ConnectionLostError
from skylog.spark.writing.manifest import LaneStart, Manifest, ManifestFile
from skylog.spark.writing.publisher import Publisher
from skylog.spark.writing.staging import StagedFile, check_files, lasting_directory, remove_files, remove_staged
from skylog.spark.writing.write_options import WriteOptions

logger = logging.getLogger(__name__)

_NO_BATCH = 0


def deliver(options: WriteOptions, files: Sequence[StagedFile]) -> None:
    """Send what a batch job has staged, and remove it."""
    if any(file.batches for file in files):
        check_files(files)
        with _leaders(options) as leaders:
            Publisher(options, leaders, new_manifest(options, leaders, files, _NO_BATCH)).publish(resume=False)
    remove_files(file.path for file in files)


def deliver_micro_batch(options: WriteOptions, directory: Path, batch_id: int, files: Sequence[StagedFile]) -> None:
    """Send what a micro-batch has staged, unless that has been done, or was begun with files of an earlier attempt."""
    stored = ManifestFile(directory)
    with stored.locked(), _leaders(options) as leaders:
        last = stored.read()
        if last is None and lasting_directory(options) is None:
            logger.warning(
                "%s is a directory for temporary files: if it is lost, or the query goes on elsewhere, an interrupted "
                "micro-batch is written twice; set the option stagingLocation to a directory that stays",
                directory,
            )
        if last is not None and not last.is_done:
            logger.warning("micro-batch %d was interrupted and is now sent to its end", last.batch_id)
            Publisher(options, leaders, last).publish(resume=True)
            last = last.done()
            stored.write(last)
        if last is None or batch_id > last.batch_id:
            check_files(files)
            manifest = new_manifest(options, leaders, files, batch_id, last)
            stored.write(manifest)
            Publisher(options, leaders, manifest).publish(resume=False)
            stored.write(manifest.done())
        remove_staged(directory, batch_id)


def abandon_micro_batch(directory: Path, batch_id: int) -> None:
    """Remove what a micro-batch has staged, unless sending it has begun: then the next attempt needs it."""
    stored = ManifestFile(directory)
    with stored.locked():
        last = stored.read()
        is_begun = last is not None and not last.is_done
        remove_staged(directory, batch_id, keep=[path for path, _ in last.files] if last and is_begun else ())


def new_manifest(
    options: WriteOptions,
    leaders: Leaders,
    files: Sequence[StagedFile],
    batch_id: int,
    last: Manifest | None = None,
) -> Manifest:
    """What is to be sent. Goes on with the producer of `last`, if it may."""
    targets = {batch.target for file in files for batch in file.batches}
    now_ms = time.time_ns() // 1_000_000
    deadline = time.monotonic() + options.delivery_timeout_s
    while True:
        try:
            leaders.learn({key.topic for key in targets})
            end_offsets = leaders.end_offsets(targets)
            goes_on = last is not None and last.can_go_on(now_ms)
            producer = last.producer if last is not None and goes_on else leaders.new_producer_id()
            break
        except (ConnectionLostError, KafkaError) as error:
            leaders.wait_out(error, deadline)
    lanes: dict[TopicPartition, LaneStart] = dict(last.lanes) if last is not None and goes_on else {}
    for key in targets:
        lanes[key] = LaneStart(lanes[key].base_sequence if key in lanes else 0, end_offsets[key])
    return Manifest(batch_id, producer, now_ms, lanes, [(file.path, file.batches) for file in files if file.batches])


def _leaders(options: WriteOptions) -> Leaders:
    return Leaders(options.bootstrap, options.request_timeout_ms / 1000)
