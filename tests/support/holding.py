"""Whose memory a view is of."""

import numpy as np


def holder(view):
    """What holds the memory in the end: bytes, an array, an mmap."""
    while isinstance(view, memoryview) or (isinstance(view, np.ndarray) and view.base is not None):
        view = view.obj if isinstance(view, memoryview) else view.base
    return view
