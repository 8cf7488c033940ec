"""What MkDocs is told beyond mkdocs.yml.

Pages may link to any file of the repository, as they do on GitHub. Files outside docs/ that a page links to (the
specification, examples, the chart) become part of the site under their path in the repository, Markdown as pages and
the rest as it is; links are rewritten to where they end up.

The options of each command are those that its parser tells.
"""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[1]
LINK = re.compile(r"(\]\()([^)#\s]+)(#[^)\s]*)?(?=\))")
HELP = "## Options\n\n`tb COMMAND --help` tells the options of each command; the built site lists them here.\n"
ALONE = ("index.md", "tutorial.md")  # the only page of its tab: a list of one beside it is waste
FENCE = re.compile(r"^(```.*?^```[^\n]*$)", re.MULTILINE | re.DOTALL)


def on_files(files: Files, config: Any) -> Files:
    """Adds what pages link to outside of docs/, and what those pages link to in turn."""
    waiting = [ROOT / file.abs_src_path for file in files.documentation_pages() if file.abs_src_path]
    waiting += [
        ROOT / name for name in ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "spec/frame.md", "spec/notes.md")
    ]
    for path in waiting:  # grows while it is walked
        uri = site_uri(path)
        if files.get_file_from_path(uri) is None:
            files.append(File.generated(config, uri, abs_src_path=str(path)))
        if path.suffix == ".md":
            found = {target for target in linked(path) if site_uri(target) != uri}
            waiting += sorted(target for target in found if target not in waiting)
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Rewrites links that are right in the repository into links that are right in the site."""
    source = repository_path(page.file.src_uri)
    if page.file.src_uri in ALONE:
        page.meta["hide"] = ["navigation"]
    if HELP in markdown:
        markdown = markdown.replace(HELP, options_of_commands())

    def moved(match: re.Match[str]) -> str:
        target = resolved(source, match[2])
        if target is None:
            return match[0]
        uri = posixpath.relpath(site_uri(target), posixpath.dirname(page.file.src_uri) or ".")
        return f"{match[1]}{uri}{match[3] or ''}"

    parts = FENCE.split(markdown)  # every other one is a fenced block
    return "".join(part if i % 2 else LINK.sub(moved, part) for i, part in enumerate(parts))


def linked(page: Path) -> Iterator[Path]:
    """The files of the repository that a page links to; a folder stands for the pages in it."""
    for part in FENCE.split(page.read_text())[::2]:
        for match in LINK.finditer(part):
            target = resolved(page, match[2])
            if target is not None and target.is_dir():
                yield from sorted(target.glob("*.md"))
            elif target is not None:
                yield target


def resolved(page: Path, link: str) -> Path | None:
    """The file or folder that a link leads to; None if it leads elsewhere, or nowhere, which MkDocs reports."""
    if "://" in link:
        return None
    target = Path(os.path.normpath(page.parent / link))
    return target if target.exists() and target.is_relative_to(ROOT) else None


def site_uri(path: Path) -> str:
    """Where a file of the repository stands in the site."""
    inside = path.relative_to(ROOT)
    if inside.as_posix() in ("README.md", "docs"):  # on GitHub the front page, here another one
        return "index.md"
    if inside.parts[0] == "docs":
        return inside.relative_to("docs").as_posix()
    return "decisions.md" if inside.as_posix() == "spec/decisions" else inside.as_posix()


def repository_path(uri: str) -> Path:
    inside = ROOT / "docs" / uri
    return inside if inside.exists() else ROOT / uri


def options_of_commands() -> str:
    """The sections of the reference that the commands' own parsers give."""
    from tensorbytes.cli import reference

    return reference.markdown()[reference.markdown().index("\n## ") :]
