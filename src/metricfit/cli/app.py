"""The command line: each command is a function in a module of its own, loaded when the command is called."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from importlib.metadata import entry_points
from typing import Annotated, Any, NamedTuple

import typer
from typer.core import TyperGroup

from metricfit._version import __version__
from metricfit.cli.exit_codes import UserError, report_errors

#: Other packages add their commands to this group of entry points.
GROUP = "metricfit.commands"


class Entry(NamedTuple):
    """One command in the list of commands.

    Attributes:
        module: The module of metricfit.cli with the function; None for a command of another package.
        summary: The line in the list of commands.
        resumes: Whether running it again continues an interrupted run.
        package: The package that has the command, if it is not metricfit.
    """

    module: str | None
    summary: str
    resumes: bool = False
    package: str = "metricfit"


#: The summaries are repeated here, because reading them from the functions would load all their libraries.
COMMANDS = {
    "doctor": Entry("doctor", "Say what looks wrong in a table before anything is trained, the most serious first."),
    "fit": Entry("fit", "Train a classifier for a metric, choose its threshold, and write the model and a report."),
    "compare": Entry(
        "compare",
        "Compare ways to train a classifier on identical folds, and recommend one.",
        resumes=True,
    ),
    "evaluate": Entry("evaluate", "Compute the metrics of a saved model on labelled rows."),
    "predict": Entry("predict", "Predict labels and probabilities of new rows with a saved model."),
    "export": Entry("export", "Write a saved model as one ONNX graph, compare it with the model, and time it."),
    "reproduce": Entry(
        None,
        "Run a paper's table again, and show the published numbers beside the measured ones.",
        resumes=True,
        package="metricfit_papers",
    ),
    "metrics": Entry("metrics", "List the metrics with their formulas over true and false positives and negatives."),
    "datasets": Entry(
        "datasets",
        "List the datasets of metricfit.data.load and fetch: their size, positive class and source.",
    ),
}


class _LazyCommands(Mapping[str, Any]):
    """The commands by name; a command's module is imported when the command is looked up."""

    def __getitem__(self, name: str) -> Any:
        entry = COMMANDS[name]
        function = _load_function(name, entry)
        command_app = typer.Typer(add_completion=False, rich_markup_mode=None)
        if function is None:
            settings = {"allow_extra_args": True, "ignore_unknown_options": True}
            missing = report_errors(_missing_command(name, entry.package))
            command_app.command(name, help=entry.summary, context_settings=settings, add_help_option=False)(missing)
        else:
            command_app.command(name)(report_errors(function, resumes=entry.resumes))
        return typer.main.get_command(command_app)

    def __iter__(self) -> Iterator[str]:
        return iter(COMMANDS)

    def __len__(self) -> int:
        return len(COMMANDS)


def _load_function(name: str, entry: Entry) -> Any:
    """Import the function of a command; None if its package is not installed."""
    if entry.module is not None:
        return getattr(import_module(f"metricfit.cli.{entry.module}"), name)
    return next((point.load() for point in entry_points(group=GROUP, name=name)), None)


def _missing_command(name: str, package: str) -> Callable[[typer.Context], None]:
    """Make a command that says which package to install, whatever its arguments are."""

    def refuse(context: typer.Context) -> None:
        raise UserError(f"metricfit {name} needs {package}: pip install {package.replace('_', '-')}")

    return refuse


class _CommandGroup(TyperGroup):
    """A group that lists its commands without importing them."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands: Any = _LazyCommands()

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.summary) for name, entry in COMMANDS.items()])


app = typer.Typer(
    name="metricfit",
    cls=_CommandGroup,
    help="Name the metric you are judged by; get a classifier trained for it, and the evidence.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _print_version(requested: bool) -> None:
    if requested:
        typer.echo(f"metricfit {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Name the metric you are judged by; get a classifier trained for it, and the evidence."""


def main() -> None:
    """Run the command line."""
    app()


if __name__ == "__main__":
    main()
