"""What MetricClassifier and TunedDecisionClassifier share: scores, decisions, predictions and their checks."""
