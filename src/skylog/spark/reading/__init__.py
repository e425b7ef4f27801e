"""Topics as DataFrames: `spark.read` and `spark.readStream`."""
