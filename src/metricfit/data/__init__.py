"""Datasets, splits and preparation."""
