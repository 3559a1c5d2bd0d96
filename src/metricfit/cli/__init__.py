"""The command line: parse, call, print."""

import sys

from metricfit._extras import explain_missing

_PACKAGES = ("typer", "rich")


def main() -> None:
    """Run the command line, or say what to install for it; the entry point ``metricfit``."""
    try:
        with explain_missing("the command metricfit", _PACKAGES, "metricfit[cli]"):
            from metricfit.cli import app  # its own imports may fail

            app.main()
    except ModuleNotFoundError as error:
        if error.name not in _PACKAGES:
            raise
        print(f"Error: {error}", file=sys.stderr)
        sys.exit(2)
