"""DataFrames into topics: `df.write` and `df.writeStream`."""
