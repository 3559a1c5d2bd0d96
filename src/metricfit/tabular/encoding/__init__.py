"""Encoding of tables: columns of any type become columns of numbers that all families can learn from."""
