"""Datasets, splits without leaks, and preparation of tables. Needs the extra ``data``."""

from metricfit.data.catalogue import STUDY, names
from metricfit.data.loading import fetch, load
from metricfit.data.preparation import Preparation
from metricfit.data.published import bridging_the_gap, two_blobs
from metricfit.data.splits import folds, split
from metricfit.data.table import Table

__all__ = ["STUDY", "Preparation", "Table", "bridging_the_gap", "fetch", "folds", "load", "names", "split", "two_blobs"]
