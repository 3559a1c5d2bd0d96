"""What a table of a paper is, and how its TOML file is read."""
