"""Bytes that can only be read onwards, as from a pipe."""

import io


class Onwards:
    """A file that can't seek."""

    def __init__(self, raw):
        self.read = io.BytesIO(raw).read

    def seekable(self):
        return False
