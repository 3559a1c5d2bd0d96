r"""Columns that a model should not learn from, or cannot, and columns that say too much about the target.

The former are identifiers, constants, copies, and numbers written as text. The others alone tell the classes apart, or
their values are groups of rows. ``examination`` has the checks that need the labels, the rows or several tables; these
look at one column after the other, with statistics of their own.

A column's AUC for a class is the larger of two AUCs. One ranks by its numbers as they are. The other ranks by the
class's share in the bin of an entry (a category, or an interval of numbers), measured on other rows. The variance of an
AUC A is at most :math:`A (1 - A) / m` with m rows of the rarer side (van Dantzig 1951), so that Wilson's lower bound
with m trials is a lower bound of the AUC. Its level is divided by the number of columns and classes that were tried.

Rows of a group tend to have the same label. For every value that occurs twice, two of its rows are compared. Their
labels are correlated by :math:`\bar{(a - p)(b - p)} / (p (1 - p))`, where a and b say whether a row is of the class and
p is the share of the class. Without groups the correlation is 0 with a standard error of :math:`1 / \sqrt{m}` for m
pairs. Numbers that are quantities also predict the label; there, rows of neighbouring values agree as often.
"""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Iterator
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from metricfit.core.arrays import Floats, Integers
from metricfit.data.columns import quote_label
from metricfit.errors import quote
from metricfit.tabular.doctor.finding import (
    Finding,
    Kind,
    Severity,
    are_written_dates,
    as_codes,
    as_numbers,
    describe_share,
    kind_of,
    list_names,
)
from metricfit.tabular.encoding.columns import FEWEST_TEXTS, TEXT_COMPONENTS, are_categories, free_text_columns

#: Columns of fewer rows may differ in every row by chance.
FEWEST_OF_IDENTIFIERS = 30
#: Names that identifiers usually have.
NAMED_LIKE_AN_IDENTIFIER = re.compile(
    r"(^|[_\s.-])(id|ids|uuid|guid|key|index|rowid|row_?(nr|no|number))$", re.IGNORECASE
)
CAMEL_CASE_ID = re.compile(r"[a-z]I[dD]$")
#: Whole numbers from a range of at most 10 times as many, which would repeat by chance in all but one of e^10 tables.
CLOSE_NUMBERS, FEWEST_CLOSE = 10, 200
#: A share of missing entries that leaves little to learn, and a share of numbers that makes text numbers.
MOSTLY_MISSING, MOSTLY_NUMBERS = 0.95, 0.8
#: Columns of more are not compared with one another entry by entry.
ROWS_COMPARED = 2_000
#: Sets of equal columns that a message lists.
SETS_LISTED = 3


def check_columns(X: pd.DataFrame, *, known: tuple[str, ...] = ()) -> Iterator[Finding]:
    """Find columns that look like identifiers, hold nothing to learn from, or repeat others.

    Args:
        X: The features.
        known: Columns that the user named as groups or times, which may be identifiers.

    Yields:
        The findings, in no order.
    """
    columns = [name for name in X.columns if name not in known]
    constant = [name for name in columns if _is_constant(X[name])]
    varying = [name for name in columns if name not in constant]
    if constant:
        yield _constant_columns(X, constant)
    missing = {name: int(X[name].isna().sum()) for name in varying}
    hollow = [name for name in varying if missing[name] >= MOSTLY_MISSING * len(X)]
    if hollow:
        worst = max(hollow, key=missing.__getitem__)
        message = (
            f"{list_names(hollow)} {'is' if len(hollow) == 1 else 'are'} mostly missing, {quote(worst)} in "
            f"{describe_share(missing[worst], len(X))}."
        )
        remedy = "Check that the column was read and joined as it should be; a missing entry is learned from too."
        yield Finding("mostly_missing", "note", message, remedy, tuple(hollow))
    identifiers: list[str] = []
    for name in varying:
        if name.startswith("Unnamed: "):
            message = f"A column without a name, here {quote(name)}, is learned from like any other."
            remedy = f"If it holds row numbers (pandas writes them without index=False), {_leave_out(name)}."
            yield Finding("unnamed_column", "warning", message, remedy, (name,))
        naming = list(_identifier(X[name], name))
        identifiers += [name] * len(naming)
        yield from naming
        yield from _numbers_as_text(X[name], name)
    yield from _free_text(X, [name for name in varying if name not in identifiers])
    yield from _many_values(X, [name for name in varying if name not in identifiers])
    yield from _duplicates(X[varying])


