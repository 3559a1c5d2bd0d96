"""Numbers in the prose of verdicts, filled in from stored results, so that they agree with the tables.

A place in double brackets names what stands there; parts are separated by bars:

- ``[[btg-1 | paper | adult | F1* | f1]]``: the mean over the trials, with two decimal places, or ``| 3`` with three;
- ``[[btg-1 | paper | adult | F1* minus BCE | f1]]``: a difference of means, with its sign;
- ``[[sets: anyloss-mlp | paper | AnyLoss minus BCE | f1]]``: the mean over all datasets, or a difference;
- ``[[range: btg-1 | paper | adult | F1* | f1]]``: the smallest and the largest value of a trial;
- ``[[above: surrogate-2 | paper | tshirt | BCE | f1 | 0.25]]``: how many of the trials are above a number;
- ``[[p: btg-1 | paper | adult | F1* minus BCE | f1]]``: Wilcoxon's p of the pairs of trials;
- ``[[agree: btg-1 | code | mammography]]``: how many published numbers are within two published deviations, of runs of
  any length; several datasets are separated by commas, and ``all`` stands for all of them;
- ``[[learns: surrogate-2 | paper | tshirt | BCE]]``: the first epoch of the first trial with a validation F1 above
  0.25;
- ``[[late: surrogate-2 | paper | tshirt | BCE]]``: Pearson's r of loss and metric in the second half of its epochs;
- ``[[apart: constrained-2 | paper | airplane-automobile-9 | fpr100]]``: the mean over the rows of measured minus
  published numbers, with its sign.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from metricfit.stats import compare
from metricfit_papers.pages.agreement import count_agreeing
from metricfit_papers.pages.claim_figures import from_published, table_spec
from metricfit_papers.pages.stored_results import Results
from metricfit_papers.specs.toml_section import SpecError

PLACE = re.compile(r"\[\[(?:(\w+): )?([^]]+)\]\]")
MINUS = " minus "
PLACES = 2
#: F1 of a network that has learned; one that calls all images positive has 0.18 on the sets with such rows.
LEARNED = 0.25

Stored = Mapping[str, Results | None]


def fill(text: str, results: Stored) -> str:
    """Return a text with its places filled in.

    Raises:
        SpecError: A place names something that is not stored.
    """
    return PLACE.sub(partial(_fill_place, results), text)


def _fill_place(results: Stored, match: re.Match[str]) -> str:
    parts = [part.strip() for part in match[2].split("|")]
    try:
        return KINDS[match[1] or "mean"](results, *parts)
    except (KeyError, TypeError, ValueError) as error:
        raise SpecError(
            f"{match[0]}: nothing is stored for {error}; correct the place, or run the table. Kinds of places are "
            f"{', '.join(KINDS)}"
        ) from error


def _datasets(results: Stored, table: str, protocol: str) -> dict[str, Any]:
    stored = results[table]
    if stored is None:
        raise KeyError(table)
    datasets: dict[str, Any] = stored["protocols"][protocol]
    return datasets


def _trials(results: Stored, table: str, protocol: str, dataset: str, row: str, column: str) -> list[float]:
    values: list[float] = _datasets(results, table, protocol)[dataset][row]["values"][column]
    return values


def _mean(
    results: Stored, table: str, protocol: str, dataset: str, row: str, column: str, places: str = str(PLACES)
) -> str:
    means = [statistics.fmean(_trials(results, table, protocol, dataset, name, column)) for name in row.split(MINUS)]
    if len(means) == 1:
        return f"{means[0]:.{int(places)}f}"
    return _signed(means[0] - means[1], int(places))


def _sets(results: Stored, table: str, protocol: str, row: str, column: str, places: str = str(PLACES)) -> str:
    datasets = _datasets(results, table, protocol).values()
    means = [
        statistics.fmean(statistics.fmean(rows[name]["values"][column]) for rows in datasets)
        for name in row.split(MINUS)
    ]
    return f"{means[0]:.{int(places)}f}" if len(means) == 1 else _signed(means[0] - means[1], int(places))


def _range(results: Stored, table: str, protocol: str, dataset: str, row: str, column: str) -> str:
    values = _trials(results, table, protocol, dataset, row, column)
    return f"{min(values):.{PLACES}f} to {max(values):.{PLACES}f}"


def _above(results: Stored, table: str, protocol: str, dataset: str, row: str, column: str, least: str) -> str:
    values = _trials(results, table, protocol, dataset, row, column)
    return f"{sum(value > float(least) for value in values)} of {len(values)}"


def _p(results: Stored, table: str, protocol: str, dataset: str, row: str, column: str) -> str:
    first, second = (_trials(results, table, protocol, dataset, name, column) for name in row.split(MINUS))
    return f"{compare(first, second, samples=1).p_value:.2g}"


def _agree(results: Stored, table: str, protocol: str, names: str) -> str:
    stored = _datasets(results, table, protocol)
    chosen = stored if names == "all" else [name.strip() for name in names.split(",")]
    counts = [count_agreeing(table_spec(table), name, stored[name], any_length=True) for name in chosen]
    agreeing, published = (sum(each) for each in zip(*counts, strict=True))
    return f"{agreeing} of {published}"


def _apart(results: Stored, table: str, protocol: str, dataset: str, column: str) -> str:
    rows = _datasets(results, table, protocol)[dataset]
    return _signed(statistics.fmean(from_published(table_spec(table), dataset, rows, column)), PLACES)


def _learns(results: Stored, table: str, protocol: str, dataset: str, row: str) -> str:
    (values,) = _datasets(results, table, protocol)[dataset][row]["chosen"]["watched"].values()
    return str(next(epoch for epoch, value in enumerate(values, start=1) if value > LEARNED))


def _late(results: Stored, table: str, protocol: str, dataset: str, row: str) -> str:
    path = _datasets(results, table, protocol)[dataset][row]["chosen"]["path"]
    losses, values = (path[name][len(path[name]) // 2 :] for name in ("loss", "metric"))
    return f"{statistics.correlation(losses, values):.3f}"


def _signed(difference: float, places: int) -> str:
    """Return a difference with its sign; a difference that rounds to 0 has none.

    >>> _signed(0.126, 2), _signed(-0.001, 2)
    ('+0.13', '0.00')
    """
    return f"{difference:+.{places}f}" if round(difference, places) else f"{0:.{places}f}"


KINDS: dict[str, Callable[..., str]] = {
    "mean": _mean,
    "sets": _sets,
    "range": _range,
    "above": _above,
    "p": _p,
    "agree": _agree,
    "learns": _learns,
    "late": _late,
    "apart": _apart,
}
