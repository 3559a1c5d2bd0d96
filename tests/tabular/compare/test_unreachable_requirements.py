"""compare where requirements cannot be met, and where a method calls nothing positive."""

import re
from dataclasses import replace
from html import unescape

import numpy as np
import pytest
from compare_tables import make_table

from metricfit.cli import compare as command
from metricfit.tabular.compare import paired_rows
from metricfit.tabular.compare.comparison import compare
from metricfit.tabular.compare.judging import Judge
from metricfit.tabular.compare.methods import BASELINES, DEFAULT, REFERENCE
from metricfit.tabular.compare.verdict import advise

METHODS = [DEFAULT, "boosted trees", "logistic regression", "support vectors"]
SETTINGS = {"subject_to": ["precision >= 0.1"], "methods": METHODS, "folds": 3}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Trainings that all tests of this file share."""
    return tmp_path_factory.mktemp("cells")


@pytest.fixture
def hard(monkeypatch):
    """The methods named here reach no threshold, on all folds or on the first."""
    never, once, seen = set(), set(), set()
    judge_method = Judge.method

    def judge(self, method, trained):
        results = judge_method(self, method, trained)
        if method.name in never or (method.name in once and method.name not in seen):
            seen.add(method.name)
            results[method.name] = replace(results[method.name], not_reachable="precision reaches 0.4")
        return results

    monkeypatch.setattr(Judge, "method", judge)
    return never, once


def shown(comparison, tmp_path, capsys):
    """The page and the table, as text."""
    path = comparison.report(tmp_path / "page.html")
    command.print_result({}, False, [command.table_of(comparison)])
    return path.read_text(encoding="utf-8"), capsys.readouterr().out


def test_one_method_out_of_reach_on_one_fold_is_marked_and_keeps_its_values(hard, folder, tmp_path, capsys):
    X, y = make_table()
    within_reach = compare(X, y, "recall", folder=folder, **SETTINGS)
    hard[1].add("support vectors")
    comparison = compare(X, y, "recall", folder=folder, **SETTINGS)
    marked = comparison.rows[-1]
    assert (marked.name, marked.not_reachable) == ("support vectors", ("precision reaches 0.4",))
    assert marked.values == next(row for row in within_reach.rows if row.name == "support vectors").values
    assert not any(row.not_reachable for row in comparison.rows[:-1])
    page, printed = shown(comparison, tmp_path, capsys)
    assert re.search(r"support vectors .*│ \d of 3 \(out of reach on 1\)", printed)
    assert "With support vectors no threshold met the requirements on the training rows of 1 of 3 folds" in page
    assert advise(comparison.rows, "recall").sentences[0] in unescape(page)


@pytest.mark.parametrize(
    ("names", "when"), [({DEFAULT}, 0), ({DEFAULT}, 1), ({"boosted trees"}, 1), ({DEFAULT, "boosted trees"}, 0)]
)
def test_default_and_reference_out_of_reach(hard, folder, tmp_path, capsys, names, when):
    hard[when].update(names)
    X, y = make_table()
    comparison = compare(X, y, "recall", folder=folder, **SETTINGS)
    assert {row.name for row in comparison.rows if row.not_reachable} == names
    assert comparison.recommended not in names
    assert np.isfinite(comparison.decisions[DEFAULT].scores).all()
    page, printed = shown(comparison, tmp_path, capsys)
    assert printed.count("(out of reach on") == len(names)
    assert "(reference)" in page


def test_every_method_out_of_reach(hard, folder, tmp_path, capsys):
    hard[0].update(METHODS)
    X, y = make_table()
    comparison = compare(X, y, "recall", folder=folder, **SETTINGS)
    assert "Loosen the requirements" in comparison.details[0]
    assert not comparison.requirements_reachable
    assert comparison.recommended is not None
    page, printed = shown(comparison, tmp_path, capsys)
    assert "No method could meet the requirements everywhere" in page
    assert printed.count("(out of reach on 3)") == 4


def test_requirements_that_exclude_each_other_are_out_of_reach_of_every_method(folder):
    X, y = make_table()
    comparison = compare(X, y, "recall", folder=folder, **SETTINGS | {"subject_to": ["precision >= 1", "recall >= 1"]})
    for row in comparison.rows:
        if row.name not in {REFERENCE, *BASELINES}:
            assert len(row.not_reachable) == 3
            assert "no threshold gives precision >= 1 and recall >= 1 together" in row.not_reachable[0]
    assert not comparison.requirements_reachable


def test_a_default_that_calls_nothing_positive_has_a_page(folder, tmp_path, capsys):
    comparison = compare(*make_table(), "specificity", folder=folder, methods=METHODS, folds=3)
    assert comparison.decisions[DEFAULT].decided.sum() == 0
    assert "is no better than calling no row positive" in comparison.verdict
    page, _ = shown(comparison, tmp_path, capsys)
    assert "No method is clearly better than calling no row positive" in page


def test_the_same_difference_on_every_fold_shows_neither_interval_nor_p(folder, tmp_path, capsys, monkeypatch):
    judge_method, judge_own = Judge.method, Judge.own

    def judge(self, method, trained):
        results = judge_method(self, method, trained)
        return {method.name: replace(results[method.name], value=0.0)}

    def own(self, report):
        return {name: replace(result, value=1.0) for name, result in judge_own(self, report).items()}

    monkeypatch.setattr(Judge, "method", judge)
    monkeypatch.setattr(Judge, "own", own)
    monkeypatch.setattr(paired_rows, "MOST_CLASSES", 0)  # the test of the folds
    comparison = compare(*make_table(), "recall", folder=folder, methods=METHODS, folds=3)
    _, printed = shown(comparison, tmp_path, capsys)
    line = next(line for line in printed.splitlines() if "support vectors" in line)
    assert re.search(r"│ -1\.000 +│", line), line
    row = next(row for row in comparison.rows if row.name == "support vectors")
    assert (row.difference, row.difference_interval, row.p_value) == (-1.0, None, None)
