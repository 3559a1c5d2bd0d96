"""Tables on a terminal of 80 columns: no line is longer, and no cell is broken over two lines."""

import io

import numpy as np
import pandas as pd
import pytest
from rich.console import Console
from rich.table import Table

from metricfit import MetricClassifier
from metricfit.cli import compare as compare_command
from metricfit.cli import evaluate as evaluate_command
from metricfit.cli import fit as fit_command
from metricfit.cli import terminal
from metricfit.report.evaluation_result import evaluation_result
from metricfit.tabular.compare.comparison import compare
from metricfit.tabular.facts import model_facts


def printed(monkeypatch, lines, width=80):
    """What the tables among the lines look like on a terminal."""
    buffer = io.StringIO()
    console = Console(file=buffer, width=width, force_terminal=True, no_color=True, highlight=False)
    monkeypatch.setattr(terminal, "out", console)
    terminal.print_result({}, False, [line for line in lines if isinstance(line, Table)])
    text = Console(file=io.StringIO(), width=width).render_str(buffer.getvalue()).plain
    return [line for line in text.replace("\x1b[1m", "").replace("\x1b[0m", "").splitlines() if line]


def cells(lines):
    return {cell.strip() for line in lines for cell in line.replace("┃", "│").split("│")}


def check(monkeypatch, lines):
    """Every cell of the tables is printed in one piece, and no line is longer than the terminal."""
    tables = [line for line in lines if isinstance(line, Table)]
    shown = printed(monkeypatch, lines)
    assert tables
    assert max(map(len, shown)) <= 80
    for table in tables:
        written = (str(cell) for column in table.columns for cell in column.cells)
        assert {line.strip() for cell in written for line in cell.split("\n")} <= cells(shown)
    return shown


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(160, 3)), columns=list("abc"))
    return X, pd.Series(np.where(X["a"] + 0.5 * rng.normal(size=160) > 0.5, "positive", "negative"))


def test_the_table_of_compare(rows, monkeypatch, tmp_path):
    X, y = rows
    methods = ["logistic regression", "support vectors"]
    settings = {"folds": 2, "folder": tmp_path, "methods": methods, "time_budget": 20, "subject_to": ["recall >= 0.5"]}
    table = compare_command.table_of(compare(X, y, "balanced_accuracy", **settings))
    shown = check(monkeypatch, [table])
    assert sum("logistic regression" in line for line in shown) == 1  # it fits
    assert sum("logistic regression" in line for line in printed(monkeypatch, [table], width=160)) == 1


def test_the_tables_of_fit_and_evaluate(rows, monkeypatch):
    X, y = rows
    names = [f"class number {k}" for k in range(6)]
    several = pd.Series(np.array(names)[np.arange(160) % 6])
    for metric, labels in (("2*tp/(2*tp+fp+fn)", y), ("f1", several)):
        model = MetricClassifier(metric, models="linear", members=2, time_budget=None, random_state=0).fit(X, labels)
        check(monkeypatch, fit_command._lines(model, model_facts(model)))
        check(monkeypatch, evaluate_command._lines(evaluation_result(model, X, labels, None) | {"report": None}))


def test_a_table_that_fits_is_left_alone():
    table = Table("a", "b", "c")
    table.add_row("1", "2", "3")
    assert terminal.split_table(table, Console(width=80)) == [table]
