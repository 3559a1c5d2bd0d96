"""From scores to decisions: what happens between the scores of a model and the actions that follow from them.

- ``calibration``: logits to calibrated logits, a temperature and a bias fitted on held-out rows.
- ``probability_thresholds``: the best threshold of binary logits, as a probability.
- ``label_thresholds``: the best thresholds of several labels.
- ``offsets``: the best offsets of several classes, added to the logits before the argmax.
- ``decisions``: the decision of a fitted classifier, with bootstrap intervals and requirements.

Tune decisions on data that the model was not trained on.
"""
