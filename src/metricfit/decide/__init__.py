"""From scores to decisions: calibration, thresholds of two classes and of labels, offsets of classes."""
