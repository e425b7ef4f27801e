"""Senders that are killed at a step: `python -m tests.pipeline.jobs.dying_sender BOOTSTRAP SMTP_PORT`.

Reads a line `TOPIC STEP DOUBT` for each sender from standard input. Forks all of them, each of which kills itself at
its step, and then another one for each topic, which must get through.
"""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType
from typing import Any

from skylog.pipeline.cluster import Cluster
from skylog.pipeline.jobs.newsletters.mail import Letterhead
from skylog.pipeline.jobs.newsletters.sender import Doubt, SendSettings, send_newsletters
from skylog.pipeline.jobs.newsletters.submission import SmtpServer

STEPS = {  # the function that is called or returns, and who calls it
    "the mail is submitted without its end": ("return", "Submission.prepare", ""),
    "the ledger says sending": ("return", "Ledger.claim", ""),
    "the end of the mail is sent": ("call", "SMTP.getreply", "Submission.finish"),
    "the server has accepted": ("call", "Ledger.record", ""),
    "the ledger says sent": ("return", "Ledger.record", ""),
    "the group has committed": ("return", "Consumer.commit", ""),
}


def die_at(step: str) -> None:
    wanted, name, caller = STEPS[step]

    def watch(frame: FrameType, event: str, argument: Any) -> None:
        if event == wanted and frame.f_code.co_qualname == name:
            above = frame.f_back
            if not caller or (above is not None and above.f_code.co_qualname == caller):
                os.kill(os.getpid(), signal.SIGKILL)

    sys.setprofile(watch)


def fork(bootstrap: str, port: int, topic: str, doubt: str, step: str | None) -> int:
    child = os.fork()
    if child == 0:
        if step is not None:
            die_at(step)
        member = {"group.instance.id": "sender"}  # the next one takes its place at once
        settings = SendSettings(SmtpServer(port=port), Letterhead("news@site.example"), Doubt(doubt), consumer=member)
        send_newsletters(Cluster(bootstrap), topic, settings, group=topic, once=True)
        os._exit(0)
    return child


def main(bootstrap: str, port: int) -> None:
    lines = [line.rstrip("\n").split("\t") for line in sys.stdin]
    dying = [fork(bootstrap, port, topic, doubt, step) for topic, step, doubt in lines]
    for child, line in zip(dying, lines, strict=True):
        _, status = os.waitpid(child, 0)
        assert os.WIFSIGNALED(status), f"{line}: it was not killed, status {status}"
        assert os.WTERMSIG(status) == signal.SIGKILL
    for child in [fork(bootstrap, port, topic, doubt, None) for topic, _, doubt in lines]:
        assert os.waitpid(child, 0)[1] == 0


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
