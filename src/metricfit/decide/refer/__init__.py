"""Decisions that refer some rows to a person."""
