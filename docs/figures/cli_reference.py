"""Write the commands' arguments and options into docs/cli.md, from the commands themselves."""

from __future__ import annotations

from typing import Any

import typer
from page import fill

from metricfit.cli.app import COMMANDS, app, load_command

PAGE, MARK = "cli.md", "commands"


def cli_reference() -> str:
    """A heading, what it does, its usage and a table of options, for each command."""
    group: Any = typer.main.get_command(app)
    ours = {name: each for name, each in group.commands.items() if COMMANDS[name].package == "metricfit"}
    return "\n\n".join(_command(name, ours.get(name) or load_command(name)) for name in group.commands)


def _command(name: str, command: Any) -> str:
    arguments = [each for each in command.params if each.param_type_name == "argument"]
    options = [each for each in command.params if each.param_type_name == "option" and not each.hidden]
    usage = " ".join(["metricfit", name, *(each.name.upper() for each in arguments)])
    needed = "".join(f" {each.opts[0]} {_value(each)}" for each in options if each.required)
    package = COMMANDS[name].package
    needs = "" if package == "metricfit" else " It needs `pip install ./papers`."
    text, _, example = (command.help or "").partition("\n\nExample: ")
    lines = [f"## {name}", " ".join(text.split()) + needs, f"```text\n{usage}{needed} [OPTIONS]\n```"]
    lines += [f"Example: `{' '.join(example.split())}`"] * bool(example)
    rows = ["| | | by default |", "|---|---|---|"]
    rows += [f"| `{each.name.upper()}` | {_help(each)} | required |" for each in arguments]
    rows += [f"| `{each.opts[0]}{_given(each)}` | {_help(each)} | {_default(each)} |" for each in options]
    return "\n\n".join([*lines, "\n".join(rows)]) if len(rows) > 2 else "\n\n".join(lines)


def _given(option: Any) -> str:
    return "" if option.is_flag else f" {_value(option)}"


def _value(option: Any) -> str:
    return str(option.opts[0]).removeprefix("--").upper()


def _help(parameter: Any) -> str:
    return " ".join((parameter.help or "").split()).replace("|", "\\|")


def _default(option: Any) -> str:
    if option.required:
        return "required"
    if option.is_flag or option.default in (None, (), []):
        return ""
    return f"`{option.default}`"


if __name__ == "__main__":
    fill(PAGE, MARK, cli_reference())
