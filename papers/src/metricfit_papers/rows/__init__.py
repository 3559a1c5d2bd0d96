"""How the rows of a table are trained and scored, one module per kind of row."""
