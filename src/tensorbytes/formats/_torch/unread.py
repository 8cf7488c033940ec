"""What a pickle holds that is not read: a class, an object, a call. Its name is kept, as text, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

from tensorbytes.deferred import Deferred
from tensorbytes.errors import Hint, LimitError, UnsupportedError
from tensorbytes.formats import Option, Options
from tensorbytes.tree import Leaf, Path, path_name

WHY = "only tensors and plain values are read, and nothing is executed"
SAVE = Hint(purpose="save model.state_dict() or plain tensors")
ADVICE = f"{WHY}: {SAVE.purpose}"
SET_ADVICE = "sets have no order to keep; save a list"
SKIP = Hint("objects", "skip", "to leave out what is not read", of="load")
KIND = "object"
OPTION = Option(str, "`skip` leaves out what is not read", "refuse", ("refuse", "skip"))
# Names are text of the file's own: a short pickle could make many of them.
_MOST_KINDS = 10_000


class Opaque:
    """A value that may stand where nobody looks at it, and is refused where somebody does.

    `what` names it, `why` says what is wrong with it, `at` is where the file first speaks of it.
    """

    __slots__ = ("at", "what", "why")

    def __init__(self, what: str, why: str = WHY, at: int = -1) -> None:
        # Names come from files: nothing in them may steer a terminal.
        self.what = what if what.isprintable() else repr(what)[1:-1]
        self.why, self.at = why, at

    def words(self, path: Path, others: int = 0) -> str:
        """What it is, where, beside how many others, and why it is not read."""
        what = f"a {self.what}" if self.what in ("set", "frozenset") else f"'{self.what}'"
        where = f" at {path_name(path)!r}" if path else ""
        more = f", and {others} more object{'s' * (others > 1)}" if others else ""
        return f"{what}{where}{more}: {self.why}"


class Unread:
    """Makes one Opaque for each name and reason, however often a pickle asks for it."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], Opaque] = {}

    def __call__(self, what: str, why: str = WHY) -> Opaque:
        found = self._known.get((what, why))
        if found is None:
            if len(self._known) >= _MOST_KINDS:
                raise LimitError(f"a pickle of over {_MOST_KINDS} kinds of objects, none of which are read")
            found = self._known[what, why] = Opaque(what, why)
        return found


def skips(options: Options) -> bool:
    """The read option objects=: whether what can't be read is left out."""
    return bool(options.get("objects") == "skip")


def leaf(what: str, refuse: Callable[[], NoReturn], path: Path, shape: tuple[int, ...] = (), at: int = 0) -> Leaf:
    """An entry that says what stands there, and refuses to be read."""
    return Leaf(Deferred(KIND, what, shape, refuse), path, KIND, None, at)


def refused(found: Opaque, path: Path, others: int = 0) -> UnsupportedError:
    """The error for an object and this many others; what can be left out, it says."""
    at = found.at if found.at >= 0 else None
    hints = [SAVE] * (found.why == WHY) + [SKIP] * bool(path)
    return UnsupportedError(found.words(path, others), at=at, tensor=path_name(path) if path else None, hints=hints)
