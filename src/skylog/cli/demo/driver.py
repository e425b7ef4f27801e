"""The process that runs the pipeline: `python -m skylog.cli.demo.driver BOOTSTRAP DIRECTORY`.

All jobs in one Spark session, a thread each: one JVM does for a demonstration. It says on standard output, in a JSON
object per line, when Spark is there and what failed. It ends when its standard input does, after the batches at hand;
at once, if its owner is gone. So it has never to be found and killed. It is the leader of its process group.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
from pathlib import Path
from threading import Event, Lock, Thread
from time import monotonic, sleep
from typing import Any, Final

from skylog.cli.demo.jobs import JOBS, Job, Surroundings
from skylog.cli.demo.places import EVENTS, Places

logger = logging.getLogger(__name__)

_PATIENCE_S: Final = 60.0  # for the batches at hand
_LOOK_S: Final = 0.2
_SETTINGS: Final = {
    "spark.driver.memory": "1g",
    "spark.scheduler.mode": "FAIR",
    # The quick compiler only, which takes about half the work until the first results: batches are small here, and
    # somebody is waiting to see one.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}


class Voice:
    """Speaks to the owner. Takes standard output for itself: Spark's JVM writes what it likes to the one it gets."""

    def __init__(self) -> None:
        self._out = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)
        self._lock = Lock()

    def say(self, **words: Any) -> None:
        with self._lock:
            self._out.write(json.dumps(words) + "\n")
            self._out.flush()


def main(bootstrap: str, root: Path) -> int:
    """Until standard input ends, or a job fails; the exit code."""
    voice, stop, failed = Voice(), Event(), Event()
    Thread(target=_follow_owner, args=(os.getppid(), stop), name="lifeline", daemon=True).start()
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s", level=logging.WARNING)
    logging.getLogger("skylog").setLevel(logging.INFO)

    from skylog.spark.jobs.status_publisher import StatusPublisher
    from skylog.spark.session import start_session

    spark = start_session("skylog-demo", settings=_SETTINGS)
    voice.say(ready=True)

    def run(name: str, job: Job) -> None:
        try:
            with StatusPublisher(bootstrap, f"{name}: {EVENTS} -> {root}", name, [EVENTS]) as status:
                job(Surroundings(spark, bootstrap, Places(root), stop, status))
        except Exception as error:  # nobody else hears of a thread's error
            logger.exception("job %s failed", name)
            voice.say(failed=f"job {name} failed: {error}")
            failed.set()
            stop.set()

    threads = [Thread(target=run, args=each, name=each[0]) for each in JOBS.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    spark.stop()
    return 1 if failed.is_set() else 0


def _follow_owner(owner: int, stop: Event) -> None:
    while os.read(0, 4096):
        pass
    stop.set()
    deadline = monotonic() + _PATIENCE_S
    while os.getppid() == owner and monotonic() < deadline:  # a process that dies closes its pipes first
        sleep(_LOOK_S)
    os.killpg(0, signal.SIGKILL)  # with Spark's JVM, also one that is just starting; its workers end with the JVM


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], Path(sys.argv[2]).absolute()))