def _is_constant(column: pd.Series) -> bool:
    head = column.iloc[:ROWS_COMPARED].nunique(dropna=False) <= 1
    return bool(head and column.nunique(dropna=False) <= 1)


def _constant_columns(X: pd.DataFrame, constant: list[str]) -> Finding:
    message = f"{list_names(constant)} each have one value in every row."
    if len(constant) == 1:
        value = X[constant[0]].iloc[:1].tolist()[0]
        holds = "is empty" if pd.isna(value) else f"has the value {quote(value, 40)} in every row"
        message = f"{quote(constant[0])} {holds}."
    remedy = f"There is nothing to learn from {'it' if len(constant) == 1 else 'them'}; check that the table is whole."
    return Finding("constant_column", "note", message, remedy, tuple(constant))


def _leave_out(name: str) -> str:
    return f"leave it out: --drop {shlex.quote(name)}"


def _identifier(column: pd.Series, name: str) -> Iterator[Finding]:
    """Find out whether a column names the row."""
    if len(column) < FEWEST_OF_IDENTIFIERS:
        return
    named = bool(NAMED_LIKE_AN_IDENTIFIER.search(name) or CAMEL_CASE_ID.search(name))
    kind = kind_of(column)
    if kind == "words" and _is_one_word_per_row(column) and not are_written_dates(column):
        what, why = "word in every row, as identifiers do", "New rows will have words that no model has seen"
    elif kind == "numbers" and _counts_rows(column, named):
        what = "whole number in every row, as row numbers and identifiers do"
        why = "A model that learns from it learns the order of rows"
    else:
        return
    message = f"The column {quote(name)} has a different {what}."
    yield Finding("identifier", "warning", message, f"{why}; if it is an identifier, {_leave_out(name)}.", (name,))


def _is_one_word_per_row(column: pd.Series) -> bool:
    """Return whether all entries are words without blanks, all different."""
    if isinstance(column.dtype, pd.CategoricalDtype) or column.isna().any():
        return False
    return column.is_unique and all(isinstance(word, str) and not any(map(str.isspace, word)) for word in column)


def _counts_rows(column: pd.Series, named: bool) -> bool:
    """Return whether whole numbers all differ, although they lie so close that counts would repeat."""
    if column.isna().any() or not column.is_unique:
        return False
    numbers = column.to_numpy(dtype=np.float64)
    ordered = bool((np.diff(numbers) > 0).all())
    span = float(numbers.max() - numbers.min()) + 1
    close = span <= CLOSE_NUMBERS * len(numbers) and len(numbers) >= FEWEST_CLOSE
    return bool((np.mod(numbers, 1) == 0).all()) and (named or close or (ordered and span <= 1.05 * len(numbers)))


def _numbers_as_text(column: pd.Series, name: str) -> Iterator[Finding]:
    """Find text that is mostly numbers: the entries that are not make the whole column text."""
    if isinstance(column.dtype, pd.CategoricalDtype) or column.dtype == bool or kind_of(column) != "words":
        return
    present = column.dropna()
    if pd.to_numeric(present.iloc[:ROWS_COMPARED], errors="coerce").notna().mean() < MOSTLY_NUMBERS:
        return
    others = present[pd.to_numeric(present, errors="coerce").isna()]
    if 0 < len(others) <= (1 - MOSTLY_NUMBERS) * len(present):
        listed = list_names(others.value_counts().index.tolist(), 3)
        message = (
            f"{quote(name)} is read as text, because {describe_share(len(others), len(column))} hold {listed} and "
            "not numbers."
        )
        remedy = "Leave such entries empty, so that the column holds numbers."
        yield Finding("numbers_as_text", "warning", message, remedy, (name,))


