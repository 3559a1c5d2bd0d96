"""Reports of results. It calls upwards: ``metricfit.report`` is loaded when a page is written.

The report layer is above this one in the import contract, and it needs packages that training does not.
"""

from __future__ import annotations

import os
from importlib import import_module
from pathlib import Path
from typing import Any

from sklearn.utils.validation import check_is_fitted

from metricfit.errors import InvalidValueError


def report_module(name: str) -> Any:
    """Load and return a module of ``metricfit.report``.

    Raises:
        ModuleNotFoundError: If the extra ``report`` is not installed; the message says how to install it.
    """
    return import_module(f"metricfit.report.{name}")


class ModelReport:
    """Adds ``report`` to a fitted classifier."""

    def report(
        self,
        path: str | os.PathLike[str],
        X: Any = None,
        y: Any = None,
        *,
        threshold: float | None = None,
        data: str | None = None,
        target: str | None = None,
        groups: Any = None,
        out_of_fold: bool = False,
    ) -> Path:
        """Write an HTML page about the model.

        Without rows the page shows the decisions on the training rows, each by models that did not train on it, and
        the models with their weights. With ``X`` and ``y`` it shows the decisions on those rows, and the values of the
        rows that are most wrong.

        Args:
            path: The file to write. Missing folders are created.
            X: Rows to judge the model on.
            y: The labels of these rows.
            threshold: A threshold in place of the model's, for two classes and with ``X`` and ``y``.
            data: Name of the table, for the title.
            target: Name of the predicted column, for the title of a page about the training rows.
            groups: One group per row of ``X``, for values by group. Without ``X`` they are the groups of ``fit``.
            out_of_fold: Whether ``X`` and ``y`` are those that were passed to ``fit``. The page is then the one about
                the training rows, and also shows which columns matter and the rows that are most wrong. Not for models
                that were loaded.

        Returns:
            The path of the page.

        Raises:
            InvalidValueError: If only one of ``X`` and ``y`` is given, or a threshold without rows or for several
                classes.
            ModuleNotFoundError: If the extra ``report`` is not installed.
        """
        check_is_fitted(self, "decision_")
        if (X is None) != (y is None):
            raise InvalidValueError("report needs both X and y, or neither")
        if groups is not None and (X is None or out_of_fold):
            raise InvalidValueError("groups= is for other rows than those of fit, together with X and y")
        if out_of_fold and X is None:
            raise InvalidValueError("out_of_fold=True needs X and y, those that were passed to fit")
        if threshold is not None and (X is None or out_of_fold or getattr(self, "threshold_", None) is None):
            raise InvalidValueError("threshold= is for models of two classes, together with X and y")
        page: Path
        if X is None or out_of_fold:
            rows = (X, y) if out_of_fold else None
            write = report_module("model_page").write_model_page
            page = write(self, path, data=data, target=target, rows=rows)
        else:
            write = report_module("model_page").write_evaluation_page
            page = write(self, X, y, path, threshold=threshold, data=data, groups=groups)
        return page
