"""The sections of columns that matter and of rows that are most wrong, and the pages that have them."""

import numpy as np
import pandas as pd
import pytest
from page_parts import parts

from metricfit import MetricClassifier, report
from metricfit.report.tables import column_importance, worst_decisions
from metricfit.tabular import Importance, WorstRows

EVIL = "<script>alert('x')</script>"


def text_of(html):
    return " ".join(" ".join(parts(html).text).split())


def render(*sections):
    return report.render(report.Report("t", "h", "v", sections))


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    X = pd.DataFrame(
        {"signal": rng.normal(size=120), "noise": rng.normal(size=120), "kind": rng.choice(["a", "b"], 120)}
    )
    return X, np.digitize(X["signal"] + 0.7 * rng.normal(size=120), [-0.6, 0.6])


@pytest.fixture(scope="module")
def model(rows):
    return MetricClassifier("f1", models=["linear"], members=3, random_state=0).fit(*rows)


def test_the_first_twelve_columns_are_shown_and_the_rest_is_folded():
    table = pd.DataFrame({"column": [f"c{n}" for n in range(20)], "importance": np.linspace(0.3, -0.08, 20)})
    table["low"], table["high"] = table["importance"] - 0.05, table["importance"] + 0.05
    section = column_importance(Importance(table, "f1", 0.7, 500, 5, ("A note.",)))
    shown, folded = section.context["shown"], section.context["folded"]
    assert [row["name"] for row in [*shown, *folded]] == table["column"].tolist()
    assert len(shown) == 12
    for row in [*shown, *folded]:  # bars and whiskers lie in the plot, in the order of their numbers
        assert 0 <= row["bar"][0] <= row["bar"][1] <= 100
        assert 0 <= row["whisker"][0] < row["whisker"][1] <= 100
        assert row["certain"] == (row["interval"][0] > 0)
    assert shown[0]["bar"] == (pytest.approx(section.context["zero"]), pytest.approx(100 * 0.43 / 0.48))
    html = render(section)
    assert "<summary>8 more columns</summary>" in html
    assert "c0 +0.300 +0.250 to +0.350" in text_of(html)
    assert "5 shuffles, 500 rows" in text_of(html)
    assert "A note." in html


def test_columns_without_influence_can_be_drawn():
    table = pd.DataFrame({"column": [EVIL], "importance": [0.0], "low": [0.0], "high": [0.0]})
    html = render(column_importance(Importance(table, "f1", 0.7, 500, 1)))
    assert "1 shuffle, 500 rows" in text_of(html)
    assert EVIL not in html


def test_worst_rows_are_shown_with_important_columns_first():
    values = {f"v{n}": np.arange(15) / 7 for n in range(9)} | {"text": [EVIL] * 14 + [None]}
    judged = {"truth": ["no"] * 15, "decision": ["yes"] * 14 + ["no"], "probability": np.linspace(0.99, 0.5, 15)}
    result = WorstRows(pd.DataFrame({**judged, **values}, index=range(100, 115)), np.arange(15), 400, 33, "yes")
    context = worst_decisions(result, first=["text", "v3"]).context
    assert context["columns"] == ["text", "v3", "v0", "v1", "v2", "v4", "v5", "v6"]
    assert (len(context["shown"]), len(context["folded"]), context["hidden"]) == (12, 3, 2)
    assert context["shown"][1]["cells"][1:3] == ["0.1429", "0.1429"]
    html = render(worst_decisions(result, first=["text", "v3"]))
    assert EVIL not in html
    said = text_of(html)
    assert "Of 400 rows, 33 are decided wrongly" in said
    assert "Probability of “yes”" in said
    assert "2 more columns are not shown" in said
    assert "100 no yes 0.990" in said


def test_the_page_of_fit_has_both_sections_out_of_fold(model, rows, tmp_path):
    plain = model.report(tmp_path / "plain.html").read_text(encoding="utf-8")
    assert "Which columns matter" not in plain
    html = model.report(tmp_path / "page.html", *rows, out_of_fold=True).read_text(encoding="utf-8")
    said = text_of(html)
    assert "macro f1 depends most on “signal”." in said
    worst = model.worst(*rows, n=1, out_of_fold=True)
    assert f'<th scope="row" class="number">{worst.numbers[0]}</th>' in html
    assert "Each row was decided by models that were not trained on it." in said
    with pytest.raises(ValueError, match="needs X and y"):
        model.report(tmp_path / "other.html", out_of_fold=True)
    with pytest.raises(ValueError, match="the 120 rows of fit; X has 60"):
        model.report(tmp_path / "other.html", rows[0][:60], rows[1][:60], out_of_fold=True)
    assert not (tmp_path / "other.html").exists()


def test_the_page_of_other_rows_shows_the_worst_of_them(model, rows, tmp_path):
    said = text_of(model.report(tmp_path / "page.html", rows[0][:50], rows[1][:50]).read_text(encoding="utf-8"))
    assert "Rows that are most wrong" in said
    assert "Of 50 rows" in said
    assert "trained on it" not in said
