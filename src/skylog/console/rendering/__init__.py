"""Formatting of numbers and times, plots, pagination, and Prometheus's text format."""
