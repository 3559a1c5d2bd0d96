"""What is the user's to mend: one clear paragraph, exit code 2."""

from __future__ import annotations


class UserError(Exception):
    """Something about the files or options given; the message says what, and what to do."""
