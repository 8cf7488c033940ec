"""The contract: what every format and every framework must keep, as checks to run.

For each case (a framework's tensor of some dtype in some memory layout) and each
format, one of two things happens:

- the tensor comes back with the same dtype, shape and bits, and the caller's own tensor
  is untouched; or
- LossError or UnsupportedError is raised.

For the native format, refusal is a pass only where `refusals.py` says so, with the reason.

The author of a format adds its row to `formats.BUILTIN` and calls

    from tensorbytes import testing
    testing.check_format("mine")                      # every framework that is installed
    testing.check_format("mine", only=["numpy"])

If its bytes need side knowledge to be read, its method `description` says what.
The author of a framework's adapter adds a module `<name>_cases` beside the five here,
with a list CASES and a function `fingerprint`.
"""

from tensorbytes.testing import bits
from tensorbytes.testing.case import (
    FULL,
    Case,
    ContractError,
    Fingerprint,
    Outcome,
    cases,
    check_case,
    check_cases,
    check_format,
    fingerprint,
    outcome,
    setting,
    suite,
)
from tensorbytes.testing.refusals import REFUSALS, refusal
from tensorbytes.testing.transfer import MAY_REFUSE, check_transfer, is_dense, transfer

__all__ = [
    "FULL",
    "MAY_REFUSE",
    "REFUSALS",
    "Case",
    "ContractError",
    "Fingerprint",
    "Outcome",
    "bits",
    "cases",
    "check_case",
    "check_cases",
    "check_format",
    "check_transfer",
    "fingerprint",
    "is_dense",
    "outcome",
    "refusal",
    "setting",
    "suite",
    "transfer",
]
