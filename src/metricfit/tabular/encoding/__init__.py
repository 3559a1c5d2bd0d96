"""From a table of any columns to the numbers that a network takes."""
