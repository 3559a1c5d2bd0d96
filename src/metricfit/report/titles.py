"""Names and titles in people's words."""

from __future__ import annotations

#: Labels that only say yes; the name of the column says to what.
YES = {"1", "1.0", "True", "true", "TRUE", "yes", "Yes", "YES"}


def title_page(metric: str, data: str | None, target: str | None) -> str:
    """Return the title of a page: what is predicted, where, and what it is judged by.

    Args:
        metric: What people call the metric.
        data: Name of the table, if it is known.
        target: Name of the column that is predicted, if it is known.

    Returns:
        The title.

    Example:
        >>> title_page("F1", "transactions.csv", "fraud")
        'Predicting “fraud” in transactions.csv, judged by F1'
        >>> title_page("F1", None, None)
        'A classifier judged by F1'
    """
    if data is None and target is None:
        return f"A classifier judged by {metric}"
    what = "Predictions" if target is None else f"Predicting “{target}”"
    return f"{what}{'' if data is None else f' in {data}'}, judged by {metric}"


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
