"""What looks wrong in a table before anything is trained: ``examine_table``."""
