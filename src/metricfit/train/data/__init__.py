"""Training data: batches, samples, loaders, their order, weights and groups."""
