"""The engine under the trainer: the loop, the learners it drives, stacked models, CUDA graphs, processes."""
