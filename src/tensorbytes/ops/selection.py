"""Which tensors are meant, and what they shall be called."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from typing import Any

from tensorbytes.errors import CorruptError, Hint, Known, UsageError
from tensorbytes.ops.fitting import is_in_list, take_out_of_list
from tensorbytes.patterns import Patterns
from tensorbytes.rows import Table, noted_table, with_names
from tensorbytes.structs import without_torn
from tensorbytes.tensor import Array, Tensor, amended
from tensorbytes.tree import Document, Leaf, unflatten

_NOTHING = Tensor("bool", (0,), b"")


def check_places(leaves: list[Leaf], words: str = "rename gives two values one place") -> None:
    """Two tensors must not share a place, nor one stand where others have their dict."""
    keyed = [Leaf(_NOTHING, leaf.path) for leaf in leaves if leaf.path]
    try:
        if keyed:
            unflatten(keyed, lambda value: None)
    except CorruptError as error:
        raise UsageError(f"{words}: {error.fault}") from None


class Selection:
    """`names` are names or patterns such as "layer.*.weight"; `rename` is a dict or a function of the name."""

    def __init__(
        self, names: Collection[str] | str | None, rename: Mapping[str, str] | Callable[[str], str] | None
    ) -> None:
        self._patterns = None if names is None else Patterns(names)
        self._rename = rename
        self._not_renamed = set(rename) if isinstance(rename, Mapping) else set()
        self.flattens = False  # whether a nested value was given a name of its own

    @property
    def unused(self) -> set[str]:
        """What no tensor went by so far: names, patterns, names to be changed."""
        return self._not_renamed | (self._patterns.unused if self._patterns is not None else set())

    def takes(self, name: str | None) -> bool:
        return self._patterns is None or self._patterns.takes(name)

    def new_name(self, name: str) -> str:
        self._not_renamed.discard(name)
        if isinstance(self._rename, Mapping):
            return self._rename.get(name, name)
        return self._rename(name) if self._rename is not None else name

    def apply(self, document: Document) -> Document:
        """The document of the chosen tensors, under their new names."""
        if self._patterns is None and self._rename is None:
            return document
        table = noted_table(document, self.takes)
        if table is not None:
            chosen = self.table(table)
            return chosen.plain_document() if document.rows is None else chosen.document()
        kept = [leaf for leaf in document.leaves if self.takes(leaf.name)]
        # A part of a list is not a list, whether some are left out or some get other names.
        renamed = any(is_in_list(leaf) and self.new_name(str(leaf.name)) != leaf.name for leaf in kept)
        if renamed or len(kept) < len(document.leaves):
            kept = [take_out_of_list(leaf) for leaf in kept]
        placed = [self._rename_leaf(leaf) for leaf in kept]
        check_places(placed)
        return without_torn(document._replace(leaves=placed))

    def _rename_leaf(self, leaf: Leaf) -> Leaf:
        old = leaf.name
        new = old if old is None else self.new_name(old)
        if new == old:
            return leaf
        if not isinstance(new, str):
            raise UsageError(f"rename gave {new!r} for {old!r}: expected a name")
        if not leaf.path:
            value: Any = leaf.read()
            return leaf._replace(value=amended(value, new, value.meta))
        self.flattens = self.flattens or len(leaf.path) > 1
        return leaf._replace(path=(("key", new),))

    def table(self, table: Table) -> Table:
        """The same for the columns of a table."""
        kept = {name: self.new_name(name) for name in table.columns if self.takes(name)}
        twice = next((new for new, times in Counter(kept.values()).items() if times > 1), None)
        if twice is not None:
            raise UsageError(f"rename gives two columns the name {twice!r}")
        columns = {new: table.columns[old] for old, new in kept.items()}
        masks: dict[tuple[str, int], Array] = {}
        paths = {old: path for old, path in table.paths.items() if kept.get(old, old) == old}
        for (owner, level), mask in table.masks.items():
            for old in (old for old in table.below(owner) if old in kept):
                # Of a column, or of a struct that it stays in; what leaves a struct takes the mask along.
                rest = old[len(owner) :]
                new = kept[old].removesuffix(rest) if kept[old].endswith(rest) else kept[old]
                before = masks.get((new, level))
                masks[new, level] = mask if before is None or before is mask else before & mask
                if rest and new != kept[old]:  # another column may have the name of a field since
                    paths.setdefault(kept[old], tuple(("key", key) for key in (new, *rest[1:].split("/"))))
        origin = with_names(table.origin, {new: old for old, new in kept.items() if new != old})
        return table._replace(columns=columns, masks=masks, origin=origin, paths=paths)

    @property
    def renames(self) -> Callable[[str], str] | None:
        """What gives other names, if anything does."""
        return None if self._rename is None else self.new_name

    def check_used(self, path: str) -> None:
        """A name that is not there is a slip, not a wish for nothing."""
        if self.unused:
            raise UsageError(
                f"there is no tensor {min(self.unused)!r}",
                path=path,
                tensor=min(self.unused),
                hints=[Hint(operation="inspect", arguments=(Known(path),), purpose="lists them")],
            )
