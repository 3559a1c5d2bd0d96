"""The training engine: the loop, the learners that it drives, stacked models, CUDA graphs and processes."""
