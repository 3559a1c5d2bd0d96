"""The first screen of a page: what the decisions do in counts of rows, beside what takes no model and a simpler one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

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
    cells: tuple[str, ...]
    value: float | None
    is_subject: bool = False


State = Literal["guaranteed", "certified", "met", "unmet"]


@dataclass(frozen=True)
class RequirementState:
    """What is known about a requirement.

    Args:
        text: The requirement, such as "recall >= 0.9".
        state: "guaranteed" on new rows, "certified" on cross-validated scores, "met" on these rows alone, or "unmet".
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
        alternatives: The same beside what needs no model, and beside a simpler one.
        columns: Titles of the columns of ``alternatives``.
        metric: What people call the metric.
        requirements: What is known about each requirement.
        note: Which rows these are.

    Example:
        >>> counts = Counts(tp=526, fp=353, fn=174, tn=8947)
        >>> alternatives = [describe_two_classes("Flagging nobody", flagging_nobody(counts), 0.0)]
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


def describe_two_classes(name: str, counts: Counts, value: float | None, *, is_subject: bool = False) -> Alternative:
    r"""Describe decisions about two classes as a row of the table on the first screen.

    Example:
        >>> describe_two_classes("Flagging nobody", Counts(0, 0, 4, 6), 0.0).cells
        ('0 of 4 (0\xa0%)', 'no alarms')
    """
    tp, called, positives = (float(part.sum()) for part in (counts.tp, counts.predicted, counts.positives))
    right = formatting.part(tp, called) if called else "no alarms"
    return Alternative(name, (formatting.part(tp, positives), right), value, is_subject)


def flagging_nobody(counts: Counts) -> Counts:
    """Return the counts on the same rows if no row were called positive."""
    nothing = counts.tp * 0
    return Counts(nothing, nothing, counts.positives, counts.negatives)


def flagging_everybody(counts: Counts) -> Counts:
    """Return the counts on the same rows if every row were called positive."""
    nothing = counts.tp * 0
    return Counts(counts.positives, counts.negatives, nothing, nothing)


def state_several_classes(counts: ConfusionMatrix, classes: Sequence[str]) -> list[Statement]:
    r"""Say how many rows are decided correctly, and which class is most often taken for which other.

    Example:
        >>> import torch
        >>> matrix = ConfusionMatrix(torch.tensor([[8.0, 2.0], [1.0, 9.0]]))
        >>> for statement in state_several_classes(matrix, ["cat", "dog"]):
        ...     print(statement.text.replace("\xa0", " "))
        Decides 17 of 20 rows correctly (85 %).
        Most often confused: 2 of 10 “cat” rows are called “dog” (20 %).
    """
    matrix = counts.matrix
    right, total = float(matrix.trace()), float(matrix.sum())
    correct = Statement("Decides ", _of(right, total), f" rows correctly{_share(right, total)}.", right / total)
    wrong = matrix.clone().fill_diagonal_(0)
    if not bool(wrong.any()):
        return [correct, Statement("It makes ", "no mistake", " on these rows.")]
    actual, called = divmod(int(wrong.argmax()), len(classes))
    number, rows = float(wrong[actual, called]), float(matrix[actual].sum())
    return [
        correct,
        Statement(
            "Most often confused: ",
            f"{_of(number, rows)} “{classes[actual]}” rows",
            f" are called “{classes[called]}”{_share(number, rows)}.",
            number / rows,
        ),
    ]


def describe_several_classes(
    name: str, counts: ConfusionMatrix, value: float | None, *, is_subject: bool = False
) -> Alternative:
    """Describe decisions about several classes as a row of the table on the first screen."""
    right, total = float(counts.matrix.trace()), float(counts.matrix.sum())
    return Alternative(name, (formatting.part(right, total),), value, is_subject)


def always_largest_class(counts: ConfusionMatrix) -> ConfusionMatrix:
    """Return the matrix on the same rows if every row were decided for the largest class."""
    rows = counts.matrix.sum(1)
    matrix = counts.matrix * 0
    matrix[:, int(rows.argmax())] = rows
    return ConfusionMatrix(matrix)


def _of(number: float, whole: float) -> str:
    return f"{formatting.count(number)} of {formatting.count(whole)}"


def _share(number: float, whole: float) -> str:
    return f" ({formatting.rough_percent(number / whole)})"
