"""Families of models: boosted trees, forests, linear models, kernels, networks and the user's own classifiers."""
