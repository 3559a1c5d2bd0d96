"""Decisions about several labels: one threshold per label."""
