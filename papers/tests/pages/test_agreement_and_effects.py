"""How many published numbers come out, and what a constraint changed, from numbers made up here."""

from scipy import stats

import metricfit_papers as papers
from metricfit_papers.pages.agreement import agreement
from metricfit_papers.pages.constraint_effects import SHARED, describe_constraint_effects


def measured(column, value, smaller=""):
    return {"values": {column: [value, value]}, "run": {"smaller": smaller}}


def test_published_numbers_are_counted_within_two_deviations():
    spec = papers.find_table("btg-1")  # Adult: F1* 0.63 ± 0.02, BCE 0.26 ± 0.06, WMW 0.00 ± 0.00
    rows = {"F1*": measured("f1", 0.669), "BCE": measured("f1", 0.39), "AUROC‡": measured("f1", 0.009)}
    assert agreement(spec, {"adult": rows}).endswith("2 of 3 on Adult.")
    rows["AUROC‡"] = measured("f1", 0.011)
    assert agreement(spec, {"adult": rows}).endswith("1 of 3 on Adult.")


def test_where_some_columns_have_no_published_deviations_the_others_are_named():
    one = measured("one", 0.9441)
    said = agreement(papers.find_table("constrained-2"), {"airplane-automobile-2": {"BCE": one}})
    assert (
        ', in "AUC of one, mean" alone, because the other columns are published without deviations: 0 of 1 on airplane'
        in said
    )
    assert "alone" not in agreement(papers.find_table("btg-1"), {"adult": {"BCE": measured("f1", 0.39)}})


def test_runs_that_were_stopped_early_and_rows_without_published_numbers_are_not_counted():
    spec = papers.find_table("btg-1")
    rows = {"F1*": measured("f1", 0.63, "at most 8 epochs"), "BCE, tuned for F1": measured("f1", 0.26)}
    assert agreement(spec, {"adult": rows}) == ""
    rows["BCE"] = measured("f1", 0.26, "3 of 10 trials")
    assert agreement(spec, {"adult": rows}).endswith("1 of 1 on Adult.")


def test_means_with_and_without_and_wilcoxons_p():
    spec = papers.find_table("constrained-2")
    losses = ["BCE", "S-ML", "S-FL", "A-ML", "A-FL", "W-BCE"]
    without, given = [0.30, 0.31, 0.32, 0.33, 0.34, 0.35], [0.29, 0.28, 0.27, 0.34, 0.26, 0.25]
    rows = {}
    for loss, before, after in zip(losses, without, given, strict=True):
        for name, value in ((loss, before), (f"ALM with {loss}", after)):
            rows[name] = {"values": {"auc": [1 - value], "fpr100": [value], "fpr95": [value], "fpr90": [value]}}
    table = describe_constraint_effects(spec, {"airplane-automobile-9": rows})
    p = stats.wilcoxon(given, without).pvalue
    line = next(each for each in table.splitlines() if "FPR at 95" in each)
    assert line == f"| airplane v automobile, 1:9 | FPR at 95 % TPR | 0.325 | 0.282 | -0.043 | 5 : 1 | {p:.2g} |"
    assert "| AUC | 0.675 | 0.718 | +0.043 | 5 : 1 |" in table
    assert table.splitlines()[-2:] == ["", SHARED]


def test_tables_without_constraints_have_no_such_part():
    assert describe_constraint_effects(papers.find_table("btg-1"), {"adult": {"BCE": measured("f1", 0.5)}}) == ""
