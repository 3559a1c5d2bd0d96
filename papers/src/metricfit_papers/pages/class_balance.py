"""Tables 8 and 10 of Bridging the Gap: class weights and oversampled rows, published and as the splits here have them.

Both count the classes in the training rows, so they show how the authors split. Expected numbers need no data: they are
shares of known counts. The deviation between random splits is a hypergeometric distribution's.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

from metricfit_papers.datasets.catalogue import CATALOGUE
from metricfit_papers.results.markdown import markdown_line
from metricfit_papers.specs.table_parser import find_table

#: Rows and positives of UCI's training file of Adult.
UCI_TRAINING = (32_561, 7_841)


class Balance(NamedTuple):
    """A line of Tables 8 and 10.

    Attributes:
        weights: Published weights of a negative and of a positive row.
        negatives: Published number of negative training rows, which oversampling makes the number of positives too.
        drawn_from: Rows and positives of the rows that training rows are drawn from; None for the whole dataset.
        share: Share of these rows that are training rows.
    """

    weights: tuple[float, float]
    negatives: int
    drawn_from: tuple[int, int] | None = None
    share: float = 0.64


PUBLISHED = {
    "cocktailparty": Balance((0.72, 1.65), 2_142),
    "adult": Balance((0.66, 2.07), 19_782, UCI_TRAINING, 0.8),
    "mammography": Balance((0.51, 21.55), 6_985),
    "creditcard": Balance((0.50, 290.25), 181_947),
}


def expected_negatives(name: str, balance: Balance) -> tuple[float, float]:
    """Return the mean and the deviation, between random splits, of the number of negative training rows.

    >>> mean, deviation = expected_negatives("adult", PUBLISHED["adult"])
    >>> round(mean), round(deviation)
    (19776, 31)
    """
    rows, positives = balance.drawn_from or (CATALOGUE[name].rows, CATALOGUE[name].positives)
    of_class = positives / rows
    variance = rows * balance.share * of_class * (1 - of_class) * (1 - balance.share) * rows / (rows - 1)
    return balance.share * (rows - positives), math.sqrt(variance)


def class_weights(rows: float, positives: float) -> tuple[float, float]:
    """Return the weights of a negative and of a positive row that make both classes count the same (Section 7.2).

    >>> class_weights(4, 1)
    (0.6666666666666666, 2.0)
    """
    return rows / (2 * (rows - positives)), rows / (2 * positives)


def describe_balance() -> Iterator[str]:
    """Yield the paragraphs about Tables 8 and 10."""
    yield '<a id="btg-8-10"></a>\n\n## Tables 8 and 10: class weights and oversampling'
    yield (
        "Both tables count classes in the training rows. The expected numbers hold for random splits, with their "
        "deviation. Adult's 19,782 negatives are 80 % of those in UCI's training file. A split of all rows would have "
        f"{0.64 * (CATALOGUE['adult'].rows - CATALOGUE['adult'].positives):,.0f}, so its test rows are UCI's."
    )
    head = ["dataset", "negatives in training, published", "expected", "weights, published", "expected"]
    lines = [markdown_line(head), markdown_line(["---", *["---:"] * 4])]
    datasets = find_table("btg-1").datasets
    for name, balance in PUBLISHED.items():
        mean, deviation = expected_negatives(name, balance)
        rows, positives = balance.drawn_from or (CATALOGUE[name].rows, CATALOGUE[name].positives)
        weights = class_weights(balance.share * rows, balance.share * positives)
        lines.append(
            markdown_line(
                [
                    *(datasets[name].title, f"{balance.negatives:,}", f"{mean:,.0f} ± {deviation:.0f}"),
                    *(", ".join(f"{weight:.2f}" for weight in pair) for pair in (balance.weights, weights)),
                ]
            )
        )
    yield "\n".join(lines)
