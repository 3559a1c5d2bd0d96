"""The pages of papers/pages, built from the results in papers/results. They need a checkout of the repository."""
