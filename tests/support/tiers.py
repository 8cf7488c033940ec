"""A test that leaves a short version of itself in `make test`."""

import pytest


def deep_but(quick, values):
    """Parameters, or tuples of them, of which some are tried before each commit, and all before each release."""
    rest = (value if isinstance(value, tuple) else (value,) for value in values if value not in quick)
    return [
        *(value for value in values if value in quick),
        *(pytest.param(*each, marks=pytest.mark.deep) for each in rest),
    ]
