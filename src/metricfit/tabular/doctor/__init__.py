"""What looks wrong in a table before anything is trained: ``examine_table``.

``examination`` runs the checks and orders what they find; ``finding`` is one problem with its remedy. The checks:
``target_findings`` (labels, class counts, rows for a requirement), ``leaks`` (columns that alone decide the target),
``suspect_columns`` (identifiers, constants, duplicates), ``repeated_rows``, ``further_tables`` (what differs between
tables) and ``time_findings``. ``column_kinds`` says what a column holds.
"""
