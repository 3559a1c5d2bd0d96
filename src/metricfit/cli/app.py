"""The command line as a group of commands; a command of another package is found by its entry point."""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import Annotated, Any, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup

from metricfit._version import __version__
from metricfit.cli.options import GROUPS, Compare, Doctor, Evaluate, Export, Fit, Metrics, Predict, Watch
from metricfit.cli.terminal import UserError, report_errors

#: Other packages add their commands to this group of entry points.
GROUP = "metricfit.commands"


class Entry(NamedTuple):
    """One command in the list of commands.

    Attributes:
        summary: The line in the list of commands.
        resumes: Whether running it again continues an interrupted run.
        package: The package that has the command.
    """

    summary: str
    resumes: bool = False
    package: str = "metricfit"


KINDS = (Compare, Fit, Evaluate, Predict, Doctor, Watch, Export, Metrics)
OPTIONS = {kind.__name__.lower(): kind for kind in KINDS}
COMMANDS = {name: Entry(kind.help().partition("\n\n")[0], kind.resumes) for name, kind in OPTIONS.items()} | {
    "reproduce": Entry(
        "Run a paper's table again, and compare the published numbers with the measured ones.",
        resumes=True,
        package="metricfit_papers",
    ),
    "datasets": Entry(
        "List the datasets of the papers and studies: their size, positive class and source.",
        package="metricfit_papers",
    ),
}


class _Command(TyperCommand):
    """A command whose help lists the options in groups."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        shown = {entry.name: entry for entry in self.get_params(ctx)}
        arguments = [name for name, entry in shown.items() if entry.param_type_name == "argument"]
        groups = {title: names.split() for title, names in GROUPS.items()}
        for title, names in ({"Arguments": arguments} | groups).items():
            lines = [shown.pop(name).get_help_record(ctx) for name in names if name in shown]
            if lines:
                with formatter.section(title):
                    formatter.write_dl(lines)


class _CommandGroup(TyperGroup):
    """A group that lists its commands with whole summaries."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.summary) for name, entry in COMMANDS.items()])


app = typer.Typer(
    name="metricfit",
    cls=_CommandGroup,
    help="Name the metric you are judged by; get a classifier trained for it, and the evidence.",
    no_args_is_help=True,
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


def load_command(name: str) -> Any:
    """Return the command of another package as click has it.

    Raises:
        UserError: The package is not installed.
    """
    package = COMMANDS[name].package
    function = next((point.load() for point in entry_points(group=GROUP, name=name)), None)
    if function is None:
        raise UserError(f"metricfit {name} needs {package}: pip install ./papers, in a copy of metricfit's repository")
    command_app = typer.Typer(add_completion=False, rich_markup_mode=None)
    command_app.command(name)(report_errors(function, resumes=COMMANDS[name].resumes))
    return typer.main.get_command(command_app)


def _add(name: str, entry: Entry) -> None:
    if name in OPTIONS:
        app.command(name, cls=_Command)(report_errors(OPTIONS[name].command(), resumes=entry.resumes))
        return

    def pass_on(context: typer.Context) -> None:
        load_command(name).main(context.args, f"metricfit {name}")

    anything = {"allow_extra_args": True, "ignore_unknown_options": True}
    app.command(name, help=entry.summary, context_settings=anything, add_help_option=False)(report_errors(pass_on))


for _name, _command in COMMANDS.items():
    _add(_name, _command)


def main() -> None:
    """Run the command line."""
    app()


if __name__ == "__main__":
    main()
