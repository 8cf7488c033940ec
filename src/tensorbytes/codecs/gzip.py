"""Gzip members, one for each chunk."""

from tensorbytes.codecs._deflate import Deflate


class Gzip(Deflate):
    name = "gzip"
    wbits = 31


CODEC = Gzip()
