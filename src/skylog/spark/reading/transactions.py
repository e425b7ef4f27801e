"""Finds the batches of aborted transactions in a Fetch response, for read_committed (KIP-98).

The response lists the aborted transactions that overlap it, each with its producer and its first offset. A transaction
ends at the next abort marker of its producer, a control batch. The response itself ends at the last stable offset, so
it has no batch of an open transaction. Independent of sockets, Arrow and Spark.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from skylog.protocol.fetch import AbortedTransaction
from skylog.records import read_records
from skylog.records.batch import CONTROL, LOG_OVERHEAD_BYTES, TRANSACTIONAL

_MARKER_KEY: Final = Struct(">hh")  # version and type
_ABORT: Final = 0


def committed_batches(
    records: memoryview, headers: NDArray[Any], positions: NDArray[np.int64], aborted: Sequence[AbortedTransaction]
) -> NDArray[np.bool_]:
    """Return a mask of the batches that belong to no aborted transaction. Control batches count as committed.

    `headers` and `positions` are the batches of `records`, in offset order. Only batches of producers in `aborted` are
    looked at one by one.
    """
    found = np.ones(len(headers), dtype=np.bool_)
    if not aborted:
        return found
    waiting = sorted(aborted, key=lambda each: each.first_offset, reverse=True)
    producers = headers["producer_id"].astype(np.int64)
    suspects = np.isin(producers, [each.producer_id for each in waiting])
    suspects &= headers["attributes"] & TRANSACTIONAL != 0
    last_offsets = headers["base_offset"] + headers["last_offset_delta"]
    aborting: set[int] = set()
    for index in np.flatnonzero(suspects).tolist():
        while waiting and waiting[-1].first_offset <= last_offsets[index]:
            aborting.add(waiting.pop().producer_id)
        producer = int(producers[index])
        if headers["attributes"][index] & CONTROL:
            if _is_abort(records, int(positions[index]), headers[index]):
                aborting.discard(producer)
        elif producer in aborting:
            found[index] = False
    return found


def _is_abort(records: memoryview, position: int, header: Any) -> bool:
    """Return whether a control batch has an abort marker. It is empty if compaction removed its marker."""
    end = position + LOG_OVERHEAD_BYTES + int(header["batch_length"])
    keys = [record.key or b"" for record in read_records(records[position:end])]
    return any(len(key) >= _MARKER_KEY.size and _MARKER_KEY.unpack_from(key)[1] == _ABORT for key in keys)
