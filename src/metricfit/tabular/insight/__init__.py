"""What a fitted model relies on and where it fails: ``importance`` of columns, and the ``worst`` rows.

``insight_methods`` adds both to the estimators; ``judged_rows`` prepares the rows, ``file_rows`` those of large Parquet
files, ``held_out_decisions`` says what was decided about the held-out rows, ``weighted_values`` resamples the metric.
"""
