"""How docstrings become Markdown: examples and aligned tables keep their lines.

Docstrings here are plain prose. What is laid out by spaces, or starts with >>>, would run together as a paragraph.
"""

from __future__ import annotations

import re
from typing import Any

import griffe

_ALIGNED = re.compile(r"\S {2,}\S|^ {2,}\S", re.MULTILINE)


class KeepLayout(griffe.Extension):
    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring:
            obj.docstring.value = kept(obj.docstring.value)


def kept(text: str) -> str:
    """Paragraphs that are laid out become fenced blocks."""
    return "\n\n".join(map(_fenced, re.split(r"\n\s*\n", text)))


def _fenced(paragraph: str) -> str:
    if paragraph.lstrip().startswith(">>>"):
        return f"```pycon\n{paragraph}\n```"
    return f"```text\n{paragraph}\n```" if len(_ALIGNED.findall(paragraph)) > 1 else paragraph
