"""Task, steps, counts and numerics: everything below the metrics. Needs torch and nothing else."""
