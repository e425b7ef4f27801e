"""skylog's benchmarks: `python -m benchmarks` from the root of the repository. Not part of the installed package."""
