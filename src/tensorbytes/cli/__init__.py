"""The command line: `tb FILE`, `tb VERB ...`; the same as `tensorbytes` and `python -m tensorbytes`.

Exit codes: 0 fine, 1 differs or damaged, 2 wrong usage or a file that can't be read, 130 interrupted
(Ctrl-C; 143 after kill).
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    import argparse

FINE, DIFFERS, USAGE = 0, 1, 2
BUG = 70  # as sysexits.h has it: not to be taken for a file that is damaged
BROKEN_PIPE = 141  # what a shell reports of a program that SIGPIPE ends
DEFAULT = "info"
_COMMON_FLAGS = ("--json", "-q", "--quiet", "--no-color")


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code. Without arguments, those of the process, which then ends here."""
    if argv is not None:
        return _guarded(list(argv))
    import gc

    from tensorbytes.cli import interrupts

    interrupts.heed()
    gc.set_threshold(100_000, 50, 50)  # loading modules makes much that stays, which need not be gone through
    _show_warnings_in_a_line()
    try:
        code = _guarded(sys.argv[1:])
    except Exception:
        import traceback

        traceback.print_exc()
        _tell("this is a bug of tensorbytes; the lines above tell where")
        code = BUG
    # Every file is closed and every thread is done. Python would now take itself apart, NumPy too, for a while.
    _flush()
    os._exit(code)


def _guarded(argv: list[str]) -> int:
    # NumPy's linear algebra starts a thread for each core when it is loaded, and is not used here.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by whoever started us: `tb ... >&-`
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115
    try:
        try:
            code = _main(argv)
        except Exception:
            _check_interrupt()
            raise
        sys.stdout.flush()
        return code
    except SystemExit as stop:  # argparse has said why
        return stop.code if isinstance(stop.code, int) else FINE if stop.code is None else USAGE
    except KeyboardInterrupt:
        from tensorbytes.cli import interrupts

        with _suppressed():  # a terminal that went away
            _tell("interrupted")
        return interrupts.exit_code()
    except BrokenPipeError:
        # Whoever read has what they wanted (`| head`). What is left would be written at exit: to nowhere.
        _discard_output()
        return BROKEN_PIPE
    except OSError as error:  # of the output: files that are read have been dealt with
        _tell(f"can't write the output: {error_text(error)}")
        _discard_output()
        return USAGE


def _main(argv: list[str]) -> int:
    from tensorbytes.cli import output, verbs

    output.prepare(sys.stdout)
    output.prepare(sys.stderr)
    if not argv or argv[0] in ("-h", "--help", "help"):
        if len(argv) > 1 and argv[1] in verbs.VERBS:
            argv = [argv[1], "--help"]
        else:
            print(_overview())
            return FINE if argv else USAGE
    if argv[0] in ("-V", "--version") or (argv == ["version"] and not os.path.lexists("version")):
        from tensorbytes import __version__

        print(f"tensorbytes {__version__}")
        return FINE
    verb, rest = _verb(argv)
    module = verbs.load(verb)
    # An address in what is piped in looks like an option to argparse.
    rest = [f"/dev/stdin{word[1:]}" if word.startswith("-::") else word for word in rest]
    args = parser(verb).parse_intermixed_args(rest)
    out = output.Output(json=args.json, quiet=args.quiet, color=args.color, verb=verb)
    try:
        return module.run(args, out)
    except Exception as error:
        _check_interrupt()
        code = failure(error)
        if code is None or out.broken:
            raise
        out.complain(error_text(error))
        return code


def _check_interrupt() -> None:
    from tensorbytes.cli import interrupts

    interrupts.check()


def _verb(argv: list[str]) -> tuple[str, list[str]]:
    """(the command, its arguments); without a command it is `info`."""
    from tensorbytes.cli.verbs import VERBS

    at = next((at for at, word in enumerate(argv) if word not in _COMMON_FLAGS), 0)
    word = argv[at]
    if word in VERBS:
        return word, argv[:at] + argv[at + 1 :]
    _refuse_misspelt(word, VERBS)
    return DEFAULT, argv


def _refuse_misspelt(word: str, verbs: Iterable[str]) -> None:
    """A misspelt command would be taken for a file that does not exist: say so."""
    if not word.isalpha() or os.path.lexists(word):
        return
    import difflib

    near = difflib.get_close_matches(word.lower(), list(verbs), 1)
    hint = f"did you mean `tb {near[0]}`?" if near else "tb --help lists the commands"
    _tell(f"{word}: neither a command nor a file; {hint}")
    raise SystemExit(USAGE)


