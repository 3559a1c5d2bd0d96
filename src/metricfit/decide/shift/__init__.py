"""New rows with another class balance: its estimate, and whether it explains how the scores have changed."""
