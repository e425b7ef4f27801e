"""The data pipeline: jobs that process topics with Spark. Each is a DataFrame transform with a thin runner."""
