"""A faust application: adds up amounts by user in a table, and runs until it is stopped."""

import sys
from typing import Any

import faust

bootstrap, source, target, data_dir, _ = sys.argv[1:]
sys.argv[1:] = ["--datadir", data_dir, "worker", "--without-web", "--loglevel", "info"]
app = faust.App(f"{source}-totals", broker=f"kafka://{bootstrap}", topic_partitions=1, topic_replication_factor=1)


class Order(faust.Record):
    user: str
    amount: int


totals = app.Table("totals", default=int)
results = app.topic(target)


@app.agent(app.topic(source, value_type=Order))  # type: ignore[untyped-decorator]
async def add(orders: Any) -> None:
    async for order in orders.group_by(Order.user):
        totals[order.user] += order.amount
        await results.send(key=order.user, value={"total": totals[order.user]})


app.main()
