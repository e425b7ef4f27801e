"""The signals that stop a server cleanly: SIGTERM, Ctrl-C, and the end of its terminal."""

from __future__ import annotations

import signal


def stop_signals() -> tuple[signal.Signals, ...]:
    """Return the signals. SIGHUP is left out if it is ignored: `nohup` starts commands that outlive their terminal."""
    always = (signal.SIGTERM, signal.SIGINT)
    return always if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else (*always, signal.SIGHUP)
