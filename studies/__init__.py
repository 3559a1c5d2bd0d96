"""The studies of the project: scripts, stored results, and the tests that compare the pages with them."""
