"""The driver's part of a write: sends the batches that tasks have staged, each once.

A batch write leaves nothing behind. A micro-batch leaves its manifest, from which the next attempt learns what was
sent: see `manifest`. In a transaction it needs none, because nothing counts before the commit, and the number of the
micro-batch is part of the transaction: see `transaction`.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Sequence
from pathlib import Path

from skylog.errors import KafkaError
from skylog.model import TopicPartition
from skylog.spark.leaders import Leaders, ProducerId
from skylog.spark.wire import ConnectionLostError
from skylog.spark.writing.manifest import Manifest, ManifestFile, PartitionStart
from skylog.spark.writing.publisher import Publisher
from skylog.spark.writing.staging import StagedFile, check_files, durable_directory, remove_files, remove_staged
from skylog.spark.writing.transaction import ID_PREFIX, Transaction
from skylog.spark.writing.write_options import WriteOptions

logger = logging.getLogger(__name__)

_NO_BATCH = 0


def deliver(options: WriteOptions, files: Sequence[StagedFile]) -> None:
    """Send the staged files of a batch write and delete them."""
    if any(file.batches for file in files):
        check_files(files)
        with _leaders(options) as leaders:
            if options.transactional:
                transaction = Transaction(options, leaders, f"{ID_PREFIX}{uuid.uuid4()}")
                transaction.begin()
                _send_in(transaction, options, leaders, files, None)
            else:
                Publisher(options, leaders, new_manifest(options, leaders, files, _NO_BATCH)).publish(resume=False)
    remove_files(file.path for file in files)


def deliver_micro_batch(options: WriteOptions, directory: Path, batch_id: int, files: Sequence[StagedFile]) -> None:
    """Send the staged files of a micro-batch, unless an earlier attempt has sent it."""
    if options.transactional:
        _transact_micro_batch(options, directory, batch_id, files)
    else:
        _publish_micro_batch(options, directory, batch_id, files)


def _transact_micro_batch(options: WriteOptions, directory: Path, batch_id: int, files: Sequence[StagedFile]) -> None:
    """Send a micro-batch in one transaction, with its number.

    Needs no lock: an earlier attempt that is still sending is fenced. The manifest is from before the query had
    transactions.
    """
    stored = ManifestFile(directory)
    with _leaders(options) as leaders:
        last = stored.read()
        if last is not None and not last.is_done:
            with stored.locked():
                last = _finish_last(options, leaders, stored)
        is_stored = last is not None and batch_id <= last.batch_id
        if not is_stored and any(file.batches for file in files):
            transaction = Transaction(options, leaders, f"{ID_PREFIX}{directory.name}")
            transaction.begin()
            if batch_id >= transaction.next_batch():
                check_files(files)
                _send_in(transaction, options, leaders, files, batch_id)
        remove_staged(directory, batch_id)


def _send_in(
    transaction: Transaction, options: WriteOptions, leaders: Leaders, files: Sequence[StagedFile], batch_id: int | None
) -> None:
    """Send files in a transaction that has begun, and commit it. After an error it is aborted."""
    with transaction.ended_on_error():
        manifest = new_manifest(options, leaders, files, batch_id or 0, producer=transaction.producer)
        transaction.add_partitions(manifest.partitions)
        Publisher(options, leaders, manifest, transaction.transactional_id).publish(resume=False)
        if batch_id is not None:
            transaction.add_batch(batch_id)
        transaction.commit()


def _publish_micro_batch(options: WriteOptions, directory: Path, batch_id: int, files: Sequence[StagedFile]) -> None:
    """Send a micro-batch without a transaction.

    If an earlier attempt has sent a part of it, that attempt's files are completed and these are deleted.
    """
    stored = ManifestFile(directory)
    with stored.locked(), _leaders(options) as leaders:
        last = _finish_last(options, leaders, stored)
        if last is None and durable_directory(options) is None:
            logger.warning(
                "%s is a temporary directory: if it is lost, or the query continues on another machine, an interrupted "
                "micro-batch is written twice; set the option stagingLocation to a persistent directory",
                directory,
            )
        if last is None or batch_id > last.batch_id:
            check_files(files)
            manifest = new_manifest(options, leaders, files, batch_id, last)
            stored.write(manifest)
            Publisher(options, leaders, manifest).publish(resume=False)
            stored.write(manifest.done())
        remove_staged(directory, batch_id)


def _finish_last(options: WriteOptions, leaders: Leaders, stored: ManifestFile) -> Manifest | None:
    """Send the rest of a micro-batch that was interrupted. Return the last one that is stored."""
    last = stored.read()
    if last is not None and not last.is_done:
        logger.warning("micro-batch %d was interrupted; sending the rest of it", last.batch_id)
        Publisher(options, leaders, last).publish(resume=True)
        last = last.done()
        stored.write(last)
    return last


def abandon_micro_batch(directory: Path, batch_id: int) -> None:
    """Delete the staged files of a micro-batch, except those that are being sent: the next attempt needs them."""
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
    producer: ProducerId | None = None,
) -> Manifest:
    """Plan the sending of `files`: by `producer`, by that of `last` if it is still valid, or by a new one."""
    targets = {batch.target for file in files for batch in file.batches}
    now_ms = time.time_ns() // 1_000_000
    deadline = time.monotonic() + options.delivery_timeout_s
    while True:
        try:
            leaders.refresh({key.topic for key in targets})
            end_offsets = leaders.end_offsets(targets)
            goes_on = last is not None and last.can_go_on(now_ms)
            if producer is None:
                producer = last.producer if last is not None and goes_on else leaders.new_producer_id()
            break
        except (ConnectionLostError, KafkaError) as error:
            leaders.back_off(error, deadline)
    partitions: dict[TopicPartition, PartitionStart] = dict(last.partitions) if last is not None and goes_on else {}
    for key in targets:
        partitions[key] = PartitionStart(partitions[key].base_sequence if key in partitions else 0, end_offsets[key])
    return Manifest(
        batch_id, producer, now_ms, partitions, [(file.path, file.batches) for file in files if file.batches]
    )


def _leaders(options: WriteOptions) -> Leaders:
    return Leaders(options.bootstrap, options.request_timeout_ms / 1000, options.security)
