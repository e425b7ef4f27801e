"""`python -m skylog`: the same as the command `skylog`."""

from skylog.cli.main import run

if __name__ == "__main__":
    run()
