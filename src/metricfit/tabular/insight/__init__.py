"""What a fitted model relies on and where it fails: importance of columns, worst rows, values by period."""
