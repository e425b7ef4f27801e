"""Indexes that turn out to be missing or damaged when a segment is first read: made again off the event loop."""

from __future__ import annotations

import logging
from collections.abc import Hashable
from typing import TYPE_CHECKING

from skylog.storage.segment import Segment

if TYPE_CHECKING:
    from skylog.storage.log import Log

logger = logging.getLogger(__name__)


class IndexRebuild:
    """Makes the indexes of a closed segment again, from its batches, all of which it checks."""

    def __init__(self, log: Log, segment: Segment) -> None:
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
        logger.warning("%s: an index is missing or damaged and is made again", self._segment.path)
        self._rebuilt = self._segment.rebuilt(self._index_interval_bytes)

    def finish(self) -> None:
        if self._rebuilt is not None:  # otherwise the topic was deleted
            self._log.take_rebuilt(self._segment, self._rebuilt)