def _free_text(X: pd.DataFrame, names: list[str]) -> Iterator[Finding]:
    """Find columns of words whose values repeat too rarely to be categories, and say how the families read them."""
    words = [name for name in names if kind_of(X[name]) == "words" and not are_written_dates(X[name])]
    values = {name: X[name].nunique() for name in words}
    free = [name for name in words if values[name] >= FEWEST_TEXTS and not are_categories(len(X), values[name])]
    if free:
        one = len(free) == 1
        sentences = [free[at] for at in free_text_columns(X[free])]
        weighed = f" The family 'text' reads {list_names(sentences)} as TF-IDF." if sentences else ""
        options = " ".join(f"--drop {shlex.quote(name)}" for name in free[:SETS_LISTED])
        yield Finding(
            "free_text",
            "note",
            f"{list_names(free)} {'holds' if one else 'hold'} text that hardly repeats, which cannot be exported to "
            f"ONNX. It is encoded as {TEXT_COMPONENTS} components of its letters.{weighed}",
            f"For fit --onnx leave {'it' if one else 'them'} out: {options}{' ...' * (len(free) > SETS_LISTED)}. "
            "metricfit.export.mlflow runs such models too.",
            tuple(free),
        )


def _many_values(X: pd.DataFrame, names: list[str]) -> Iterator[Finding]:
    """Find columns of words with many values that repeat, such as codes, and say how they are read."""
    values = {name: X[name].nunique() for name in names if kind_of(X[name]) == "words"}
    many = [
        name
        for name, number in values.items()
        if number >= FEWEST_TEXTS and are_categories(len(X), number) and not are_written_dates(X[name])
    ]
    if many:
        listed = ", ".join(f"{quote(name)} ({values[name]:,})" for name in many[:SETS_LISTED])
        more = f" and {len(many) - SETS_LISTED} more" if len(many) > SETS_LISTED else ""
        yield Finding(
            "many_values",
            "note",
            f"Categories of many values: {listed}{more}. Each value is encoded as {TEXT_COMPONENTS} components of its "
            "letters, learned without the target. Rare values are encoded like values that are spelled alike.",
            "Nothing to do. If the values have a coarser level, such as the region of a postcode, add it as a column.",
            tuple(many),
        )


def _duplicates(X: pd.DataFrame) -> Iterator[Finding]:
    """Find columns that are the same, and columns that name the same things by other words."""
    heads: dict[bytes, list[str]] = {}
    for name in X.columns:
        heads.setdefault(as_codes(X[name].iloc[:ROWS_COMPARED]).tobytes(), []).append(name)
    equal, renamed = [], []
    for names in heads.values():
        alike: dict[bytes, list[str]] = {}
        for name in names if len(names) > 1 else ():
            alike.setdefault(as_codes(X[name]).tobytes(), []).append(name)
        for group in alike.values():
            if len(group) > 1 and _are_equal(X, group):
                equal.append(group)
            elif len(group) > 1 and not X[group[0]].is_unique:  # two columns of different entries say nothing
                renamed.append(group)
    for groups, how in ((equal, "equal in every row"), (renamed, "different names of the same entries")):
        if groups:
            listed = "; ".join(list_names(group) for group in groups[:SETS_LISTED])
            more = f"; and {len(groups) - SETS_LISTED} more such sets" if len(groups) > SETS_LISTED else ""
            yield Finding(
                "duplicate_columns",
                "note",
                f"Columns are {how}: {listed}{more}.",
                "Keep one column of each set.",
                tuple(name for group in groups for name in group),
            )


