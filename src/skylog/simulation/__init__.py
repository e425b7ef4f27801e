"""Deterministic simulation: clusters of the real broker code on virtual time, with faults drawn from a seed.

    python -m skylog.simulation --seed 4711 --trace

Brokers, clients and the metadata store run in one thread, on an event loop whose clock jumps to the next timer. The
network is in memory. Disks are directories that forget what was not synced. The same seed gives the same trace.
"""
