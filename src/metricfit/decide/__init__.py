"""From scores to decisions: what happens between the scores of a model and the actions that follow from them.

- ``best``: ``best_decision``, ``best_referral`` and ``estimate_prevalence``, which take arrays or tensors. Everything
  else about rows computes with arrays, in float64.
- ``decision``: the kinds of decisions, with their ``evidence``; ``decision_module`` is a torch model with one.
- ``choose``: the choice of a decision, with bootstrap intervals and requirements.
- ``held_out``: the rows on which decisions are chosen, and the counts and the metric at every threshold.
- ``class_requirements``: which classes or labels a requirement is about, and their names.
- ``calibration``: logits to calibrated logits, a temperature and a bias fitted on held-out rows.
- ``rules``: what decisions are chosen for (``Goal``), and the threshold of two classes: by expected counts (plug-in) or
  by labels (empirical), under requirements.
- ``offsets``: the best offsets of several classes, added to the logits before the argmax, also under requirements.
- ``labels``: decisions about several labels.
- ``costs``: decisions by costs of each row.
- ``refer``: decisions that refer some rows to a person.
- ``budget``: exactly k rows, or k labels of every row.
- ``group_thresholds``: the best thresholds of several groups of rows.
- ``bounds``, ``certified``: requirements that hold on new rows with a given probability.
- ``optimism``: what a decision is worth on new rows, estimated from the rows on which it was chosen.
- ``shift``: the class balance of new rows without labels, and drift.
- ``units``: decisions for a metric of each image or row, by ``expected_values``.

Tune decisions on data that the model was not trained on.
"""

from typing import TYPE_CHECKING

from metricfit._extras import load_later

if TYPE_CHECKING:
    from metricfit.decide.best import best_decision as best_decision
    from metricfit.decide.best import best_referral as best_referral
    from metricfit.decide.best import estimate_prevalence as estimate_prevalence
    from metricfit.decide.calibration import Calibration as Calibration
    from metricfit.decide.decision import CostDecision as CostDecision
    from metricfit.decide.decision import Decision as Decision
    from metricfit.decide.decision import LabelDecision as LabelDecision
    from metricfit.decide.decision import OffsetDecision as OffsetDecision
    from metricfit.decide.decision import RowCostDecision as RowCostDecision
    from metricfit.decide.decision import ThresholdDecision as ThresholdDecision
    from metricfit.decide.decision import TopLabelsDecision as TopLabelsDecision
    from metricfit.decide.decision_module import DecisionModule as DecisionModule
    from metricfit.decide.evidence import Evidence as Evidence
    from metricfit.decide.evidence import Referral as Referral
    from metricfit.decide.group_thresholds import GroupThresholds as GroupThresholds
    from metricfit.decide.group_thresholds import best_group_thresholds as best_group_thresholds
    from metricfit.decide.units import per_image as per_image
    from metricfit.decide.units import per_row as per_row

#: The modules of these names, which are loaded when first used.
_HOMES = {
    "metricfit.decide.best": "best_decision best_referral estimate_prevalence",
    "metricfit.decide.calibration": "Calibration",
    "metricfit.decide.decision": "CostDecision Decision LabelDecision OffsetDecision RowCostDecision ThresholdDecision "
    "TopLabelsDecision",
    "metricfit.decide.evidence": "Evidence Referral",
    "metricfit.decide.decision_module": "DecisionModule",
    "metricfit.decide.group_thresholds": "GroupThresholds best_group_thresholds",
    "metricfit.decide.units": "per_image per_row",
}
__all__ = [name for names in _HOMES.values() for name in names.split()]

if not TYPE_CHECKING:  # a type checker sees the names above, and finds mistakes in others
    __getattr__ = load_later(__name__, _HOMES, {"scipy": "metricfit[tabular]", "torch": "metricfit[torch]"})


def __dir__() -> list[str]:
    return sorted(__all__)
