"""Decisions by costs: of each row, or of each pair of true and decided class."""
