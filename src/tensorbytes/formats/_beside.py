"""Files that belong to another one and stand beside it: shards, named by an index or after it.

Whoever made the folder may have put anything under such a name. A link must not lead out of
it, and a pipe must not be waited for.
"""

from __future__ import annotations

import os

from tensorbytes.errors import CorruptError, Hint, UnsupportedError


def check(path: str) -> None:
    """Refuse all but a regular file that stays in its folder once links are followed."""
    home, real = os.path.realpath(os.path.dirname(path)), os.path.realpath(path)
    if not any(real.startswith(os.path.join(place, "")) for place in (home, *_blobs(home))):
        raise UnsupportedError(
            f"a link that leads out of the checkpoint's folder, to {real!r}",
            path=path,
            hints=[Hint(purpose="copy the file into the folder"), Hint(purpose="pass the real folder")],
        )
    if not os.path.isfile(path):
        raise CorruptError("a shard must be a regular file", at=0, path=path)


def _blobs(home: str) -> list[str]:
    """Where the files of a model hub's cache really are: `snapshots/REVISION/...` links to `blobs/...`."""
    above, name = os.path.split(home)
    while name:
        parent, folder = os.path.split(above)
        if folder == "snapshots":
            return [os.path.join(parent, "blobs")]
        above, name = parent, folder
    return []
