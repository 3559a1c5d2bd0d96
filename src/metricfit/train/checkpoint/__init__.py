"""What a run keeps on disk: its folder, lock, packed state, random numbers, and what it was made of."""
