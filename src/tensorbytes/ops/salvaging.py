"""What is whole of a file of tensors that ends too early, as a download that broke off leaves it."""

from __future__ import annotations

from typing import Any, NamedTuple

from tensorbytes import formats, opening
from tensorbytes.damage import Damage
from tensorbytes.errors import LIMITS, CorruptError, Limits, TensorbytesError
from tensorbytes.io import storage
from tensorbytes.io.storage import naming
from tensorbytes.ops.fitting import take_out_of_list
from tensorbytes.tree import Leaf


class Kept(NamedTuple):
    """How many tensors of a file are whole, and what is said of the others."""

    tensors: int
    damages: list[Damage]


def keep_whole(path: Any, target: Any, format: str, *, limits: Limits = LIMITS) -> Kept | None:
    """Write the tensors of a damaged file that are whole; None, and nothing written, if none are found."""
    chosen = formats.get(format)
    data = opening.open_file(path, format).data
    if data is None:
        return None
    shown = storage.describe(path)
    with naming(shown):
        try:
            found = chosen.salvage(data, limits)
        except TensorbytesError:  # not even what tells where the tensors are
            return None
        if found is None:
            return None
        damages = [Damage(shown, "tensor", cause="cut off", name=name) for name in found.lost]
        kept: list[Leaf] = []
        for leaf in found.document.leaves if not _is_nothing(found.document.leaves) else []:
            damage = _damage(leaf, shown)
            if damage is None:
                kept.append(leaf)
            else:
                damages.append(damage)
        if not kept:
            return None
        document = found.document._replace(leaves=[take_out_of_list(leaf) for leaf in kept])
        chosen.write(document, target, frozenset(), found.options)
    return Kept(len(kept), damages)


def _is_nothing(leaves: list[Leaf]) -> bool:
    """A file without tensors is an empty dict."""
    return len(leaves) == 1 and not leaves[0].path and leaves[0].kind == "dict"


def _damage(leaf: Leaf, path: str) -> Damage | None:
    try:
        if leaf.check is not None:
            leaf.check()
        leaf.read()
    except CorruptError as error:
        return Damage(path, "tensor", error.at or None, cause=error.fault, name=leaf.name)
    return None
