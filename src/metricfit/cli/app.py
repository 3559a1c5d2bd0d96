"""metricfit on the command line: each command is a function in a module of its own, loaded when it is called."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Annotated, Any, NamedTuple

import typer
from typer.core import TyperGroup

from metricfit._version import __version__
from metricfit.cli.errors import told


class Entry(NamedTuple):
    """Where a command's function is, what the list of commands says of it, and whether a second run goes on."""

    module: str
    summary: str
    resumes: bool = False


#: The summaries stand here too, since reading them off the functions would load every library there is.
COMMANDS = {
    "fit": Entry("fitting", "Train a classifier for the metric, choose its threshold, write the model and a report."),
    "compare": Entry(
        "comparing",
        "Compare ways to train and to choose a threshold, on identical folds; say which to use.",
        resumes=True,
    ),
    "evaluate": Entry("judging", "A model's metrics on labelled rows."),
    "predict": Entry("judging", "Labels and probabilities for new rows."),
    "reproduce": Entry(
        "reproduce",
        "Run a paper's table again, and show the published numbers beside the measured ones.",
        resumes=True,
    ),
    "metrics": Entry("lists", "The metrics by name, with their formulas over true and false positives and negatives."),
    "datasets": Entry(
        "lists",
        "The datasets that metricfit.data.load and fetch know: their size, what is positive, where to get them.",
    ),
}


class _Loaded(Mapping[str, Any]):
    """The commands by name; each module is imported when its command is first asked for."""

    def __getitem__(self, name: str) -> Any:
        entry = COMMANDS[name]
        function = getattr(import_module(f"metricfit.cli.{entry.module}"), name)
        alone = typer.Typer(add_completion=False, rich_markup_mode=None)
        alone.command(name)(told(function, resumes=entry.resumes))
        return typer.main.get_command(alone)

    def __iter__(self) -> Iterator[str]:
        return iter(COMMANDS)

    def __len__(self) -> int:
        return len(COMMANDS)


class _Commands(TyperGroup):
    """A group whose list of commands is written without loading them."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands: Any = _Loaded()

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.summary) for name, entry in COMMANDS.items()])


app = typer.Typer(
    name="metricfit",
    cls=_Commands,
    help="Name the metric you are judged by; get a classifier trained for it, and the evidence.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


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
