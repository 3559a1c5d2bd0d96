"""An in-context classifier for tables, trained on made-up tables; README.md says how."""
