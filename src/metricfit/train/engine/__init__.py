"""The training engine: a run, the loop, the learner that it drives, stacked models, validation and processes."""
