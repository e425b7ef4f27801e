"""Chaos: a cluster of real processes, real clients, real signals and a real network, for as long as you like.

    make chaos MINUTES=10
    python -m tests.faults.chaos --minutes 10 --seed 4711

The checks are those of the simulation. The report is a page with a picture of throughput and faults over time.
"""
