"""metricfit on the command line: each command is a function in a module of its own, entered here."""

from __future__ import annotations

from typing import Annotated

import typer

from metricfit._version import __version__
from metricfit.cli.comparing import compare
from metricfit.cli.errors import told
from metricfit.cli.fitting import fit
from metricfit.cli.judging import evaluate, predict
from metricfit.cli.lists import datasets, metrics
from metricfit.cli.reproduce import reproduce

app = typer.Typer(
    name="metricfit",
    help="Name the metric you are judged by; get a classifier trained for it, and the evidence.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
for command in (fit, compare, evaluate, predict, reproduce, metrics, datasets):
    app.command()(told(command))


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"metricfit {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version, and end.")
    ] = False,
) -> None:
    """Name the metric you are judged by; get a classifier trained for it, and the evidence."""


def main() -> None:
    """The entry point."""
    app()


if __name__ == "__main__":
    main()
