"""The three pages.

``model_page`` is about a fitted model, ``evaluation_page`` about a model on other rows, ``comparison_page`` about
methods compared; ``model_facts`` has what the first two state alike, and ``insight_sections`` what is
shown of the rows of ``fit``.
"""

from metricfit.report.pages.comparison_page import write_comparison_page as write_comparison_page
from metricfit.report.pages.evaluation_page import write_evaluation_page as write_evaluation_page
from metricfit.report.pages.model_page import write_model_page as write_model_page
