"""Log lines that a client can provoke at will, limited so that it cannot fill a disk with them."""

from __future__ import annotations

import logging
from time import monotonic
from typing import Final

INTERVAL_S: Final = 10.0


class LimitedLogger:
    """Writes at most one line of each kind in `interval_s`; the next one says how many were left out.

    A kind is a format string, with the type of the exception where a traceback goes along. So use constant format
    strings: a client that could choose kinds would choose many.
    """

    def __init__(self, logger: logging.Logger, interval_s: float = INTERVAL_S) -> None:
        self._logger = logger
        self._interval_s = interval_s
        self._quiet_until: dict[tuple[str, type[BaseException] | None], float] = {}
        self._left_out: dict[tuple[str, type[BaseException] | None], int] = {}

    def warning(self, message: str, *args: object) -> None:
        self._log(logging.WARNING, message, args, None)

    def error(self, message: str, *args: object, exc_info: BaseException | None = None) -> None:
        self._log(logging.ERROR, message, args, exc_info)

    def _log(self, level: int, message: str, args: tuple[object, ...], error: BaseException | None) -> None:
        kind = (message, None if error is None else type(error))
        now = monotonic()
        if now < self._quiet_until.get(kind, 0.0):
            self._left_out[kind] = self._left_out.get(kind, 0) + 1
            return
        self._quiet_until[kind] = now + self._interval_s
        left_out = self._left_out.pop(kind, 0)
        if left_out:
            message, args = message + " (and %d more like this since the last line)", (*args, left_out)
        self._logger.log(level, message, *args, exc_info=error, stacklevel=3)
