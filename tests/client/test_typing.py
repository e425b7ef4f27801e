"""What a type checker says of code that uses the clients."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]

PROGRAM = """
from pydantic import BaseModel
from skylog import (
    AsyncConsumer, AsyncProducer, AsyncStreamRunner, Consumer, Message, Producer, SimpleConsumer, StreamRunner,
    from_model, from_text, message_streams,
)

class Order(BaseModel):
    id: int

def handle(message: Message[Order]) -> None: ...
async def handle_soon(message: Message[str]) -> None: ...
def by_user(key: int | None, count: int) -> int | None: return key

Producer(akcs="all")  # E
Producer(acks=2)  # E
Producer(config={"linger.ms": 5}, serializer=lambda value: repr(value).encode(), partitioner=by_user)
AsyncProducer(akcs="all")  # E
AsyncProducer(serializer=repr)  # E
AsyncConsumer("orders", grup="g")  # E
message_streams({"orders": 4}, grup="g")  # E
message_streams({"orders": 4}, group="g", commmit="auto")  # E
StreamRunner({"orders": 4}, handle, "g", deserializer=from_model(Order))
StreamRunner({"orders": 4}, handle, "g", deserializer=from_text)  # E
AsyncStreamRunner({"orders": 4}, handle_soon, "g", deserializer=from_text)
AsyncStreamRunner({"orders": 4}, handle, "g", deserializer=from_model(Order))  # E

reveal_type(Consumer("orders", "g"))  # Consumer[bytes]
reveal_type(Consumer("orders", "g", deserializer=from_text))  # Consumer[str]
reveal_type(AsyncConsumer("orders", "g", deserializer=from_text))  # AsyncConsumer[str]
reveal_type(next(iter(Consumer("orders", "g", deserializer=from_model(Order)))).value)  # Order | None
reveal_type(SimpleConsumer("orders").consume()[0].value)  # bytes | None
reveal_type(message_streams({"orders": 4}, "g", deserializer=from_text)["orders"])  # list[MessageStream[str]]
"""


def test_misspelled_and_wrong_arguments_are_found_and_values_have_their_types(tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--no-pretty", str(path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=280)
    assert done.stderr == ""
    errors = {int(line) for line in re.findall(r"program\.py:(\d+): error:", done.stdout)}
    lines = PROGRAM.splitlines()
    assert errors == {number for number, line in enumerate(lines, 1) if line.endswith("# E")}, done.stdout
    shown = re.findall(r'program\.py:(\d+): note: Revealed type is "(.*)"', done.stdout)
    simple = {int(number): re.sub(r"\b(?:\w+\.)+", "", text) for number, text in shown}
    assert simple == {
        number: line.partition("# ")[2] for number, line in enumerate(lines, 1) if line.startswith("reveal_type")
    }
