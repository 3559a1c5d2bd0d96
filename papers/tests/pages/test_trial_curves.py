"""Curves of trials: medians of all that are stored, and the first trial of results that have no more."""

import metricfit_papers as papers
from metricfit_papers.pages import drawing, stored_results
from metricfit_papers.pages.trial_curves import median_curve


def results():
    path = {name: [0.1, 0.2] for name in ("loss", "metric", "f1", "accuracy")}
    tests = {"test metric": [[0.3, 0.4]] * 3, "test accuracy": [[0.8, 0.9], [0.9, 1.0], [0.5, 0.6]]}
    older = {"path": path, "watched": {"f1": [0.5, 0.6]}, "tests": tests}
    curves = {"f1": [[0.1, 0.2], [0.3, 0.9], [0.2, 0.4]], "validation f1": [[0.5, 0.6]] * 3}
    rows = {"surrogate F1": older | {"curves": curves}, "BCE": older}
    cells = {row: {"chosen": chosen} for row, chosen in rows.items()}
    return {"tshirt": cells}


def test_all_trials_are_used_where_they_are_stored(tmp_path):
    spec = papers.find_table("surrogate-2")
    curves = stored_results.curves_of(spec, results())
    assert median_curve(curves["surrogate F1"]["f1"]) == [0.2, 0.4]
    assert curves["BCE"]["f1"] == [[0.1, 0.2]]
    assert curves["BCE"]["validation f1"] == [[0.5, 0.6]]
    assert stored_results.paths_of(spec, results())["surrogate F1"]["f1"] == [0.1, 0.2]
    drawing.plot_curves(spec, results(), tmp_path / "curves.svg")
    drawn = (tmp_path / "curves.svg").read_text(encoding="utf-8")
    assert "median of 1 or 3 trials" in drawn
    assert "median of 3 trials" in drawn
