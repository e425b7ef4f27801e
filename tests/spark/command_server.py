"""Runs `skylog` commands one after the other in one process: `python -m tests.spark.command_server`.

Each starts and stops Spark as it would alone, in a JVM that is already there: the JVM's start is most of a command's
time. Takes the arguments as a JSON list per line, and answers with the exit code and the output.
"""

from __future__ import annotations

import json
import os
import sys
from contextlib import chdir

from typer.testing import CliRunner

from skylog.cli.main import command_line
from skylog.errors import SkylogError

app = command_line()


def serve() -> None:
    answers = os.fdopen(os.dup(1), "w")  # what Spark and its JVM print goes elsewhere
    os.dup2(2, 1)
    for line in sys.stdin:
        request = json.loads(line)
        with chdir(request["directory"]):
            result = CliRunner().invoke(app, request["arguments"])
        said = result.stderr
        if isinstance(result.exception, SkylogError):
            said += str(result.exception)  # the program prints it
        elif result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        answer = {"code": result.exit_code, "stdout": result.stdout, "stderr": said}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    serve()
