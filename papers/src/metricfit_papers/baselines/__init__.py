"""Losses and classifiers that the papers compare with, some of them with the errors of the published code."""
