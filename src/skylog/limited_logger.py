"""Rate-limits log lines that clients can trigger, so that no client can fill the disk with them."""

from __future__ import annotations

import logging
from time import monotonic
from typing import Final

INTERVAL_S: Final = 10.0


class LimitedLogger:
    """Logs at most one line of each kind per `interval_s`; the next line includes the number of suppressed ones.

    A kind is a format string, plus the type of the exception if there is a traceback. So use constant format strings:
    otherwise a client could create any number of kinds.
    """

    def __init__(self, logger: logging.Logger, interval_s: float = INTERVAL_S) -> None:
        self._logger = logger
        self._interval_s = interval_s
        self._quiet_until: dict[tuple[str, type[BaseException] | None], float] = {}
        self._left_out: dict[tuple[str, type[BaseException] | None], int] = {}

    def debug(self, message: str, *args: object) -> None:
        self._log(logging.DEBUG, message, args, None)

    def warning(self, message: str, *args: object, exc_info: BaseException | None = None) -> None:
        self._log(logging.WARNING, message, args, exc_info)

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
