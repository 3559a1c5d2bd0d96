"""From scores to decisions: what happens between the scores of a model and the actions that follow from them.

- ``best``: ``best_decision``, ``best_referral`` and ``estimate_prevalence``, which take arrays or tensors. Everything
  else about rows computes with arrays, in float64.
- ``decision``: the kinds of decisions, and the evidence for them; ``decision_module`` is a torch model with one.
- ``choose``: the choice of a decision, with bootstrap intervals and requirements.
- ``held_out``: the rows on which decisions are chosen.
- ``class_requirements``: which classes or labels a requirement is about, and their names.
- ``calibration``: logits to calibrated logits, a temperature and a bias fitted on held-out rows.
- ``rules``: what decisions are chosen for (``Goal``), and the threshold of two classes: by expected counts (plug-in) or
  by labels (empirical), under requirements.
- ``offsets``: the best offsets of several classes, added to the logits before the argmax, also under requirements;
  ``classes`` makes decisions of them.
- ``labels``: decisions about several labels.
- ``costs``: decisions by costs of each row.
- ``refer``: decisions that refer some rows to a person.
- ``budget``: exactly k rows, or k labels of every row.
- ``group_thresholds``: the best thresholds of several groups of rows.
- ``bounds``, ``certified``: requirements that hold on new rows with a given probability.
- ``optimism``: what a decision is worth on new rows, estimated from the rows on which it was chosen.
- ``shift``: the class balance of new rows without labels, and drift.
- ``decision_curve``: the counts and the value of the metric at every threshold.
- ``units``: decisions for a metric of each image or row, by ``expected_values``.

Tune decisions on data that the model was not trained on.
"""

from typing import TYPE_CHECKING

from metricfit._extras import load_later

if TYPE_CHECKING:
    from metricfit.decide.best import best_decision, best_referral, estimate_prevalence
    from metricfit.decide.calibration import Calibration
    from metricfit.decide.decision import (
        CostDecision,
        Decision,
        Evidence,
        LabelDecision,
        OffsetDecision,
        Referral,
        RowCostDecision,
        ThresholdDecision,
        TopLabelsDecision,
    )
    from metricfit.decide.decision_module import DecisionModule
    from metricfit.decide.group_thresholds import GroupThresholds, best_group_thresholds
    from metricfit.decide.units import per_image, per_row

__all__ = [
    "Calibration",
    "CostDecision",
    "Decision",
    "DecisionModule",
    "Evidence",
    "GroupThresholds",
    "LabelDecision",
    "OffsetDecision",
    "Referral",
    "RowCostDecision",
    "ThresholdDecision",
    "TopLabelsDecision",
    "best_decision",
    "best_group_thresholds",
    "best_referral",
    "estimate_prevalence",
    "per_image",
    "per_row",
]

#: The modules of these names, which are loaded when first used.
_HOMES = {
    "metricfit.decide.best": "best_decision best_referral estimate_prevalence",
    "metricfit.decide.calibration": "Calibration",
    "metricfit.decide.decision": "CostDecision Decision Evidence LabelDecision OffsetDecision Referral RowCostDecision "
    "ThresholdDecision TopLabelsDecision",
    "metricfit.decide.decision_module": "DecisionModule",
    "metricfit.decide.group_thresholds": "GroupThresholds best_group_thresholds",
    "metricfit.decide.units": "per_image per_row",
}

if not TYPE_CHECKING:  # a type checker sees the names above, and finds mistakes in others
    __getattr__ = load_later(__name__, _HOMES, {"scipy": "metricfit[tabular]", "torch": "metricfit[torch]"})


def __dir__() -> list[str]:
    return sorted(__all__)
