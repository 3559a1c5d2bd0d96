"""From scores to decisions: what happens between the scores of a model and the actions that follow from them.

- ``best``: ``best_decision``, from held-out logits and labels to a decision.
- ``calibration``: logits to calibrated logits, a temperature and a bias fitted on held-out rows.
- ``rules``: the threshold of two classes, by expected counts (plug-in) or by labels (empirical), under requirements.
- ``certified``: the thresholds whose requirements hold on new rows at a confidence; ``bounds`` has the exact tests of
  rates, ``chosen_path`` the order of the tests where a rate is not monotone, ``certified_choice`` the best of them,
  ``certified_groups`` those of several groups.
- ``offsets``: the best offsets of several classes, added to the logits before the argmax; ``offset_search`` finds them.
- ``expected_costs``: decisions by expected costs, for metrics of the whole confusion matrix.
- ``optimism``: what a decision is worth on new rows, estimated from the rows on which it was chosen.
- ``held_out``: the rows on which decisions are chosen.
- ``decision``: the decision itself, which needs torch alone.
- ``decision_module``: a torch model together with its decision.
- ``decision_choice``: the choice of a decision, with bootstrap intervals and requirements.
- ``probability_thresholds``: the best threshold of binary logits, as a probability.
- ``group_thresholds``: the best thresholds of several groups of rows.
- ``label_thresholds``: the best thresholds of several labels, by the true labels; ``label_search`` those of calibrated
  logits for every average, and ``label_decisions`` the decision with its calibration, value and intervals.
- ``estimator_scores``: from a classifier of scikit-learn to logits.
- ``decision_curve``: the counts and the value of the metric at every threshold.
- ``referral_choice``: ``best_referral``, a decision that refers some rows to a person; ``referral`` chooses the region,
  ``referral_search`` finds it.
- ``cost_decisions``: decisions with a cost for each row; ``row_costs`` holds the costs.
- ``deciding``: what estimators share: choose a decision, and choose it anew for another metric, requirement or class
  balance. ``predicting`` is what they do with new rows, ``scoring`` the value of a metric there.
  ``positive_class``, ``row_checks`` and ``rollback`` hold the checks and rules that go with it.
- ``prior_shift``: the class balance of new rows without labels; ``drift`` tests whether it explains their scores, and
  ``class_balance`` is what estimators know of it.

Tune decisions on data that the model was not trained on.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from metricfit._extras import explain_missing
from metricfit.decide.decision import Decision
from metricfit.decide.decision_module import DecisionModule
from metricfit.decide.group_thresholds import GroupThresholds, best_group_thresholds

if TYPE_CHECKING:
    from metricfit.decide.best import best_decision
    from metricfit.decide.prior_shift import estimate_prevalence
    from metricfit.decide.referral_choice import best_referral

#: Loaded when first used, because the bootstrap needs scipy, and the rest needs torch alone.
_LATER = {
    "best_decision": "metricfit.decide.best",
    "best_referral": "metricfit.decide.referral_choice",
    "estimate_prevalence": "metricfit.decide.prior_shift",
}

__all__ = [
    "Decision",
    "DecisionModule",
    "GroupThresholds",
    "best_decision",
    "best_group_thresholds",
    "best_referral",
    "estimate_prevalence",
]


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    with explain_missing(f"metricfit.decide.{name}", ("numpy", "scipy"), "metricfit[stats]"):
        return getattr(import_module(_LATER[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
