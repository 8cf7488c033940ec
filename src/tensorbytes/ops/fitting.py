"""What of a document a format can't hold, found before anything is written.

The format itself is asked: its `check` looks at each tensor alone, and encodes nothing. A loss is
first granted (the feature is dropped); if the format still refuses, the tensor is left out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from tensorbytes.errors import LossError, UnsupportedError
from tensorbytes.formats import Format, Options
from tensorbytes.ops.report import Loss
from tensorbytes.tree import Document, Leaf

# More than any tensor has features to lose.
_MOST = 1000


class Fitted(NamedTuple):
    """What can be written, the losses that must be granted for it, and all of them in words."""

    document: Document
    granted: frozenset[str]
    losses: list[Loss]


def fit(chosen: Format, document: Document, options: Options, look: Callable[[Leaf], None] | None = None) -> Fitted:
    """The part of a document that a format holds. `look` raises what only the values of a leaf tell."""

    def attempt(some: Document, granted: frozenset[str]) -> None:
        if look is not None:
            for leaf in some.leaves:
                look(leaf)
        chosen.check(some, granted, options)

    try:
        attempt(document, frozenset())
        return Fitted(document, frozenset(), [])
    except (LossError, UnsupportedError):
        pass
    kept, granted, losses = fitting_leaves(document.leaves, attempt)
    if len(kept) < len(document.leaves) and any(map(is_in_list, kept)):
        what = "other items of its list are left out: it stands under its name"
        losses += [Loss(leaf.name, "structure", what) for leaf in kept if is_in_list(leaf)]
        kept = [take_out_of_list(leaf) for leaf in kept]
    whole = document._replace(leaves=kept)
    if kept:
        more, found, _ = _losses(None, whole, attempt, granted)
        granted, losses = granted | more, losses + found
    return Fitted(whole, granted, losses)


def is_in_list(leaf: Leaf) -> bool:
    return any(kind in ("list", "tuple") for kind, _ in leaf.path)


def take_out_of_list(leaf: Leaf) -> Leaf:
    """An item of a list on its own, since a part of a list is not a list; others stay where they are."""
    return leaf._replace(path=(("key", str(leaf.name)),)) if is_in_list(leaf) else leaf


def fitting_leaves(
    leaves: list[Leaf], attempt: Callable[[Document, frozenset[str]], None]
) -> tuple[list[Leaf], frozenset[str], list[Loss]]:
    """(the leaves that can be written, what must be granted, the losses); `attempt` raises what is lost."""
    kept: list[Leaf] = []
    granted: frozenset[str] = frozenset()
    losses: list[Loss] = []
    for leaf in leaves:
        more, found, holds = _losses(leaf.name, Document([leaf]), attempt, frozenset())
        losses += found
        if holds:
            kept.append(leaf)
            granted |= more
    return kept, granted, losses


def _losses(
    name: str | None, document: Document, attempt: Callable[[Document, frozenset[str]], None], granted: frozenset[str]
) -> tuple[frozenset[str], list[Loss], bool]:
    """(what must be granted, what is lost, whether anything is left)"""
    losses: list[Loss] = []
    for _ in range(_MOST):
        try:
            attempt(document, granted)
            return granted, losses, True
        except LossError as error:
            feature, what = error.feature, error.fault
        except UnsupportedError as error:
            feature, what = "unsupported", error.fault
        if feature in granted or feature == "unsupported":
            break
        granted |= {feature}
        losses.append(Loss(name, feature, what))
    else:
        feature, what = "unsupported", "too many losses"
    # Refused although granted: the tensor itself can't be held, whatever else of it might be dropped.
    return granted, [Loss(name, feature, what, dropped=True)], False
