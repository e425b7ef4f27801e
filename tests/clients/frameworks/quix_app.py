"""A quixstreams application: adds up amounts by user, exactly once, and ends after a number of messages."""

import sys
from typing import Any

from quixstreams import Application

bootstrap, source, target, state_dir, count = sys.argv[1:]
app = Application(
    broker_address=bootstrap,
    consumer_group=f"{source}-totals",
    auto_offset_reset="earliest",
    processing_guarantee="exactly-once",
    state_dir=state_dir,
)


def add(order: dict[str, int], state: Any) -> dict[str, int]:
    total = state.get("total", 0) + order["amount"]
    state.set("total", total)
    return {"total": total}


orders = app.dataframe(app.topic(source, value_deserializer="json"))
orders.apply(add, stateful=True).to_topic(app.topic(target, value_serializer="json"))
app.run(count=int(count), timeout=120)
