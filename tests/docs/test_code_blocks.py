"""The pages' code runs: every ```python block of a page, in order, in one namespace, and every metricfit command of a
```bash block titled "Terminal", in one folder.

A block titled "Output" after it is what it prints, to the letter. "Output (about)" is what training gives, whose
decimals may differ a little from one machine to the next; "Output (about, in part)" has some of its lines. With the
versions of constraints.txt, decimals must agree to 0.02 or 3 %; with other versions, which train other models, to 0.08.
"""

from __future__ import annotations

import contextlib
import io
import re
import shlex
from importlib.metadata import version
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(
    r'^```(python|bash title="Terminal"|text title="Output(?: \(about(?:, in part)?\))?")\n(.*?)^```$',
    re.MULTILINE | re.DOTALL,
)
NUMBER = re.compile(r"-?\d+\.\d+")
TRAINERS = ("numpy", "scikit-learn", "lightgbm", "torch")
NEAR, ROUGH, RELATIVE = 0.02, 0.08, 0.03

#: Pages that train for longer than `make test` should take.
SLOW = {"first-hour.md"}
NOT_PAGES = {"figures", "hooks"}


def pages_with_code() -> list[Path]:
    pages = [page for page in sorted((ROOT / "docs").rglob("*.md")) if not NOT_PAGES & set(page.parts)]
    return [page for page in (ROOT / "README.md", *pages) if "```python" in page.read_text(encoding="utf-8")]


def run_commands(lines: str) -> str:
    """What the commands print, run in this process."""
    from typer.testing import CliRunner

    from metricfit.cli.app import app

    printed = ""
    for line in lines.replace("\\\n", " ").splitlines():
        program, *arguments = shlex.split(line)
        assert program == "metricfit", f"a Terminal block has metricfit commands only, got: {line}"
        found = CliRunner().invoke(app, arguments)
        assert found.exit_code == 0, f"{line}\n{found.output}"
        printed += found.stdout
    return printed


def in_order(lines: list[str], among: list[str]) -> list[str]:
    """The lines of ``among`` that are like the given ones but for their decimals, one after the other."""
    rest = iter(among)
    return [
        next((each.rstrip() for each in rest if about(each) == about(line)), f"no line like: {line}") for line in lines
    ]


def about(text: str) -> str:
    """The text without its numbers, and without the spaces that align them."""
    return re.sub(" +", " ", NUMBER.sub("#", text.rstrip()))


def pinned() -> bool:
    """Whether the libraries that train have the versions of constraints.txt."""
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    return all(f"{name}=={version(name).partition('+')[0]}" in lines for name in TRAINERS)


def differences(expected: str, got: str, within: float) -> list[str]:
    """The decimals that differ by more than ``within``, or 3 % of large ones."""
    pairs = [
        (float(told), float(found)) for told, found in zip(NUMBER.findall(expected), NUMBER.findall(got), strict=True)
    ]
    return [f"{told} v {found}" for told, found in pairs if abs(told - found) > max(within, RELATIVE * abs(told))]


@pytest.mark.parametrize(
    "page",
    [pytest.param(page, marks=[pytest.mark.slow] * (page.name in SLOW)) for page in pages_with_code()],
    ids=lambda page: str(page.relative_to(ROOT)),
)
def test_code_of_page_runs(page: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    text = page.read_text(encoding="utf-8")
    namespace: dict[str, object] = {"__name__": "page"}
    printed = None
    for block in BLOCK.finditer(text):
        kind, body = block.groups()
        line = text[: block.start(2)].count("\n")
        if kind.startswith("bash"):
            printed = io.StringIO(run_commands(body))
            continue
        if kind == "python":
            printed = io.StringIO()
            code = compile("\n" * line + body, str(page), "exec")
            with contextlib.redirect_stdout(printed):
                exec(code, namespace)
            continue
        assert printed is not None, f"{page.name}:{line}: an output without code before it"
        expected, got = body.strip(), printed.getvalue().strip()
        if "about" not in kind:
            assert got == expected, f"{page.name}:{line}"
            continue
        if "in part" in kind:
            got = "\n".join(in_order(expected.splitlines(), got.splitlines()))
        assert about(got) == about(expected), f"{page.name}:{line}"
        assert differences(expected, got, NEAR if pinned() else ROUGH) == [], f"{page.name}:{line}"


def test_a_stale_number_is_found():
    assert differences("F1 0.91 of 20 rows", "F1 0.96 of 20 rows", NEAR) == ["0.91 v 0.96"]
    assert differences("F1 0.91, 22.0%", "F1 0.92, 22.6%", NEAR) == []


def test_pages_are_found() -> None:
    names = {page.name for page in pages_with_code()}
    assert {"README.md", "index.md", "quick-start.md"} <= names
