"""Every known difference between a library's verdict and ours, with the reason and one example; rows are in listed/.

A case that differs must match one of them; the examples are tried against the libraries in every run of the tests,
so that the list does not go stale. `python -m safety.fuzz.differential --table` makes the table of docs/safety.md.
"""

from safety.fuzz.differential.listed import files, numpy, others, protobuf, safetensors, tensorflow
from safety.fuzz.differential.listing import Divergence

DIVERGENCES: list[Divergence] = [
    *safetensors.ROWS,
    *numpy.ROWS,
    *protobuf.ROWS,
    *tensorflow.ROWS,
    *files.ROWS,
    *others.ROWS,
]
