"""The class balance that an estimator decides for: that of training, another that is known, or that of new rows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from metricfit.decide.estimators.positive_class import shares_of
from metricfit.decide.held_out import HeldOut
from metricfit.decide.shift.drift import Drift
from metricfit.decide.shift.prior_shift import PriorShift, estimate_prior_shift
from metricfit.errors import InvalidValueError, quote

#: The share of the positive class, or of each class by its label; "estimate" for that of new rows.
Prevalence = float | Mapping[Any, float] | Literal["estimate"]


class ClassBalance(ABC):
    """What an estimator with held-out rows knows of the class balance."""

    classes_: NDArray[Any]
    held_out_: HeldOut
    shift_: torch.Tensor
    #: What was estimated from new rows without labels by the last ``rethreshold``.
    prior_shift_: PriorShift | None = None
    #: For each class number its index in ``classes_``; the positive class of two has number 1.
    _order: NDArray[np.int64]
    _seed: int

    @abstractmethod
    def _calibrated_logits(self, X: Any) -> torch.Tensor:
        """Return logits ``(n, 1)`` or ``(n, c)`` in the order of class numbers, for the class balance of training."""

    def _comparable_rows(self, X: Any) -> tuple[HeldOut, torch.Tensor]:
        """Return the held-out rows, and calibrated logits of new rows that are distributed as theirs without drift.

        If the logits of held-out rows come from the models of folds, so do those of new rows, each from one of them.
        """
        return self.held_out_, self._calibrated_logits(X)

    def _rows_at_balance(
        self, prevalence: Prevalence | None, X: Any
    ) -> tuple[HeldOut, torch.Tensor, PriorShift | None]:
        """Return the held-out rows at a class balance, the shift of the logits, and what was estimated from ``X``."""
        estimate = self._estimate_balance(prevalence, X)
        if prevalence is None:
            return self.held_out_, torch.zeros_like(self.shift_), None
        if estimate is not None:
            shares = estimate.shares
        else:
            assert not isinstance(prevalence, str)
            shares = torch.from_numpy(shares_of(prevalence, self.classes_[self._order]))
        held_out = self.held_out_.with_class_shares(shares)
        return held_out, (held_out.logits - self.held_out_.logits)[0], estimate

    def _estimate_balance(self, prevalence: Any, X: Any) -> PriorShift | None:
        """Estimate the class balance of rows without labels; None if another one, or none, is given."""
        estimated = isinstance(prevalence, str) and prevalence == "estimate"
        if isinstance(prevalence, str) and not estimated:
            raise InvalidValueError(f"prevalence is a share, one per class, or 'estimate'; got {quote(prevalence)}")
        if estimated == (X is None):
            raise InvalidValueError(
                "prevalence='estimate' needs new rows without labels: rethreshold(prevalence='estimate', X=new_rows)"
                if estimated
                else "X is for prevalence='estimate': rethreshold(prevalence='estimate', X=new_rows)"
            )
        if not estimated:
            return None
        held_out, logits = self._comparable_rows(X)
        return estimate_prior_shift(held_out, logits, seed=self._seed)

    @property
    def prevalence_(self) -> float | dict[Any, float]:
        """The class balance that the model decides for: the share of the positive class, or of each class by label.

        Example:
            >>> from metricfit import MetricClassifier
            >>> X = np.random.default_rng(0).normal(size=(200, 3))
            >>> model = MetricClassifier("f1", models=["linear"], random_state=0).fit(X, X[:, 0] > 1)
            >>> round(model.prevalence_, 3), round(model.rethreshold(prevalence=0.4).prevalence_, 3)
            (0.16, 0.4)
        """
        check_is_fitted(self, "decision_")
        shift = self.shift_ if len(self.classes_) > 2 else torch.cat([torch.zeros_like(self.shift_), self.shift_])
        prevalence: float | dict[Any, float] = self._by_label(
            torch.softmax(self.held_out_.shares.log() + shift, 0).tolist()
        )
        return prevalence

    @property
    def prevalence_interval_(self) -> tuple[float, float] | dict[Any, tuple[float, float]] | None:
        """The 95 % interval of ``prevalence_`` if it was estimated, otherwise None."""
        if self.prior_shift_ is None:
            return None
        interval: Any = self._by_label([(low, high) for low, high in self.prior_shift_.intervals.tolist()])
        return interval

    @property
    def drift_(self) -> Drift | None:
        """Whether another class balance explains the scores of the new rows, if it was estimated."""
        return None if self.prior_shift_ is None else self.prior_shift_.drift

    def _by_label(self, values: list[Any]) -> Any:
        """Return the value of the positive class of two, or of each class by its label."""
        labels = self.classes_[self._order].tolist()
        return values[1] if len(labels) == 2 else dict(zip(labels, values, strict=True))
