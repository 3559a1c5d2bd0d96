"""The first screen of a page: what the decisions do, in counts of rows, compared with simpler ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from metricfit.core.arrays import in_kind_of, to_numpy
from metricfit.core.confusion import ConfusionMatrix
from metricfit.core.counts import Counts
from metricfit.report import formatting


@dataclass(frozen=True)
class Statement:
    """A sentence with its most important words in bold, and the share that is drawn below it.

    Args:
        before: The beginning of the sentence.
        main: The words in bold.
        after: The end of the sentence.
        share: A share from 0 to 1 to draw as a bar; None for no bar.

    Example:
        >>> Statement("Finds ", "526 of 700", " rows.", 0.75).text
        'Finds 526 of 700 rows.'
    """

    before: str
    main: str
    after: str = ""
    share: float | None = None

    @property
    def text(self) -> str:
        """The whole sentence."""
        return self.before + self.main + self.after


@dataclass(frozen=True)
class Alternative:
    """A row of the table on the first screen.

    Args:
        name: What decides, such as "This model" or "Flagging nobody".
        cells: What it does, in the columns of the table.
        value: The metric; None if it is not known.
        is_subject: Whether it is what the page is about.
    """

    name: str
    cells: tuple[str, ...] = ()
    value: float | None = None
    is_subject: bool = False


State = Literal["guaranteed", "certified", "met", "unmet", "unknown"]


@dataclass(frozen=True)
class RequirementState:
    """What is known about a requirement.

    Args:
        text: The requirement, such as "recall >= 0.9".
        state: "guaranteed" on new rows, "certified" on cross-validated scores, "met" on these rows alone, "unmet", or
            "unknown" if it is 0/0 on these rows.
        explanation: The state in a few words, with the value.
    """

    text: str
    state: State
    explanation: str


@dataclass(frozen=True)
class FirstScreen:
    """What a page says before its sections.

    Args:
        statements: What the decisions do.
        alternatives: The same for decisions without a model, and for a simpler model.
        columns: Titles of the columns of ``alternatives``.
        metric: What people call the metric.
        requirements: What is known about each requirement.
        note: Which rows these are.

    Example:
        >>> counts = Counts(tp=526, fp=353, fn=174, tn=8947)
        >>> alternatives = [describe_decisions("Flagging nobody", Counts(0, 0, 700, 9300), 0.0)]
        >>> screen = FirstScreen(state_decisions(counts, "“fraud” rows"), alternatives, TWO_CLASS_COLUMNS, "F1")
        >>> screen.statements[0].main
        '526 of 700'
    """

    statements: Sequence[Statement]
    alternatives: Sequence[Alternative]
    columns: tuple[str, ...]
    metric: str
    requirements: Sequence[RequirementState] = ()
    note: str = ""


TWO_CLASS_COLUMNS = ("Finds", "Alarms that are right")
SEVERAL_CLASS_COLUMNS = ("Decides correctly",)
#: Labels that only say yes; the name of the column says to what.
YES = {"1", "1.0", "True", "true", "TRUE", "yes", "Yes", "YES"}


def compare_decisions(
    decisions: Sequence[tuple[str, Counts, float | None]],
    classes: Sequence[str],
    target: str | None,
    metric: str,
    *,
    statements: Sequence[Statement] = (),
    alternatives: Sequence[Alternative] = (),
    requirements: Sequence[RequirementState] = (),
    note: str = "",
    costs: bool = False,
) -> FirstScreen:
    """Make a first screen.

    Args:
        decisions: What decides, the counts of its decisions and its value; the first is what the page is about.
        classes: The names of the classes by their numbers; of two, the second is the positive one.
        target: Name of the column with the labels, if it is known.
        metric: What people call the metric.
        statements: Further sentences.
        alternatives: Further rows of the table.
        requirements: What is known about each requirement.
        note: Which rows these are.
        costs: Whether values are mean costs of a row.

    Returns:
        The screen.
    """
    counts = decisions[0][1]
    shown = [
        describe_decisions(name, of_name, value, is_subject=of_name is counts) for name, of_name, value in decisions
    ]
    columns: tuple[str, ...] = TWO_CLASS_COLUMNS
    if isinstance(counts, ConfusionMatrix):
        said, columns = state_several_classes(counts, classes), SEVERAL_CLASS_COLUMNS
    else:
        said = state_decisions(counts, name_rows(classes[1], target))
    said.append(state_per_thousand(decisions, name_rows(classes[-1], target), costs=costs))
    shown += [replace(each, cells=("",) * len(columns)) for each in alternatives]
    return FirstScreen([*said, *statements], shown, columns, metric, requirements, note)


def name_rows(label: str, target: str | None) -> str:
    """Return what to call the rows of a class.

    Args:
        label: The label of the class.
        target: Name of the column with the labels, if it is known.

    Returns:
        The words.

    Example:
        >>> name_rows("1", "fraud"), name_rows("leaves", "churn"), name_rows("1", None)
        ('rows with fraud = 1', '“leaves” rows', '“1” rows')
    """
    return f"rows with {target} = {label}" if label in YES and target is not None else f"“{label}” rows"


def describe_decisions(name: str, counts: Counts, value: float | None, *, is_subject: bool = False) -> Alternative:
    r"""Describe decisions as a row of the table on the first screen.

    Example:
        >>> describe_decisions("Flagging nobody", Counts(0, 0, 4, 6), 0.0).cells
        ('0 of 4 (0\xa0%)', 'no alarms')
    """
    if isinstance(counts, ConfusionMatrix):
        right, total = float(counts.tp.sum()), float(counts.matrix.sum())
        return Alternative(name, (formatting.part(right, total),), value, is_subject)
    tp, called, positives = (float(part.sum()) for part in (counts.tp, counts.predicted, counts.positives))
    alarms = formatting.part(tp, called) if called else "no alarms"
    return Alternative(name, (formatting.part(tp, positives), alarms), value, is_subject)


def decisions_without_model(counts: Counts, classes: Sequence[str]) -> dict[str, Counts]:
    """Return the counts on the same rows of decisions that need no model, by what they are called.

    Example:
        >>> list(decisions_without_model(Counts(1, 2, 3, 4), ["no", "yes"]))
        ['Flagging nobody', 'Flagging everybody']
    """
    if isinstance(counts, ConfusionMatrix):
        rows = to_numpy(counts.positives)
        matrix = np.zeros((len(rows), len(rows)))
        largest = int(rows.argmax())
        matrix[:, largest] = rows
        return {f"Always “{classes[largest]}”": ConfusionMatrix(in_kind_of(matrix, counts.matrix))}
    nothing = counts.tp * 0
    return {
        "Flagging nobody": Counts(nothing, nothing, counts.positives, counts.negatives),
        "Flagging everybody": Counts(counts.positives, counts.negatives, nothing, nothing),
    }


def state_decisions(counts: Counts, rows: str) -> list[Statement]:
    r"""Say how many positive rows are found, and how many alarms are right.

    Args:
        counts: The counts of the decisions about two classes.
        rows: What to call the positive rows, such as "“fraud” rows".

    Returns:
        Two sentences.

    Example:
        >>> [statement.text for statement in state_decisions(Counts(3, 1, 1, 5), "“fraud” rows")]
        ['Finds 3 of 4 “fraud” rows (75\xa0%).', '3 of its 4 alarms are right (75\xa0%).']
    """
    tp, called, positives = (float(part.sum()) for part in (counts.tp, counts.predicted, counts.positives))
    if positives:
        found = Statement("Finds ", _of(tp, positives), f" {rows}{_share(tp, positives)}.", tp / positives)
    else:
        found = Statement("There are ", "no", f" {rows} here to be found.")
    if not called:
        return [found, Statement("It raises ", "no alarm", ": it calls no row positive.")]
    if called == 1:
        return [found, Statement("Its ", "only alarm", f" is {'right' if tp else 'wrong'}.", tp)]
    main = f"{formatting.count(tp)} of its {formatting.count(called)} alarms"
    return [found, Statement("", main, f" are right{_share(tp, called)}.", tp / called)]


def state_several_classes(counts: ConfusionMatrix, classes: Sequence[str]) -> list[Statement]:
    r"""Say how many rows are decided correctly, and which class is most often taken for which other.

    Example:
        >>> matrix = ConfusionMatrix(np.array([[8.0, 2.0], [1.0, 9.0]]))
        >>> for statement in state_several_classes(matrix, ["cat", "dog"]):
        ...     print(statement.text.replace("\xa0", " "))
        Decides 17 of 20 rows correctly (85 %).
        Most often confused: 2 of 10 “cat” rows are predicted “dog” (20 %).
    """
    matrix = to_numpy(counts.matrix, np.float64)
    right, total = float(matrix.trace()), float(matrix.sum())
    correct = Statement("Decides ", _of(right, total), f" rows correctly{_share(right, total)}.", right / total)
    wrong = matrix * (1 - np.eye(len(matrix)))
    if not wrong.any():
        return [correct, Statement("It makes ", "no mistake", " on these rows.")]
    actual, called = divmod(int(wrong.argmax()), len(classes))
    number, rows = float(wrong[actual, called]), float(matrix[actual].sum())
    confused = f"{_of(number, rows)} “{classes[actual]}” rows"
    end = f" are predicted “{classes[called]}”{_share(number, rows)}."
    return [correct, Statement("Most often confused: ", confused, end, number / rows)]


def state_per_thousand(
    decisions: Sequence[tuple[str, Counts, float | None]], rows: str, *, costs: bool = False
) -> Statement:
    """Say what decisions mean per 1,000 rows, and what they cost.

    Args:
        decisions: What decides, the counts of its decisions and its value; the first is what the page is about.
        rows: What to call the positive rows.
        costs: Whether values are mean costs of a row.

    Example:
        >>> decisions = [("This model", Counts(30, 20, 10, 440), 0.09), ("Flagging nobody", Counts(0, 0, 40, 460), 0.4)]
        >>> print(state_per_thousand(decisions, "“fraud” rows", costs=True).text)
        Per 1,000 rows: 100 alarms, 60 of them right, and 20 “fraud” rows missed. They cost 90; Flagging nobody, 400.
    """
    counts = decisions[0][1]
    if isinstance(counts, ConfusionMatrix):
        total = float(counts.matrix.sum())
        said, after = f"{_thousand(total - float(counts.tp.sum()), total)} mistakes", "."
    else:
        tp, called, missed, total = (float(part.sum()) for part in (counts.tp, counts.predicted, counts.fn, counts.n))
        right = f", {_thousand(tp, total)} of them right," if called else ""
        said = f"{_thousand(called, total)} alarms"
        after = f"{right} and {_thousand(missed, total)} {rows} missed."
    if costs:
        known = [(value, name) for name, _, value in decisions if value is not None]
        others = [f"; {name}, {_thousand(value, 1)}" for value, name in sorted(known[1:])[:1]]
        after += f" They cost {_thousand(known[0][0], 1)}{''.join(others)}." if known else ""
    return Statement("Per 1,000 rows: ", said, after)


def _thousand(number: float, whole: float) -> str:
    """Write a number per 1,000, with two digits if it is small."""
    each = 1000 * number / whole if whole else 0.0
    return f"{each:,.0f}" if each >= 10 or each == 0 else f"{each:.2g}"


def _of(number: float, whole: float) -> str:
    return f"{formatting.count(number)} of {formatting.count(whole)}"


def _share(number: float, whole: float) -> str:
    return f" ({formatting.rough_percent(number / whole)})"
