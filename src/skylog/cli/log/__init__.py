"""`skylog log`: inspects log files on disk, without a broker.

`command` defines the commands. `segment_files` finds and reads files, `log_check` and `index_check` verify them.
"""

from __future__ import annotations

from skylog.cli.log.command import app

__all__ = ["app"]
