"""The datasets of the papers and studies: by name, with the papers' conversions, and the trials drawn from them."""

from metricfit_papers.datasets.catalogue import STUDY, Table, load, names
from metricfit_papers.datasets.fetching import fetch
from metricfit_papers.datasets.preparation import Preparation

__all__ = ["STUDY", "Preparation", "Table", "fetch", "load", "names"]
