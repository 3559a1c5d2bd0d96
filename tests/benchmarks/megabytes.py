"""A work that takes known memory, for the process that measures it; needs nothing that is slow to import."""


def works(megabytes):
    return lambda: None, lambda: len(bytearray(b"1") * (megabytes * 2**20))
