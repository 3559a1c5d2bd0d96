"""The datasets of the papers' tables, and the trials drawn from them."""
