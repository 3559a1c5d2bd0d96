"""Decisions about several classes under requirements on each of them."""
