"""What became of a conversion, in words and as data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from tensorbytes.errors import USE_TB, Hint, LossError
from tensorbytes.notebook import Displayed
from tensorbytes.ops.plural import many
from tensorbytes.tree import Document, Leaf, find_overlaps

_SHOWN = 12
# Losses that change no value: they are told, and refused by nobody.
TOLD = frozenset({"aliases"})


@dataclass(frozen=True)
class Loss:
    """Something that the target could not hold. `feature` is what `allow` calls it; no name means the whole."""

    name: str | None
    feature: str
    what: str
    dropped: bool = False  # the tensor itself is not in the target

    def __str__(self) -> str:
        where = "the whole" if self.name is None else self.name
        text = f"{where}: {'left out: ' if self.dropped else ''}{self.what}"
        return text if text.isprintable() else repr(text)[1:-1]  # names come from files, and go to terminals


@dataclass
class Report(Displayed):
    """The result of `convert`."""

    source: str
    source_format: str
    target: str
    target_format: str
    files: list[str] = field(default_factory=list)
    tensors: int = 0
    rows: int | None = None  # of tables and streams
    nbytes: int = 0  # of the tensors in memory
    changes: list[str] = field(default_factory=list)  # rows stacked, names changed
    losses: list[Loss] = field(default_factory=list)
    verified: bool = False

    @property
    def lossless(self) -> bool:
        return not self.losses

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return asdict(self) | {"lossless": self.lossless}

    def __str__(self) -> str:
        rows = "" if self.rows is None else f", {many(self.rows, 'row')}"
        checked = ", verified" if self.verified else ""
        head = f"{self.source} ({self.source_format}) -> {self.target} ({self.target_format}): "
        lines = [f"{head}{many(self.tensors, 'tensor')}{rows}, {self.nbytes} bytes{checked}"]
        lines += [f"  {change}" for change in self.changes]
        if not self.losses:
            return "\n".join([*lines, "  nothing lost"])
        lines.append(f"  {len(self.losses)} {'loss' if len(self.losses) == 1 else 'losses'}:")
        lines += [f"    {loss}" for loss in self.losses[:_SHOWN]]
        if len(self.losses) > _SHOWN:
            lines.append(f"    and {len(self.losses) - _SHOWN} more")
        return "\n".join(lines)


def unread_loss(leaf: Leaf) -> Loss:
    """The loss of an object that was found in a file and is not read."""
    what = f"{getattr(leaf.value, 'dtype', '')}, which is not read"
    if leaf.path and leaf.path[-1][0] in ("list", "tuple"):
        return Loss(leaf.name, "objects", f"{what}: None stands for it")
    return Loss(leaf.name, "objects", what, dropped=True)


def sharing_losses(document: Document, apart: Mapping[int, int]) -> list[Loss]:
    """What is lost of tensors that share memory: of those in `apart`, that they are one; and all that overlap."""
    leaves = document.leaves

    def losses(pairs: Mapping[int, int], what: str) -> list[Loss]:
        told = ((leaves[part].name, leaves[other].name) for part, other in pairs.items())
        return [Loss(name, "aliases", f"{what} {other!r}: it is stored apart") for name, other in told]

    same, overlapping = "that it is the same tensor as", "that it overlaps the memory of"
    return [*losses(apart, same), *losses(find_overlaps(leaves), overlapping)]


def refuse(losses: Iterable[Loss], allowed: frozenset[str], target: str, advice: Iterable[Hint] = ()) -> None:
    """Raise unless every loss is allowed; the error lists those that are not. `advice` comes before other hints."""
    granted = allowed | TOLD
    unallowed = [loss for loss in losses if loss.feature not in granted and "all" not in granted]
    if not unallowed:
        return
    features = sorted({loss.feature for loss in unallowed})
    shown = "\n".join(f"  {loss}" for loss in unallowed[:_SHOWN])
    more = f"\n  and {len(unallowed) - _SHOWN} more" if len(unallowed) > _SHOWN else ""
    what, hints = f"format {target!r} can't hold everything", [Hint("allow", set(features), "to accept that"), USE_TB]
    if features == ["objects"]:  # it is not the target that lacks a place for them
        what, hints = "not everything in the file is read", [Hint("allow", set(features), "to go on without")]
    raise LossError(f"{what}:\n{shown}{more}", feature=features[0], losses=unallowed, hints=[*advice, *hints])
