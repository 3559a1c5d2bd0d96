"""metricfit on the command line: each command is a function in a module of its own, loaded when it is called."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from importlib.metadata import entry_points
from typing import Annotated, Any, NamedTuple

import typer
from typer.core import TyperGroup

from metricfit._version import __version__
from metricfit.cli.errors import UserError, told

#: Other packages add their commands to this group of entry points.
GROUP = "metricfit.commands"


class Entry(NamedTuple):
    """One command of the list.

    Attributes:
        module: The module of metricfit.cli that has the function; None for a command of another package.
        summary: What the list of commands says about it.
        resumes: Whether running it again continues an interrupted run.
        package: The package that has the command, if it is not metricfit.
    """

    module: str | None
    summary: str
    resumes: bool = False
    package: str = "metricfit"


#: The summaries stand here too, since reading them off the functions would load every library there is.
COMMANDS = {
    "fit": Entry("fit", "Train a classifier for the metric, choose its threshold, write the model and a report."),
    "compare": Entry(
        "compare",
        "Compare ways to train and to choose a threshold, on identical folds; say which to use.",
        resumes=True,
    ),
    "evaluate": Entry("judging", "A model's metrics on labelled rows."),
    "predict": Entry("judging", "Labels and probabilities for new rows."),
    "reproduce": Entry(
        None,
        "Run a paper's table again, and show the published numbers beside the measured ones.",
        resumes=True,
        package="metricfit_papers",
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
        function = _function(name, entry)
        alone = typer.Typer(add_completion=False, rich_markup_mode=None)
        if function is None:
            anything = {"allow_extra_args": True, "ignore_unknown_options": True}
            missing = told(_refuse(name, entry.package))
            alone.command(name, help=entry.summary, context_settings=anything, add_help_option=False)(missing)
        else:
            alone.command(name)(told(function, resumes=entry.resumes))
        return typer.main.get_command(alone)

    def __iter__(self) -> Iterator[str]:
        return iter(COMMANDS)

    def __len__(self) -> int:
        return len(COMMANDS)


def _function(name: str, entry: Entry) -> Any:
    """The function of a command, imported now; None where its package is not installed."""
    if entry.module is not None:
        return getattr(import_module(f"metricfit.cli.{entry.module}"), name)
    return next((point.load() for point in entry_points(group=GROUP, name=name)), None)


def _refuse(name: str, package: str) -> Callable[[typer.Context], None]:
    """A command that says which package has the real one, whatever arguments it is given."""

    def refuse(context: typer.Context) -> None:
        raise UserError(f"metricfit {name} needs {package}: pip install {package.replace('_', '-')}")

    return refuse


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
