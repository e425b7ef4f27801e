"""The job `rising`."""
