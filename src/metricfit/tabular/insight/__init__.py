"""What a fitted model relies on and where it fails: ``importance`` of columns, and the ``worst`` rows.

``insight_methods`` adds both to the estimators; ``judged_rows`` prepares the rows, ``weighted_values`` resamples the
metric.
"""
