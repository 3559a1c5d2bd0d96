"""Running a table, copying finished cells, and writing the results."""
