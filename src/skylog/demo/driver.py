"""The Spark process of the demo: `python -m skylog.demo.driver BOOTSTRAP DIRECTORY`.

Runs all jobs in one Spark session, one thread per job, so that the demo needs only one JVM. Reports on standard output,
as one JSON object per line, when Spark is ready and which job failed.

Ends when its standard input is closed, after finishing the current batches. If the parent process has exited, it kills
its process group immediately. So it never outlives the demo. It is the leader of its process group.
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

from skylog.demo.layout import Layout

logger = logging.getLogger(__name__)

_STOP_TIMEOUT_S: Final = 60.0  # to finish the current batches
_POLL_S: Final = 0.2
_SETTINGS: Final = {
    "spark.driver.memory": "1g",
    "spark.scheduler.mode": "FAIR",
    # Use only the fast C1 compiler, which halves the CPU time until the first results: batches are small here, and the
    # user is waiting to see one.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}


class StatusPipe:
    """Sends status messages to the parent process over standard output.

    Redirects file descriptor 1 to standard error, because Spark's JVM writes arbitrary text to the one it inherits.
    """

    def __init__(self) -> None:
        self._out = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)
        self._lock = Lock()

    def send(self, **message: Any) -> None:
        with self._lock:
            self._out.write(json.dumps(message) + "\n")
            self._out.flush()


def main(bootstrap: str, root: Path) -> int:
    """Run until standard input is closed or a job fails. Returns the exit code."""
    status_pipe, stop, failed = StatusPipe(), Event(), Event()
    Thread(target=_stop_with_parent, args=(os.getppid(), stop), name="lifeline", daemon=True).start()
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s", level=logging.WARNING)
    logging.getLogger("skylog").setLevel(logging.INFO)

    from skylog.demo.jobs import DemoJobs
    from skylog.pipeline.cluster import Cluster
    from skylog.pipeline.runnable import RunnableJob
    from skylog.spark.session import start_session

    spark = start_session("skylog-demo", settings=_SETTINGS)
    status_pipe.send(ready=True)
    jobs = DemoJobs(spark, Cluster(bootstrap), Layout(root), stop)

    def run(job: RunnableJob) -> None:
        try:
            jobs.run(job)
        except Exception as error:  # the top of the thread: an exception that escapes it would only be printed
            logger.exception("job %s failed", job.name)
            status_pipe.send(failed=f"job {job.name} failed: {error}")
            failed.set()
            stop.set()

    threads = [Thread(target=run, args=(job,), name=job.name) for job in jobs.jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    spark.stop()
    return 1 if failed.is_set() else 0


def _stop_with_parent(parent: int, stop: Event) -> None:
    while os.read(0, 4096):
        pass
    stop.set()
    deadline = monotonic() + _STOP_TIMEOUT_S
    while os.getppid() == parent and monotonic() < deadline:  # a dying parent closes its pipes before getppid changes
        sleep(_POLL_S)
    os.killpg(0, signal.SIGKILL)  # includes Spark's JVM, even while it starts; its workers end with the JVM


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], Path(sys.argv[2]).absolute()))
