"""LightGBM with a decision by scikit-learn and by metricfit, for `make demo`. Both minimise the same cost."""

from lightgbm import LGBMClassifier
from sklearn.metrics import confusion_matrix, make_scorer
from sklearn.model_selection import TunedThresholdClassifierCV

from metricfit import TunedDecisionClassifier

COST = "cost(fp=1, fn=20)"


def cost(outcome, predicted):
    """Return the mean cost of a decision: 1 for a false alarm, 20 for a miss."""
    _, false_alarms, misses, _ = confusion_matrix(outcome, predicted, labels=["survived", "died"]).ravel()
    return (false_alarms + 20 * misses) / len(outcome)


trees = LGBMClassifier(n_jobs=1, random_state=0, verbose=-1)
scikit_learn = TunedThresholdClassifierCV(trees, scoring=make_scorer(cost, greater_is_better=False))
our_decision = TunedDecisionClassifier(trees, COST, random_state=0)
