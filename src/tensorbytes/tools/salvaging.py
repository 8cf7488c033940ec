"""What is whole of a file of tensors that ends too early, as a download that broke off leaves it."""

from __future__ import annotations

from typing import Any, NamedTuple

from tensorbytes import formats, opening, storage
from tensorbytes.errors import LIMITS, CorruptError, Limits, TensorbytesError
from tensorbytes.reader import naming
from tensorbytes.tools.fitting import under_its_name
from tensorbytes.tools.soundness import Fault
from tensorbytes.tree import Leaf


class Kept(NamedTuple):
    """How many tensors of a file are whole, and what is said of the others."""

    tensors: int
    faults: list[Fault]


def rest(path: Any, target: Any, format: str, *, limits: Limits = LIMITS) -> Kept | None:
    """Write the tensors of a damaged file that are whole; None, and nothing written, if there are none to be found."""
    chosen = formats.get(format)
    data = opening.mapped(path, format).data
    if data is None:
        return None
    with naming(storage.describe(path)):
        try:
            found = chosen.salvage(data, limits)
        except TensorbytesError:  # not even what tells where the tensors are
            return None
        if found is None:
            return None
        faults = [Fault(name, "cut off") for name in found.lost]
        kept: list[Leaf] = []
        for leaf in found.document.leaves if not _is_nothing(found.document.leaves) else []:
            fault = _fault(leaf)
            if fault is None:
                kept.append(leaf)
            else:
                faults.append(fault)
        if not kept:
            return None
        document = found.document._replace(leaves=[under_its_name(leaf) for leaf in kept])
        chosen.write(document, target, frozenset(), found.options)
    return Kept(len(kept), faults)


def _is_nothing(leaves: list[Leaf]) -> bool:
    """A file without tensors is an empty dict."""
    return len(leaves) == 1 and not leaves[0].path and leaves[0].kind == "dict"


def _fault(leaf: Leaf) -> Fault | None:
    try:
        if leaf.check is not None:
            leaf.check()
        _ = leaf.whole
    except CorruptError as error:
        return Fault(leaf.name, error.fault, error.at or None)
    return None
