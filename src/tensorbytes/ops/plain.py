"""Values as JSON has them."""

from __future__ import annotations

from typing import Any


def spell_non_finite(plain: Any) -> Any:
    """The same with words for what JSON has no numbers for; they are those of protobuf's JSON and of JavaScript."""
    if isinstance(plain, float):
        return plain if plain - plain == 0 else "NaN" if plain != plain else "Infinity" if plain > 0 else "-Infinity"
    if isinstance(plain, dict):
        return {key: spell_non_finite(value) for key, value in plain.items()}
    return [spell_non_finite(value) for value in plain] if isinstance(plain, list | tuple) else plain
