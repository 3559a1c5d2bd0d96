"""Tables of many rows: compact rows, one held-out part, boosted trees from batches, other families on a sample."""
