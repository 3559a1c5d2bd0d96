"""Curves of several trials by epoch: their medians, and a table of them."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from metricfit_papers.pages.stored_results import Results, curves_on_test
from metricfit_papers.results.markdown import count_trials, markdown_line
from metricfit_papers.specs.table_spec import TableSpec

#: The columns of the history that rows of paths keep, with what they are called on pages.
NAMES = {"test metric": "its metric", "test accuracy": "accuracy"}


def median_curve(curves: Sequence[Sequence[float]]) -> list[float]:
    """Return the median over the trials of each epoch; a trial that stopped earlier counts until its end.

    >>> median_curve([[0.1, 0.5], [0.3, 0.7], [0.2]])
    [0.2, 0.6]
    """
    longest = max(map(len, curves))
    return [
        round(statistics.median(curve[epoch] for curve in curves if epoch < len(curve)), 12) for epoch in range(longest)
    ]


def medians_on_test(spec: TableSpec, datasets: Results) -> str:
    """Make a table of medians on the test rows: at the last epoch with the range of the trials, and the highest."""
    columns = [f"{name}, {which}" for name in NAMES.values() for which in ("last epoch", "highest median")]
    lines = [markdown_line(["row, on the test rows", "trials", *columns]), markdown_line(["---"] + ["---:"] * 5)]
    for row, tests in curves_on_test(spec, datasets).items():
        cells = [spec.rows[row].title, count_trials(len(tests["test metric"]))]
        for name in NAMES:
            last, median = [curve[-1] for curve in tests[name]], median_curve(tests[name])
            span = f" ({min(last):.3f} to {max(last):.3f})" if len(last) > 1 else ""
            cells += [f"{statistics.median(last):.3f}{span}", f"{max(median):.3f}"]
        lines.append(markdown_line(cells))
    return "\n".join(lines)