def _are_equal(X: pd.DataFrame, names: list[str]) -> bool:
    return all(X[name].astype(object).equals(X[names[0]].astype(object)) for name in names[1:])


#: An AUC from which a column decides, and a lower bound that makes it a serious finding.
DECIDES, SURELY = 0.985, 0.9
#: The same for a warning: an AUC that is high, on many rows, or perfect, on a few.
STRONG, PERFECT = (0.97, 0.9), (0.999, 0.75)
LEVEL = 0.05
FOLDS, MOST_BINS, MOST_CATEGORIES, MOST_CLASSES = 5, 64, 255, 30
#: Rows of each class that are looked at, cells in all, and the largest number of columns.
ROWS_OF_A_CLASS, CELLS, MOST_COLUMNS = 10_000, 600_000, 2_000
#: Leaks that a message lists.
LISTED = 3


class ColumnAuc(NamedTuple):
    """How well one column alone tells a class from the others.

    Attributes:
        column: Name of the column.
        auc: Its AUC.
        bound: The lower bound of the AUC, which allows for the number of columns that were tried.
        label: The class.
        rows: Number of rows of the class, or of the others if they are fewer.
    """

    column: str
    auc: float
    bound: float
    label: object
    rows: int


def check_leaks(X: pd.DataFrame, y: pd.Series, *, positive: object = None, seed: int = 0) -> Iterator[Finding]:
    """Find columns that alone decide the target.

    Args:
        X: The features.
        y: Labels of at least two classes.
        positive: The positive class of two, for messages.
        seed: Seed of the rows that are looked at in a large table, and of the folds.

    Yields:
        At most three findings: columns that decide, columns that are nearly as good, and columns that may be so by
        chance.
    """
    groups: dict[Severity, list[ColumnAuc]] = {"serious": [], "warning": [], "note": []}
    for each in column_aucs(X, y, positive=positive, seed=seed):
        if each.auc >= DECIDES and each.bound >= SURELY:
            groups["serious"].append(each)
        elif any(each.auc >= auc and each.bound >= bound for auc, bound in (STRONG, PERFECT)):
            groups["warning"].append(each)
        elif each.auc >= DECIDES:
            groups["note"].append(each)
    for severity, columns in groups.items():
        if columns:
            yield _describe(columns, severity, y.nunique() == 2)


