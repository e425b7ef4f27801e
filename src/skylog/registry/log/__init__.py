"""The topic of a registry: reading it, writing to it, and who may write."""
