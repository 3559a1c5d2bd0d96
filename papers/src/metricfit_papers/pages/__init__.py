"""The pages of docs/reproduction, built from the results in papers/results. They need a checkout of the repository."""