def parser(verb: str) -> argparse.ArgumentParser:
    """What a command takes."""
    from tensorbytes.cli import verbs

    words = verbs.VERBS[verb].words
    made = _parser_type()(
        prog=f"tb {verb}",
        description=words[:1].upper() + words[1:] + ".",
        formatter_class=_help_formatter(),
        allow_abbrev=False,
    )
    verbs.load(verb).arguments(made)
    common = made.add_argument_group("output")
    common.add_argument("--json", action="store_true", help="one JSON object a line, for programs")
    common.add_argument("-q", "--quiet", action="store_true", help="no progress, no remarks on stderr")
    common.add_argument("--no-color", dest="color", action="store_false", help="no colours (also: NO_COLOR=1)")
    return made


def _parser_type() -> type[argparse.ArgumentParser]:
    import argparse

    from tensorbytes.cli.output import escaped, terminal_width

    class Parser(argparse.ArgumentParser):
        def format_help(self) -> str:
            from tensorbytes.cli.options import option_text

            flags = {flag for action in self._actions for flag in action.option_strings}
            return super().format_help() + option_text(flags, min(terminal_width(), 120) - 2)

        def error(self, message: str) -> NoReturn:
            super().error(escaped(message))  # it quotes what was typed, or what a glob found

    return Parser


def _help_formatter() -> type[argparse.HelpFormatter]:
    """As wide as the terminal; left to itself argparse loads shutil, and with that every archiver, to find out."""
    import argparse

    from tensorbytes.cli.output import terminal_width

    class Help(argparse.RawDescriptionHelpFormatter):
        def __init__(self, prog: str) -> None:
            super().__init__(prog, max_help_position=28, width=min(terminal_width(), 120) - 2)

    return Help


def failure(error: BaseException) -> int | None:
    """The exit code for an error that is told in one line; None for one that is a bug, and wants its traceback."""
    from tensorbytes.errors import CorruptError, TensorbytesError

    if isinstance(error, BrokenPipeError):
        return None
    if isinstance(error, CorruptError):
        return DIFFERS
    return USAGE if isinstance(error, TensorbytesError | OSError | MemoryError) else None


def error_text(error: BaseException) -> str:
    """What an error says, for people: those of the system tell the file first, and no number."""
    if isinstance(error, MemoryError):
        return "there is not enough memory for this"
    from tensorbytes.errors import TensorbytesError

    if isinstance(error, TensorbytesError):
        from tensorbytes.cli.hints import in_commands

        return error.describe(in_commands)
    if not isinstance(error, OSError):
        return str(error)
    names = [os.fsdecode(name) for name in (error.filename, error.filename2) if isinstance(name, str | bytes)]
    if isinstance(error, FileNotFoundError) and error.strerror in (None, os.strerror(errno.ENOENT)):
        # What reads URLs gives nothing but the URL.
        return f"{names[0] if names else error}: no such file"
    said = error.strerror or str(error) or type(error).__name__
    return f"{' and '.join(names)}: {said[:1].lower()}{said[1:]}" if names else said


def _overview() -> str:
    import textwrap

    from tensorbytes.cli.output import terminal_width
    from tensorbytes.cli.verbs import VERBS

    room = max(min(terminal_width(), 100), 40)
    lines = []
    for text in (
        "usage: tb FILE            what is in it, whatever its format",
        "       tb COMMAND ...     tb COMMAND --help says more",
    ):
        lines += textwrap.wrap(text, room, subsequent_indent=" " * 26)
    group = ""
    for name, row in VERBS.items():
        if row.group != group:
            group = row.group
            lines += ["", f"{group}:"]
        lines += textwrap.wrap(f"  {name:<11} {row.words}", room, subsequent_indent=" " * 14)
    lines.append("")
    for text in (
        "Files may be globs, folders, URLs or - (stdin). --json gives JSON lines, for programs.",
        "Exit code: 0 fine, 1 differs or damaged, 2 wrong usage or unreadable.",
        "tb --version tells the version.",
    ):
        lines += textwrap.wrap(text, room)
    return "\n".join(lines)


# ---- the process ----------------------------------------------------------------


def _tell(text: str) -> None:
    from tensorbytes.cli.output import escaped

    print(f"tb: {escaped(text)}", file=sys.stderr)


def _discard_output() -> None:
    with _suppressed():
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with _suppressed():
            stream.flush()


class _suppressed:
    """contextlib.suppress for what a stream that is closed or full says."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        return isinstance(error, OSError | ValueError | AttributeError)


def _show_warnings_in_a_line() -> None:
    """The library's warnings, such as that of a cut tail, without the line of our source that raised them."""
    import warnings

    def show(message: Warning | str, *rest: object, **more: object) -> None:
        _tell(f"warning: {message}")

    warnings.showwarning = show
