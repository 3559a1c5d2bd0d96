"""What is known about a decision: how good it is, for how sure, and which rows it leaves to a person."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from metricfit.metrics.feasibility import RequirementValue

Ends = tuple[float, float]

#: What may be said about requirements with a confidence. The tests are exact for scores of a model that was fitted
#: without these rows. New rows have scores of other models than rows out of fold, so there the tests are approximate.
GUARANTEED = "guaranteed"
APPROXIMATE = "certified on cross-validated scores (approximate)"


@dataclass(frozen=True)
class Evidence:
    """How good a decision is, on the held-out rows and on new ones.

    Attributes:
        value: The value of the metric on the held-out rows, on which the decision was chosen; NaN if it was not chosen
            on rows.
        value_interval: The bootstrap interval of the value.
        corrected_value: An estimate of the value on new rows. By the plug-in rule and under requirements it is the
            value on the held-out rows; by the empirical rule it is never better than that (``decide.optimism``).
        corrected_interval: The bootstrap interval of the corrected value.
        requirements: The result of each requirement on the held-out rows; the keys are the requirements as text.
        not_reachable: None if the decision meets the requirements; otherwise what is reachable. The decision is then
            the one with the smallest violation.
        confidence: The probability with which the requirements hold on new rows (``decide.certified``); None if they
            are met on the held-out rows alone, or not at all.
        out_of_fold: Whether the held-out scores are cross-validated, so that new rows are scored by other models.

    Example:
        >>> Evidence(value=0.8, corrected_value=0.78).corrected_value
        0.78
    """

    value: float = math.nan
    value_interval: Ends | None = None
    corrected_value: float | None = None
    corrected_interval: Ends | None = None
    requirements: Mapping[str, RequirementValue] = field(default_factory=dict)
    not_reachable: str | None = None
    confidence: float | None = None
    out_of_fold: bool = False

    @property
    def certificate(self) -> str | None:
        """What is known about the requirements on new rows, at the probability ``confidence``.

        It is ``GUARANTEED`` for scores of a model that was fitted without these rows, and ``APPROXIMATE`` for
        cross-validated scores. It is None without a confidence, or if no decision could be certified.

        Example:
            >>> Evidence(confidence=0.9).certificate
            'guaranteed'
            >>> Evidence(confidence=0.9, out_of_fold=True).certificate
            'certified on cross-validated scores (approximate)'
        """
        if self.confidence is None:
            return None
        return APPROXIMATE if self.out_of_fold else GUARANTEED


#: The evidence for a decision that was not chosen on rows.
NO_EVIDENCE = Evidence()


@dataclass(frozen=True)
class Referral:
    """The logits that are referred to a person: from ``low`` on and below ``high``.

    Of several classes they are the leads of the best class over the second best.

    Attributes:
        low: The first logit that is referred; 0 for leads.
        high: The first logit above the region.
        share: The share of the held-out rows that is in the region. The evidence of the decision is about the others.

    Example:
        >>> from metricfit.decide.decision import ThresholdDecision
        >>> ThresholdDecision(0.0, referral=Referral(low=-1.0, high=0.5, share=0.2)).referred([-2.0, 0.0, 0.5])
        array([False,  True, False])
    """

    low: float
    high: float
    share: float
