"""Logistic regression by scikit-learn, on the encoded columns, and on the words of columns of free text.

The terms of a column are its words, pairs of words, and sequences of three to five letters. They are hashed, so a model
is stored as arrays of numbers and holds no words of the texts. The terms and their rarity are learned from all rows of
``fit`` without labels, as the encoding of the other columns is. The encoded columns of the table are columns too.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import normalize

from metricfit.core.arrays import Floats, Integers
from metricfit.errors import ModelFileError, quote
from metricfit.tabular.encoding.columns import as_text, free_text_columns
from metricfit.tabular.encoding.encoder import CLIP
from metricfit.tabular.families.arithmetic import check_indices, check_shape, cross_entropy, predict_in_parts
from metricfit.tabular.families.family import Candidates, Deadline, Family, Features, FittedModel, Splits, TrainingRows

if TYPE_CHECKING:
    from metricfit.tabular.large_rows import CompactFeatures
    from metricfit.tabular.storage import Folder

#: scikit-learn's C, from the strongest penalty to the weakest.
PENALTIES = (0.01, 0.1, 1.0, 10.0, 100.0)
ITERATIONS = 200
#: Columns without the smooth clip are cut here, in the units of the encoding (the distance of the quartiles).
FARTHEST = 10.0
#: Fitted coefficients are far smaller; sums of larger ones could overflow.
LARGEST = 1e100


def both_scales(encoded: NDArray[np.float32]) -> Floats:
    """Return the encoded columns, followed by the same columns without the smooth clip of the encoding.

    The clip helps where columns have outliers. It harms where the logit is linear far from the centre.

    >>> both_scales(np.array([[0.0, 2.1]], dtype=np.float32)).round(2)
    array([[0.  , 2.1 , 0.  , 2.94]])
    """
    clipped = encoded.astype(np.float64)
    inside = np.clip(clipped, -0.999 * CLIP, 0.999 * CLIP)
    unclipped = inside / np.sqrt(1 - np.square(inside / CLIP))
    return np.concatenate([clipped, np.clip(unclipped, -FARTHEST, FARTHEST)], axis=1)


@dataclass(frozen=True)
class LinearModel(FittedModel):
    """Logits that are linear in the columns of ``both_scales``.

    Attributes:
        coefficients: One row per logit.
        intercepts: One number per logit.
    """

    coefficients: Floats
    intercepts: Floats

    def logits(self, features: Features) -> Floats:
        """Return the logits."""
        return predict_in_parts(self._logits, features.encoded)

    def _logits(self, x: NDArray[np.float32]) -> Floats:
        return np.asarray(both_scales(x) @ self.coefficients.T + self.intercepts)

    def restored(self, folder: Folder) -> LinearModel:
        """Refuse arrays that do not fit the table and its classes."""
        check_shape("coefficients", self.coefficients, (folder.outputs, 2 * folder.columns))
        check_shape("intercepts", self.intercepts, (folder.outputs,))
        _check_sizes(self.coefficients, self.intercepts)
        return self


def _check_sizes(*arrays: Floats) -> None:
    if max(np.abs(each).max(initial=0.0) for each in arrays) > LARGEST:
        raise ModelFileError("a coefficient is too large to have been fitted")


class Linear(Family):
    """Logistic regression with five penalties on two scales, of which the other folds choose one."""

    name = "linear"

    def fit(self, train: TrainingRows, held_out: TrainingRows, *, seed: int, deadline: Deadline) -> Candidates:
        """Fit on each scale, from the strongest penalty to the weakest, each from the solution before."""
        columns, held_out_columns = both_scales(train.x), both_scales(held_out.x)
        width = train.x.shape[1]
        models, losses = [], []
        for scale in (slice(0, width), slice(width, None)):
            for coefficients, intercepts in fit_penalties(columns[:, scale], train, PENALTIES, deadline):
                logits = held_out_columns[:, scale] @ coefficients.T + intercepts
                losses.append(cross_entropy(logits, held_out.y, held_out.weight))
                placed = np.zeros((len(intercepts), 2 * width))
                placed[:, scale] = coefficients
                models.append(LinearModel(placed, intercepts))
        return Candidates(models.__getitem__, np.nan_to_num(np.array(losses), nan=np.inf, posinf=np.inf))

    def combine(self, models: Sequence[FittedModel]) -> FittedModel:
        """Average the coefficients, which averages the logits."""
        linear = [model for model in models if isinstance(model, LinearModel)]
        return LinearModel(
            np.mean([model.coefficients for model in linear], axis=0),
            np.mean([model.intercepts for model in linear], axis=0),
        )


def fit_penalties(
    columns: Any, train: TrainingRows, penalties: Sequence[float], deadline: Deadline
) -> Iterator[tuple[Floats, Floats]]:
    """Fit logistic regressions from the strongest penalty to the weakest, each from the solution before.

    Args:
        columns: The columns of the training rows, an array or a sparse matrix.
        train: The training rows, for their classes and weights.
        penalties: scikit-learn's C, in ascending order.
        deadline: When to stop with OutOfTime.

    Yields:
        For each penalty, the coefficients ``(outputs, columns)`` and the intercepts ``(outputs,)``.
    """
    model = LogisticRegression(max_iter=ITERATIONS, warm_start=True)
    for penalty in penalties:
        deadline.check()
        model.set_params(C=penalty)
        with warnings.catch_warnings():
            # A solution that is not exact to the last digits is as good here.
            warnings.simplefilter("ignore", ConvergenceWarning)
            model.fit(columns, train.y, sample_weight=train.weight)
        yield _all_classes(model, train.classes)


def _all_classes(model: LogisticRegression, classes: int) -> tuple[Floats, Floats]:
    """Return coefficients and intercepts of every class; classes without a row get a very low logit."""
    if classes == 2:
        return model.coef_.copy(), model.intercept_.copy()
    coefficients, intercepts = np.zeros((classes, model.coef_.shape[1])), np.full(classes, -20.0)
    if len(model.classes_) == 2:
        coefficients[model.classes_[1]], intercepts[model.classes_] = model.coef_[0], [0.0, model.intercept_[0]]
    else:
        coefficients[model.classes_], intercepts[model.classes_] = model.coef_, model.intercept_
    return coefficients, intercepts


log = logging.getLogger("metricfit.tabular")


#: scikit-learn's C, from the strongest penalty to the weakest.
TEXT_PENALTIES = (0.5, 1.5, 4.0, 10.0)
#: Logits are compared at the best of these scales: the ensemble calibrates them, and strong penalties make them small.
SCALES = (1.0, 1.5, 2.0, 3.0)
#: What HashingVectorizer counts, how many terms of it are kept in all columns (those in the most rows), and the length
#: of its part of a row.
ANALYZERS: tuple[tuple[dict[str, Any], int, float], ...] = (
    ({"analyzer": "word", "ngram_range": (1, 2), "token_pattern": r"(?u)\b\w+\b"}, 30_000, 1.0),
    ({"analyzer": "char_wb", "ngram_range": (3, 5)}, 30_000, 0.5),
)
#: Encoded columns are multiplied by this, because TF-IDF weights are small. On food reviews the MCC is 0.60, and 0.57
#: with a scale of 1.
ENCODED_SCALE = 0.05
#: Numbers that terms are hashed to, and the fewest rows of a term that is kept.
BUCKETS, FEWEST_ROWS = 2**20, 2
#: Rows whose terms are counted at a time, which bounds the memory.
ROWS_PER_PART = 4096
#: More text takes too much memory: reviews take 95 bytes per character, and 19 more in each fold at a time.
MOST_CHARACTERS = 10_000_000


@dataclass(frozen=True)
class Terms:
    """The terms of some columns of a table.

    Attributes:
        columns: The positions of the columns in the table.
        numbers: The terms, in ascending order. Each column has a range of ``BUCKETS`` numbers for each analyzer.
        rarity: The inverse document frequency of each term.
    """

    columns: Integers
    numbers: Integers
    rarity: Floats

    @classmethod
    def learned(cls, table: Any, columns: Sequence[int]) -> Terms:
        """Learn the terms of these columns and their rarity."""
        rows_of_term = np.zeros((len(columns) * len(ANALYZERS), BUCKETS), dtype=np.int64)
        for blocks in _count_terms(table, columns):
            for total, counts in zip(rows_of_term, blocks, strict=True):
                total += counts.getnnz(axis=0)
        numbers = []
        for block, in_rows in enumerate(rows_of_term):
            most = max(1, ANALYZERS[block % len(ANALYZERS)][1] // len(columns))
            order = np.argsort(-in_rows, kind="stable")[:most]
            numbers.append(block * BUCKETS + np.sort(order[in_rows[order] >= FEWEST_ROWS]))
        kept = np.concatenate(numbers)
        rarity = np.log((1 + len(table)) / (1 + rows_of_term.ravel()[kept])) + 1
        return cls(np.asarray(columns, dtype=np.int64), kept, rarity)

    def __len__(self) -> int:
        return len(self.numbers)

    def weigh(self, features: Features | CompactFeatures) -> Any:
        """Return the TF-IDF weights and the encoded columns of rows, as a sparse matrix."""
        starts = np.searchsorted(self.numbers, BUCKETS * np.arange(len(self.columns) * len(ANALYZERS) + 1))
        parts = []
        for blocks in _count_terms(features.table, self.columns.tolist()):
            weighed = []
            for block, counts in enumerate(blocks):
                terms = slice(starts[block], starts[block + 1])
                length = ANALYZERS[block % len(ANALYZERS)][2]
                weighed.append(length * _tf_idf(counts, self.numbers[terms] - block * BUCKETS, self.rarity[terms]))
            parts.append(sparse.hstack(weighed))
        encoded = sparse.csr_array(ENCODED_SCALE * features.encoded.astype(np.float64))
        return sparse.hstack([sparse.vstack(parts), encoded], format="csr")


def _count_terms(table: Any, columns: Sequence[int]) -> Iterator[list[Any]]:
    """Yield how often each term occurs in each row, for some rows at a time; a missing text has no terms.

    The sparse matrices are of one column and one analyzer each.
    """
    from sklearn.feature_extraction.text import HashingVectorizer

    counters = [
        HashingVectorizer(n_features=BUCKETS, alternate_sign=False, norm=None, **settings) for settings, *_ in ANALYZERS
    ]
    for first in range(0, max(1, len(table)), ROWS_PER_PART):
        part = table.iloc[first : first + ROWS_PER_PART]
        texts = [[text or "" for text in as_text(part.iloc[:, at])] for at in columns]
        yield [counter.transform(entries) for entries in texts for counter in counters]


def _tf_idf(counts: Any, terms: Integers, rarity: Floats) -> Any:
    """Return the weights of these terms (1 + log of the count, times the rarity) as rows of length 1 or 0."""
    if not len(terms):
        return sparse.csr_array((counts.shape[0], 0))
    places = np.minimum(np.searchsorted(terms, counts.indices), len(terms) - 1).astype(np.int32)
    weights = np.where(terms[places] == counts.indices, (1 + np.log(counts.data)) * rarity[places], 0.0)
    matrix = sparse.csr_array((weights, places, counts.indptr), shape=(counts.shape[0], len(terms)))
    matrix.sum_duplicates()
    matrix.eliminate_zeros()
    return normalize(matrix)


@dataclass(frozen=True)
class TextModel(FittedModel):
    """Logits that are linear in TF-IDF weights and encoded columns.

    Attributes:
        terms: The terms that are weighed.
        coefficients: One row per logit.
        intercepts: One number per logit.
    """

    terms: Terms
    coefficients: Floats
    intercepts: Floats

    def logits(self, features: Features) -> Floats:
        """Return the logits."""
        return np.asarray(self.terms.weigh(features) @ self.coefficients.T + self.intercepts)

    def restored(self, folder: Folder) -> TextModel:
        """Refuse arrays that do not fit the table and its classes."""
        columns, numbers = self.terms.columns, self.terms.numbers
        check_indices("columns", columns, None, 0, 2**31)
        check_indices("terms", numbers, None, 0, len(columns) * len(ANALYZERS) * BUCKETS)
        if not len(columns) or not all((np.diff(each) > 0).all() for each in (columns, numbers)):
            raise ModelFileError("columns and terms must be in ascending order, and at least one column")
        check_shape("rarity", self.terms.rarity, (len(numbers),))
        check_shape("coefficients", self.coefficients, (folder.outputs, len(numbers) + folder.columns))
        check_shape("intercepts", self.intercepts, (folder.outputs,))
        _check_sizes(self.terms.rarity, self.coefficients, self.intercepts)
        return self


class TextLinear(Family):
    """Logistic regression on TF-IDF weights and encoded columns, with four penalties.

    Args:
        terms: The terms, which ``prepare`` learns.
        weights: The TF-IDF weights and encoded columns of the rows of all folds.
    """

    name = "text"

    def __init__(self, terms: Terms | None = None, weights: Any = None) -> None:
        self.terms, self.weights = terms, weights

    def reason_to_skip(self, rows: TrainingRows) -> str | None:
        """Return why there is no text to learn from, or too much of it."""
        table = rows.features.table
        columns = free_text_columns(table)
        if not columns:
            return "the table has no column of free text"
        characters = sum(int(table.iloc[:, at].str.len().sum()) for at in columns)
        if characters > MOST_CHARACTERS:
            return f"it is for at most {MOST_CHARACTERS:,} characters of text, and there are {characters:,}"
        return None

    def prepare(self, rows: TrainingRows) -> Family:
        """Learn the terms of all rows, and weigh them."""
        table = rows.features.table
        columns = free_text_columns(table)
        terms = Terms.learned(table, columns)
        names = ", ".join(quote(str(table.columns[at])) for at in columns)
        log.info("%s reads %s as TF-IDF of %s words and sequences of letters", self.name, names, f"{len(terms):,}")
        prepared = copy(self)
        prepared.terms, prepared.weights = terms, terms.weigh(rows.features)
        return prepared

    def fit(self, train: TrainingRows, held_out: TrainingRows, *, seed: int, deadline: Deadline) -> Candidates:
        """Fit on terms of the training rows alone, where no terms are prepared."""
        terms = (
            self.terms
            if self.terms is not None
            else Terms.learned(train.features.table, free_text_columns(train.features.table))
        )
        weights = terms.weigh(train.features), terms.weigh(held_out.features)
        return _fit(terms, *weights, train, held_out, deadline)

    def fit_folds(
        self, rows: TrainingRows, splits: Splits, *, seed: int, deadline: Deadline
    ) -> Sequence[FittedModel | Candidates]:
        """Fit each fold, from the strongest penalty to the weakest."""
        if self.terms is None:
            return self.prepare(rows).fit_folds(rows, splits, seed=seed, deadline=deadline)
        return [
            _fit(
                self.terms, self.weights[train], self.weights[held_out], rows.take(train), rows.take(held_out), deadline
            )
            for train, held_out in splits
        ]

    def combine(self, models: Sequence[FittedModel]) -> FittedModel:
        """Average the coefficients, which averages the logits; all folds have the same terms."""
        linear = [model for model in models if isinstance(model, TextModel)]
        return TextModel(
            linear[0].terms,
            np.mean([model.coefficients for model in linear], axis=0),
            np.mean([model.intercepts for model in linear], axis=0),
        )


def _fit(
    terms: Terms, weights: Any, held_out_weights: Any, train: TrainingRows, held_out: TrainingRows, deadline: Deadline
) -> Candidates:
    models, losses = [], []
    for coefficients, intercepts in fit_penalties(weights, train, TEXT_PENALTIES, deadline):
        logits = held_out_weights @ coefficients.T + intercepts
        losses.append(min(cross_entropy(scale * logits, held_out.y, held_out.weight) for scale in SCALES))
        models.append(TextModel(terms, coefficients, intercepts))
    return Candidates(models.__getitem__, np.nan_to_num(np.array(losses), nan=np.inf, posinf=np.inf))