def column_aucs(X: pd.DataFrame, y: pd.Series, *, positive: object = None, seed: int = 0) -> list[ColumnAuc]:
    """Compute the AUC of each column alone, for the class that it tells apart best; the highest first.

    Example:
        >>> X = pd.DataFrame({"noise": [3, 1, 2] * 40, "copy": [0, 0, 1] * 40})
        >>> best = column_aucs(X, pd.Series(["no", "no", "yes"] * 40), positive="yes")[0]
        >>> best.auc, round(best.bound, 2), best.rows
        (1.0, 0.91, 40)
    """
    rng = np.random.default_rng(seed)
    X = X.iloc[:, :MOST_COLUMNS]
    chosen = _sampled_rows(y, max(200, CELLS // max(1, X.shape[1])), rng)
    codes, labels = pd.factorize(y.iloc[chosen])
    counts = np.bincount(codes)
    if len(labels) == 2:
        tested = [next((i for i, label in enumerate(labels) if label == positive), int(counts.argmin()))]
    else:
        tested = np.argsort(-counts, kind="stable")[:MOST_CLASSES].tolist()
    folds = rng.permutation(len(chosen)) % FOLDS
    z = NormalDist().inv_cdf(1 - LEVEL / max(1, X.shape[1] * len(tested)))
    found = []
    for name in X.columns:
        aucs = _column_auc(X[name].iloc[chosen], codes, folds, tested)
        best = int(np.argmax(aucs))
        rows = int(min(counts[tested[best]], len(codes) - counts[tested[best]]))
        found.append(
            ColumnAuc(name, float(aucs[best]), _wilson_bound(float(aucs[best]), rows, z), labels[tested[best]], rows)
        )
    return sorted(found, key=lambda each: -each.auc)


def _sampled_rows(y: pd.Series, most: int, rng: np.random.Generator) -> Integers:
    """Choose rows, up to the same number of each class, because an AUC does not depend on their shares."""
    codes, labels = pd.factorize(y)
    per_class = min(ROWS_OF_A_CLASS, most // len(labels))
    parts = [np.flatnonzero(codes == label) for label in range(len(labels))]
    return np.sort(
        np.concatenate(
            [part if len(part) <= per_class else rng.choice(part, per_class, replace=False) for part in parts]
        )
    )


def _column_auc(column: pd.Series, codes: Integers, folds: Integers, tested: list[int]) -> Floats:
    numbers = as_numbers(column)
    if numbers is None:
        return _binned_auc(_merge_rare(as_codes(column)), codes, folds, tested)
    smallest = int(np.bincount(codes).min())
    binned = _binned_auc(_bins(numbers, int(np.clip(smallest, 4, MOST_BINS))), codes, folds, tested)
    return np.maximum(binned, _rank_auc(numbers, codes, tested))


def _rank_auc(numbers: Floats, codes: Integers, tested: list[int]) -> Floats:
    """Compute the AUC of the numbers themselves, in either direction; missing ones are the lowest."""
    counts = np.bincount(codes).astype(np.float64)
    sums = np.bincount(codes, weights=pd.Series(np.where(np.isnan(numbers), -np.inf, numbers)).rank().to_numpy())
    auc = (sums - counts * (counts + 1) / 2) / np.maximum(counts * (len(codes) - counts), 1)
    return np.asarray(np.maximum(auc, 1 - auc)[tested])


def _bins(numbers: Floats, count: int) -> Integers:
    """Return the interval of each number, of about equally many rows each; missing numbers have one of their own."""
    present = numbers[~np.isnan(numbers)]
    if not len(present):
        return np.zeros(len(numbers), dtype=np.int64)
    edges = np.unique(np.quantile(present, np.linspace(0, 1, count + 1)[1:-1]))
    # Two searches give an edge that many rows share an interval of its own, such as the 0 of an amount.
    bins = np.searchsorted(edges, numbers, side="left") + np.searchsorted(edges, numbers, side="right")
    return np.where(np.isnan(numbers), 2 * len(edges) + 1, bins)


def _merge_rare(codes: Integers) -> Integers:
    """Give all but the most frequent categories one code."""
    counts = np.bincount(codes)
    if len(counts) <= MOST_CATEGORIES:
        return codes
    kept = np.argsort(-counts, kind="stable")[:MOST_CATEGORIES]
    renumbered = np.full(len(counts), MOST_CATEGORIES, dtype=np.int64)
    renumbered[kept] = np.arange(MOST_CATEGORIES)
    return np.asarray(renumbered[codes])


def _binned_auc(bins: Integers, codes: Integers, folds: Integers, tested: list[int]) -> Floats:
    """Compute the AUC of each class's share in a row's bin; the shares are measured on the other folds."""
    width, classes = int(bins.max()) + 1, int(codes.max()) + 1
    table = np.bincount((folds * width + bins) * classes + codes, minlength=FOLDS * width * classes)
    table = table.reshape(FOLDS, width, classes)
    others = table.sum(axis=0)[None] - table
    prior = np.bincount(codes, minlength=classes) / len(codes)
    shares = (others + prior) / (others.sum(axis=2, keepdims=True) + 1)
    return np.array([_mean_over_folds(table, shares, label) for label in tested])


def _mean_over_folds(table: Integers, shares: Floats, label: int) -> float:
    values, weights = [], []
    for counts, scores in zip(table, shares[:, :, label], strict=True):
        of_class, of_others = counts[:, label], counts.sum(axis=1) - counts[:, label]
        if of_class.sum() and of_others.sum():
            _, place = np.unique(scores.round(12), return_inverse=True)
            hits, misses = np.bincount(place, weights=of_class), np.bincount(place, weights=of_others)
            below = np.cumsum(misses) - 0.5 * misses
            values.append(float(hits @ below / (hits.sum() * misses.sum())))
            weights.append(float(hits.sum()))
    return float(np.average(values, weights=weights)) if values else 0.5


def _wilson_bound(share: float, trials: int, z: float) -> float:
    if trials == 0:
        return 0.0
    spread = z * math.sqrt(share * (1 - share) / trials + z * z / (4 * trials * trials))
    return (share + z * z / (2 * trials) - spread) / (1 + z * z / trials)


def _describe(columns: list[ColumnAuc], severity: Severity, of_two: bool) -> Finding:
    first = columns[0]
    whom = "the classes apart" if of_two else f"{quote_label(first.label)} from the other classes"
    if len(columns) == 1:
        subject, verb, auc = quote(first.column), "tells", f"AUC {_short(first.auc)}"
    else:
        listed = ", ".join(f"{quote(each.column)} {_short(each.auc)}" for each in columns[:LISTED])
        more = f" and {len(columns) - LISTED} more" if len(columns) > LISTED else ""
        subject, verb, auc = f"{len(columns)} columns", "each tell", f"AUC of {listed}{more}"
        whom = whom if of_two else "one class from the others"
    how = {"serious": "almost perfectly", "warning": "very well", "note": "almost perfectly"}[severity]
    message = f"{subject} alone {verb} {whom} {how} ({auc}"
    if severity == "note":
        message = f"{message}); with {first.rows} rows of the rarer class this may be chance."
        remedy = "More rows would tell; if it is made from the target, remove it."
        return Finding("leak", severity, message, remedy, tuple(each.column for each in columns))
    message += f"; at least {math.floor(100 * first.bound) / 100:g} at 95 % confidence)."
    it, them = ("it is", "it") if len(columns) == 1 else ("they are", "them")
    options = " ".join(f"--drop {shlex.quote(each.column)}" for each in columns[:LISTED])
    remedy = (
        f"Check that {it} known when the decision is made, and not a result of the target; otherwise leave {them} out: "
        f"{options}{' ...' if len(columns) > LISTED else ''}."
    )
    return Finding("leak", severity, message, remedy, tuple(each.column for each in columns))


def _short(auc: float) -> str:
    return f"{math.floor(1000 * auc) / 1000:.3f}"


#: Columns of fewer different values are categories, and columns with more rows per value too.
FEWEST_GROUPS, MOST_ROWS_PER_GROUP = 30, 50
#: A column of words must repeat its values, and groups have several rows on average.
FEWEST_ROWS_PER_GROUP = 1.2
#: Correlation of two rows of a value that counts, in standard errors and as such, and pairs of the class.
STANDARD_ERRORS, SMALLEST_CORRELATION, FEWEST_PAIRS = 5.0, 0.05, 10


class Groups(NamedTuple):
    """How the values of a column are related to the labels.

    Attributes:
        values: Number of different values.
        rows: Number of rows with a value.
        correlation: Correlation of the labels of two rows of a value, minus the correlation at neighbouring numbers.
        shared: Share of the rows whose value some training row has, if the rows are split into five random folds.
    """

    values: int
    rows: int
    correlation: float
    shared: float


def check_groups(X: pd.DataFrame, y: pd.Series, seed: int = 0) -> Iterator[Finding]:
    """Find columns whose rows of one value belong together, judged by the values and labels.

    Args:
        X: The features.
        y: The labels.
        seed: Seed of the rows that are compared.

    Yields:
        One finding per column.

    Example:
        >>> crash = np.repeat(np.arange(400), 2)
        >>> deadly = np.random.default_rng(0).random(400)[crash] > 0.7
        >>> [finding.columns for finding in check_groups(pd.DataFrame({"crash": crash}), pd.Series(deadly))]
        [('crash',)]
    """
    codes, labels = pd.factorize(y)
    frequent = np.argsort(-np.bincount(codes), kind="stable")[: MOST_CLASSES if len(labels) > 2 else 1]
    for name in X.columns:
        groups = _groups_of(X[name], codes.astype(np.int64), frequent, np.random.default_rng(seed))
        if groups is not None:
            yield _describe_groups(str(name), groups)


def _groups_of(column: pd.Series, codes: Integers, classes: Integers, rng: np.random.Generator) -> Groups | None:
    """Return what is known about a column of groups; None if its values are not groups."""
    kind = _kind_of_names(column)
    if kind is None:
        return None
    present = np.flatnonzero(column.notna().to_numpy())
    entries = column.iloc[present]
    numbers, _ = pd.factorize(entries.astype(str) if kind == "words" else entries, sort=True)
    sizes = np.bincount(numbers)
    if not FEWEST_ROWS_PER_GROUP * len(sizes) <= len(numbers) <= MOST_ROWS_PER_GROUP * len(sizes):
        return None
    shuffled = rng.permutation(len(numbers))
    order = present[shuffled[np.argsort(numbers[shuffled], kind="stable")]]
    starts = np.cumsum(sizes) - sizes
    several = starts[sizes > 1]
    correlations = [_excess(codes == label, order, starts, several, kind) for label in classes]
    correlation = max(correlations)
    if correlation == 0:
        return None
    shared = 1 - float((sizes * 0.2 ** (sizes - 1)).sum() / len(numbers))
    return Groups(len(sizes), len(numbers), correlation, shared)


def _kind_of_names(column: pd.Series) -> Kind | None:
    """Return whether a column holds words or whole numbers of enough different values; None for anything else."""
    kind = kind_of(column)
    if kind == "dates" or pd.api.types.is_bool_dtype(column) or column.nunique() < FEWEST_GROUPS:
        return None
    if kind == "words":
        return None if are_written_dates(column) else kind
    numbers = column.dropna().to_numpy(dtype=np.float64)
    return kind if np.isfinite(numbers).all() and (np.mod(numbers, 1) == 0).all() else None


def _excess(of_class: NDArray[np.bool_], order: Integers, starts: Integers, several: Integers, kind: Kind) -> float:
    """Return how much more two rows of one value agree than chance or neighbouring values; 0 if that may be chance."""
    p = float(of_class.mean())
    labels = of_class[order].astype(np.float64)
    together = labels[several] * labels[several + 1]
    if len(several) < FEWEST_PAIRS or together.sum() < FEWEST_PAIRS:
        return 0.0
    centred = (labels - p) / np.sqrt(p * (1 - p))
    error = 1 / np.sqrt(len(several))
    excess = float((centred[several] * centred[several + 1]).mean())
    if kind == "numbers":
        excess -= max(0.0, float((centred[starts[:-1]] * centred[starts[1:]]).mean()))
        error = float(np.hypot(error, 1 / np.sqrt(len(starts) - 1)))
    return excess if excess > max(STANDARD_ERRORS * error, SMALLEST_CORRELATION) else 0.0


def _describe_groups(name: str, groups: Groups) -> Finding:
    return Finding(
        "repeated_identifier",
        "warning",
        f"Rows with the same {quote(name)} tend to have the same label (correlation {groups.correlation:.2f}; "
        f"{groups.values:,} values in {groups.rows:,} rows). In five random folds, {groups.shared:.0%} of the rows "
        "share their value with a training row.",
        f"If new rows will have other values, such as other persons or visits, give --group {shlex.quote(name)} "
        "(groups= in Python), so that rows of one value are never split between folds.",
        (name,),
    )
