"""The data pipeline: jobs that read topics with Spark. Each is a transform of DataFrames with a thin runner."""
