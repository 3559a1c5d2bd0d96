"""Training data: samples in memory, datasets and loaders, and how an epoch is divided into batches."""
