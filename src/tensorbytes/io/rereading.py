"""Reading a target more than once, whatever it is."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

from tensorbytes.io import storage


@contextlib.contextmanager
def rereadable(target: Any) -> Iterator[Callable[[], Any]]:
    """Gives a function that returns the target, ready to be read from where it stands now, as often as it is called.

    What a pipe brings is kept in a file meanwhile.
    """
    if not hasattr(target, "read"):  # a path or a URL, or several
        yield lambda: target
        return
    storage.check_target(target, "read")
    with contextlib.ExitStack() as stack:
        file: Any = target
        if not (hasattr(target, "seekable") and target.seekable()):
            file = stack.enter_context(tempfile.TemporaryFile())
            shutil.copyfileobj(target, file)
            file.seek(0)
            file.raw.name = storage.describe(target)  # the name shown in errors
        start = file.tell()

        def again() -> Any:
            file.seek(start)
            return file

        yield again
