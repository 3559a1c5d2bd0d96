"""Task, steps, counts and numerics: everything below the metrics. Needs NumPy, and torch for soft counts."""
