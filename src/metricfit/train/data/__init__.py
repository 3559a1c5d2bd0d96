"""What is trained on: batches, samples, loaders, their order, weights and groups."""
