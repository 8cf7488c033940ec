"""1 tensor, 2 tensors."""

from __future__ import annotations


def many(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
