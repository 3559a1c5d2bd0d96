"""Methods compared on identical folds: methods, standings, verdict."""
