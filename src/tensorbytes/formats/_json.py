"""JSON out of files, read strictly: what two parsers could take for different things is refused.

Duplicate keys, NaN and infinities, numbers of hundreds of digits, lone surrogates and
nesting beyond reason are errors with the offset of the text.
"""

from __future__ import annotations

import json
import math
from typing import Any

from tensorbytes.budget import Budget
from tensorbytes.errors import LIMITS, CorruptError

_MAX_DIGITS = 40
_ZEROS = bytes.maketrans(b"123456789", b"000000000")


class _FaultError(ValueError):
    pass


def parse(data: memoryview | bytes, at: int, what: str, budget: Budget | None = None) -> Any:
    """The value of some JSON that stands at `at`; `what` names it in messages."""
    (budget or Budget(LIMITS, len(data))).json(data, what, at)
    try:
        text = str(data, "utf-8")
        value = (_DECODER if _odd_numbers(data) else _QUICK).decode(text)
        text.encode()
        if "\\u" in text:
            _check_text(value)
    except UnicodeError as error:
        raise CorruptError(f"{what} is not UTF-8: {getattr(error, 'reason', error)}", at=at) from None
    except _FaultError as error:
        raise CorruptError(f"{what}: {error}", at=at) from None
    except json.JSONDecodeError as error:
        raise CorruptError(f"{what} is not JSON: {error.msg}", at=at + error.pos) from None
    except RecursionError:
        raise CorruptError(f"{what} is nested too deeply", at=at) from None
    return value


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise _FaultError(f"the key {twice!r} appears twice")
    return made


def _odd_numbers(data: memoryview | bytes) -> bool:
    """Whether the bytes could hold an integer that `_integer` does not take as it is."""
    raw = bytes(data)
    return b"-0" in raw or b"0" * _MAX_DIGITS in raw.translate(_ZEROS)


def _integer(digits: str) -> int | float:
    if len(digits) > _MAX_DIGITS:
        raise _FaultError(f"a number of {len(digits)} digits")
    return int(digits) if digits != "-0" else -0.0  # no integer to other parsers either


def _float(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise _FaultError(f"the number {digits[:40]}")
    return number


def _constant(name: str) -> Any:
    raise _FaultError(f"{name} is not JSON")


def _check_text(value: Any) -> None:
    """An escape may spell half of a character, which no other place of a file could hold."""
    if isinstance(value, str):
        value.encode()
    elif isinstance(value, dict):
        for key, item in value.items():
            key.encode()
            _check_text(item)
    elif isinstance(value, list):
        for item in value:
            _check_text(item)


_DECODER = json.JSONDecoder(
    object_pairs_hook=_pairs, parse_int=_integer, parse_float=_float, parse_constant=_constant, strict=True
)
# The same without a look at each integer, for text in which none can be odd.
_QUICK = json.JSONDecoder(object_pairs_hook=_pairs, parse_float=_float, parse_constant=_constant, strict=True)


def dump(value: Any) -> str:
    """Compact, ASCII, the same on every run: keys stay in the order given."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
