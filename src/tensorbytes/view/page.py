"""A page: head, sections, what was looked at. Counts its bytes, so that it never outgrows its limit."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from tensorbytes.view import style, words
from tensorbytes.view.values import definition

MOST_BYTES = 2_000_000
# For the head, the navigation and the notes, which are written last.
_RESERVED = 60_000
_MOST_NOTES = 20
_MOST_METADATA = 200


@dataclass
class Page:
    """One file as HTML."""

    title: str
    path: str
    facts: list[tuple[str, str]] = field(default_factory=list)  # label, HTML
    notes: list[str] = field(default_factory=list)  # HTML: what was looked at, what was left out
    troubles: list[str] = field(default_factory=list)  # text: damage
    alerts: list[str] = field(default_factory=list)  # HTML: what the values are that hardly anybody wants
    looked: int = 0  # bytes of the file's content that were looked at
    content: int | None = None  # bytes that there are, in memory
    _sections: list[tuple[str, str, str]] = field(default_factory=list)
    _used: int = 0

    @property
    def room(self) -> int:
        """Bytes that may still be added."""
        return MOST_BYTES - _RESERVED - self._used

    def add(self, anchor: str, heading: str, body: str) -> bool:
        """Add a section, if there is room for it."""
        size = len(body.encode()) + len(heading.encode()) + 200
        if size > self.room:
            self.notes.append(f"{words.escaped(heading)}: left out, there is no room for it")
            return False
        self._sections.append((anchor, heading, body))
        self._used += size
        return True

    def fitting(self, pieces: Iterable[str], room: int, total: int, what: str) -> list[str]:
        """The first pieces, as many as so many bytes hold; of the others it is noted how many they are."""
        made: list[str] = []
        for piece in pieces:
            room -= len(piece.encode())
            if room < 0:
                break
            made.append(piece)
        if len(made) < total:
            self.notes.append(f"{words.many(total - len(made), what)} left out for want of room.")
        return made

    def add_metadata(self, meta: dict[str, str]) -> None:
        if not meta:
            return
        shown = list(meta.items())[:_MOST_METADATA]
        lines = "".join(
            f"<tr><th>{words.name(key)}</th><td>{words.escaped(text, 300)}</td></tr>" for key, text in shown
        )
        more = f'<p class="tbv-note">and {len(meta) - len(shown)} more</p>' if len(meta) > len(shown) else ""
        body = f'<table class="tbv-meta"><tbody>{lines}</tbody></table>{more}'
        if len(meta) > 12:
            body = f"<details><summary>{words.count(len(meta))} entries</summary>{body}</details>"
        self.add("metadata", "Metadata", body)

    def html(self) -> bytes:
        """The whole page."""
        sections = "".join(
            f'<section id="{anchor}"><h2>{heading}</h2>{body}</section>' for anchor, heading, body in self._sections
        )
        links = "".join(f'<a href="#{anchor}">{heading}</a>' for anchor, heading, _ in self._sections)
        nav = f"<nav>{links}</nav>" if len(self._sections) > 1 else ""
        troubles = "".join(f'<p class="tbv-error">{words.escaped(text, 600)}</p>' for text in self.troubles[:8])
        alerts = "".join(f'<p class="tbv-error">{text}</p>' for text in self.alerts)
        notes = self.notes[:_MOST_NOTES]
        notes += [f"and {words.count(len(self.notes) - len(notes))} more"] if len(self.notes) > len(notes) else []
        listed = "".join(f"<li>{note}</li>" for note in notes)
        if self.content is not None and self.looked >= self.content:  # what is shown twice counts once
            looked = "All of it was looked at."
        else:
            of = "" if self.content is None else f" of {words.amount(self.content)}"
            looked = f"{words.amount(self.looked)}{of} were looked at."
        css = style.compact(style.VALUE + style.PAGE)
        made = (
            '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"/>'
            '<meta name="viewport" content="width=device-width, initial-scale=1"/>'
            # Nothing is loaded from anywhere, whatever a file holds: the browser is told so too.
            '<meta http-equiv="Content-Security-Policy" '
            "content=\"default-src 'none'; style-src 'unsafe-inline'; img-src data:\"/>"
            f"<title>{words.escaped(self.title)}</title><style>{css}</style></head>\n"
            f'<body><main class="tbv tbv-page"><header><p class="tbv-eyebrow">tensorbytes report</p>'
            f"<h1>{words.name(self.title, 200)}</h1>"
            f'<p class="tbv-path">{words.name(self.path, 400)}</p>'
            f"{definition(self.facts, 'tbv-key')}{troubles}{alerts}"
            f'<div class="tbv-looked">{looked}{f"<ul>{listed}</ul>" if listed else ""}</div>{nav}</header>\n'
            f"{sections}\n<footer>Made by tensorbytes. The page is complete in itself: it runs no script and loads "
            "nothing.</footer></main></body></html>\n"
        )
        return made.encode()
