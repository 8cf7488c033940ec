"""Text and numbers as HTML. Whatever comes from a file passes through here before it is shown."""

from __future__ import annotations

import html
import math
import re
from collections.abc import Sequence

# A name is shown up to this many characters, a text of a file up to that many.
NAME_LETTERS = 90
TEXT_LETTERS = 240
TIMES, ELLIPSIS = "\N{MULTIPLICATION SIGN}", "\N{HORIZONTAL ELLIPSIS}"
_SEPARATORS = "./:_-"
_TAGS = re.compile("<[^>]*>")


def visible(text: str) -> str:
    """Control characters, odd spaces and marks that turn the direction of writing, made visible."""
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else _spelled(letter) for letter in text)


def _spelled(letter: str) -> str:
    return letter.encode("unicode_escape", "surrogatepass").decode("ascii")


def shortened(text: str, most: int) -> str:
    """The beginning and the end of a long text."""
    if len(text) <= most:
        return text
    end = most // 3
    return f"{text[: most - end - 1]}{ELLIPSIS}{text[-end:]}"


def escaped(text: str, most: int = TEXT_LETTERS) -> str:
    """Some text of a file as HTML."""
    # Cut before it is spelled out, so that a long text costs nothing, and after, since spelling makes it longer.
    return html.escape(shortened(visible(shortened(text, most)), most))


def passage(text: str, most: int = TEXT_LETTERS, size: int = 0) -> str:
    """A text with its line ends as HTML, for where white space counts; `size` is what it has in bytes."""
    lines = text[:most].replace("\r\n", "\n").split("\n")
    told = f' <span class="tbv-dim">({amount(size)})</span>' if size else ""
    return "\n".join(html.escape(visible(line)) for line in lines) + (ELLIPSIS + told if len(text) > most else "")


def name(text: str | None, most: int = NAME_LETTERS, counted: bool = True) -> str:
    """A tensor's name as HTML, in which lines may break after a separator."""
    if text is None or text == "":
        return '<span class="tbv-dim">(no name)</span>'
    shown = escaped(text, most)
    if len(text) > most:
        return shown + (f' <span class="tbv-dim">({count(len(text))} characters)</span>' if counted else "")
    return "".join(f"{letter}<wbr/>" if letter in _SEPARATORS else letter for letter in shown)


def decoded(data: bytes, most: int = TEXT_LETTERS) -> str:
    """Bytes as text, those that are none spelled out; only as many as are shown."""
    return bytes(data[: 4 * most + 4]).decode("utf-8", "backslashreplace")


def plain(made: str) -> str:
    """HTML as text again, for terminals."""
    return html.unescape(_TAGS.sub("", made))


def count(number: int) -> str:
    return f"{number:,}"


def many(number: int, noun: str) -> str:
    return f"{count(number)} {noun}{'' if number == 1 else 's'}"


def figure(number: int | float | None) -> str:
    """A number with as many digits as say something."""
    if number is None:
        return ""
    if isinstance(number, int):
        return count(number) if abs(number) < 10**15 else f"{number:.4g}" if abs(number) < 10**300 else str(number)
    if math.isfinite(number) and (1e4 <= abs(number) < 1e7 or (number == int(number) and abs(number) < 1e4)):
        return f"{number:,.0f}"
    return f"{number:.4g}"


def shape(sizes: Sequence[int | None]) -> str:
    """[2, 3]; a size that varies is a question mark."""
    if not sizes:
        return "scalar"
    shown = ["?" if size is None else str(size) for size in sizes[:12]]
    # A file may say that there are more axes than anybody means.
    return f"[{', '.join(shown + ([ELLIPSIS] if len(sizes) > 12 else []))}]"


def amount(size: int | None) -> str:
    """Bytes in words."""
    if size is None:
        return "?"
    for unit, word in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if size >= unit:
            return f"{size / unit:.3g} {word}" if size < 999.5 * unit else f"{size / unit:,.0f} {word}"
    return f"{size} B"


def share(part: float, whole: float) -> str:
    """A part of a whole in per cent."""
    if not whole:
        return ""
    found = part / whole
    return "&lt; 0.1%" if 0 < found < 0.001 else f"{found:.1%}" if found < 0.9995 or part == whole else "99.9%"
