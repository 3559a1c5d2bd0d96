"""What looks wrong in a table before anything is trained: ``examine_table``.

``examination`` runs the checks and orders their findings. The checks are those of single columns (``column_checks``),
of columns that say too much about the target (``leaks``), and of labels, rows and further tables (``row_checks``).
"""
