"""Rebuilds indexes that are found missing or damaged when a segment is first read, off the event loop."""

from __future__ import annotations

import logging
from collections.abc import Hashable
from typing import TYPE_CHECKING

from skylog.storage.segment import Segment

if TYPE_CHECKING:
    from skylog.storage.readable_log import ReadableLog

logger = logging.getLogger(__name__)


class IndexRebuild:
    """Rebuilds the indexes of a closed segment from its batches, all of which it checks. Implements `Check`."""

    def __init__(self, log: ReadableLog, segment: Segment) -> None:
        self._log = log
        self._segment = segment
        self._index_interval_bytes = log.config.index_interval_bytes
        self._rebuilt: Segment | None = None

    @property
    def key(self) -> Hashable:
        return self._segment

    def run(self) -> None:
        self._log.folder_name.use(self._rebuild)

    def _rebuild(self) -> None:
        logger.warning("%s: rebuilding the indexes, because one is missing or damaged", self._segment.path)
        self._rebuilt = self._segment.rebuilt(self._index_interval_bytes)

    def finish(self) -> None:
        if self._rebuilt is not None:  # otherwise the topic has been deleted
            self._log.take_rebuilt(self._segment, self._rebuilt)
