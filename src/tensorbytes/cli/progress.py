"""A bar with the rate and the time left, on stderr, for work that takes longer than a moment."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Any, Self

# Shorter work shows no bar: it would only flicker, and rich takes a moment to load.
_PATIENCE_SECONDS = 0.7
_MOST_SECONDS_BETWEEN = 0.1


class Silent:
    """No bar: in a pipe, or with -q."""

    shows = False
    unit = "bytes"

    def __call__(self, done: int, total: int | None = None) -> None:
        pass

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        pass


class Progress:
    """A bar on a terminal, gone when the work is done."""

    shows = True

    def __init__(self, label: str, unit: str = "bytes") -> None:
        self._label, self.unit = label, unit
        self._begun = self._shown = time.monotonic()
        self._bar: Any = None
        self._task: Any = None

    def __call__(self, done: int, total: int | None = None) -> None:
        now = time.monotonic()
        if self._bar is None:
            if now - self._begun < _PATIENCE_SECONDS:
                return
            self._start()
        elif now - self._shown < _MOST_SECONDS_BETWEEN and done != total:
            return
        self._shown = now
        self._bar.update(self._task, completed=done, total=total)

    def _start(self) -> None:
        from rich import progress
        from rich.console import Console

        counted: list[Any] = (
            [progress.DownloadColumn(), progress.TransferSpeedColumn()]
            if self.unit == "bytes"
            else [progress.MofNCompleteColumn(), progress.TextColumn(self.unit), _Rate()]
        )
        self._bar = progress.Progress(
            progress.TextColumn("{task.description}", markup=False),
            progress.BarColumn(),
            *counted,
            progress.TimeRemainingColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        self._task = self._bar.add_task(self._label, total=None)
        self._bar.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._bar is not None:
            self._bar.stop()


def _Rate() -> Any:
    from rich.progress import ProgressColumn, Task
    from rich.text import Text

    class Rate(ProgressColumn):
        def render(self, task: Task) -> Text:
            return Text("" if not task.speed else f"{task.speed:,.0f}/s")

    return Rate()
