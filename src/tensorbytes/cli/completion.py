"""tb completion: what the Tab key offers, made from the commands' own parsers."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from tensorbytes.cli.output import Output
from tensorbytes.errors import UsageError

EXAMPLES = """examples:
  eval "$(tb completion bash)"      in ~/.bashrc
  eval "$(tb completion zsh)"       in ~/.zshrc, after compinit
  tb completion fish > ~/.config/fish/completions/tb.fish"""

NAMES = ("tb", "tensorbytes")
_TEXT_FORMS = ("text", "json", "csv")


class CommandOption(NamedTuple):
    """What a parser says of one option."""

    flags: tuple[str, ...]
    words: str  # its help
    takes_value: bool
    values: tuple[str, ...]  # that may follow; none: a file, or anything


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument("shell", nargs="?", choices=tuple(SHELLS), help="by default that of $SHELL")


def run(args: argparse.Namespace, out: Output) -> int:
    shell = args.shell or os.path.basename(os.environ.get("SHELL", ""))
    if shell not in SHELLS:
        raise UsageError(f"say which shell: tb completion {'|'.join(SHELLS)}")
    script = SHELLS[shell]()
    if args.json:
        out.item({"shell": shell, "script": script})
    else:
        out.raw(script.encode())
    return 0


def options(verb: str) -> list[CommandOption]:
    """The options of a command."""
    from tensorbytes.cli import parser

    made = []
    for action in parser(verb)._actions:
        if action.option_strings:
            values = tuple(map(str, action.choices or ())) or _suggested(verb, action.option_strings)
            words = (action.help or "").split(";")[0].replace("\n", " ")
            made.append(CommandOption(tuple(action.option_strings), words, action.nargs != 0, values))
    return made


def words(verb: str) -> tuple[str, ...]:
    """What the command's arguments may be, where they are not files."""
    from tensorbytes.cli import parser

    found = [action.choices for action in parser(verb)._actions if not action.option_strings and action.choices]
    return tuple(map(str, found[0])) if found else ()


def _suggested(verb: str, flags: Sequence[str]) -> tuple[str, ...]:
    """Words for options that take more than argparse should have to know."""
    from tensorbytes import formats

    if "--scan" in flags and verb == "info":
        return ("all",)
    if "--compression" in flags:
        from tensorbytes import codecs

        return ("auto", *codecs.BUILTIN)
    if "--as" in flags:
        return (*_TEXT_FORMS, *(name for name in formats.BUILTIN if formats.get(name).writes))
    return tuple(formats.BUILTIN) if "--from" in flags or "--to" in flags else ()


def _verbs() -> Iterator[tuple[str, str]]:
    from tensorbytes.cli.verbs import VERBS

    return ((name, row.words) for name, row in VERBS.items())


# ---- bash -----------------------------------------------------------------------------


def bash() -> str:
    cases = []
    for verb, _ in _verbs():
        found = options(verb)
        flags = " ".join(flag for option in found for flag in option.flags)
        lines = [
            f"    {verb})",
            f'      flags="{flags}"',
            f'      words="{" ".join(words(verb))}"',
            '      case "$prev" in',
        ]
        for option in found:
            if option.values:
                lines.append(f'        {"|".join(option.flags)}) values="{" ".join(option.values)}" ;;')
            elif option.takes_value:
                lines.append(f"        {'|'.join(option.flags)}) return ;;  # a file, or anything")
        cases.append("\n".join([*lines, "      esac ;;"]))
    verbs = " ".join(verb for verb, _ in _verbs())
    return _BASH.replace("%VERBS%", verbs).replace("%CASES%", "\n".join(cases)).replace("%NAMES%", " ".join(NAMES))


_BASH = r"""# bash completion of tensorbytes
_tensorbytes() {
  local cur="${COMP_WORDS[COMP_CWORD]}" prev="" verb="" word flags="" words="" values="" at
  COMPREPLY=()
  for ((at = 1; at < COMP_CWORD; at++)); do
    word="${COMP_WORDS[at]}"
    [[ "$word" != -* ]] && { verb="$word"; break; }
  done
  ((COMP_CWORD > 1)) && prev="${COMP_WORDS[COMP_CWORD - 1]}"
  if [[ -z "$verb" && "$cur" != -* ]]; then
    COMPREPLY=($(compgen -W "%VERBS%" -- "$cur"))
    if [[ -n "$cur" ]]; then
      compopt -o filenames 2>/dev/null
      local IFS=$'\n'
      COMPREPLY+=($(compgen -f -- "$cur"))
    fi
    return
  fi
  # A file in the place of a command: that is `tb info`.
  [[ " %VERBS% " == *" $verb "* ]] || verb=info
  case "${verb:-info}" in
%CASES%
  esac
  if [[ -n "$values" ]]; then
    COMPREPLY=($(compgen -W "$values" -- "$cur"))
  elif [[ "$cur" == -* ]]; then
    ((COMP_CWORD == 1)) && flags="$flags --version"
    COMPREPLY=($(compgen -W "$flags" -- "$cur"))
  elif [[ -n "$words" ]]; then
    COMPREPLY=($(compgen -W "$words" -- "$cur"))
  fi
}
complete -o default -o bashdefault -F _tensorbytes %NAMES%
"""


# ---- zsh ------------------------------------------------------------------------------


def zsh() -> str:
    verbs = "\n".join(f"    {_quoted(f'{verb}:{text}')}" for verb, text in _verbs())
    cases = []
    for verb, _ in _verbs():
        specs = [spec for option in options(verb) for spec in _zsh_specs(option)]
        chosen = words(verb)
        specs.append(_quoted(f"*:what:({' '.join(chosen)})" if chosen else "*:file:_files"))
        cases.append(f"    {verb})\n      _arguments -s -S \\\n        " + " \\\n        ".join(specs) + " ;;")
    return _ZSH.replace("%VERBS%", verbs).replace("%CASES%", "\n".join(cases)).replace("%NAMES%", " ".join(NAMES))


def _zsh_specs(option: CommandOption) -> Iterator[str]:
    text = "".join(f"\\{letter}" if letter in "[]:\\" else letter for letter in option.words)
    for flag in option.flags:
        value = ""
        if option.takes_value:
            value = f":value:({' '.join(map(_plain, option.values))})" if option.values else ":value:_files"
        yield _quoted(f"*{flag}[{text}]{value}")


def _plain(word: str) -> str:
    """A word that a shell takes as it is."""
    return "".join(letter if letter.isalnum() or letter in "-_.+:" else f"\\{letter}" for letter in word)


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


_ZSH = """#compdef %NAMES%
# zsh completion of tensorbytes
_tensorbytes() {
  local -a verbs
  verbs=(
%VERBS%
  )
  if (( CURRENT == 2 )); then
    if [[ $words[2] != -* ]]; then
      _describe -t commands command verbs
      _files
      return
    fi
    words=($words[1] info $words[2,-1]); (( CURRENT++ ))
  fi
  local verb=$words[2]
  if (( ! ${verbs[(I)$verb:*]} )); then
    verb=info
  else
    shift words; (( CURRENT-- ))
  fi
  case $verb in
%CASES%
  esac
}
if (( $+functions[compdef] )); then
  compdef _tensorbytes %NAMES%
fi
"""


# ---- fish -----------------------------------------------------------------------------


def fish() -> str:
    lines = ["# fish completion of tensorbytes"]
    names = " ".join(verb for verb, _ in _verbs())
    for name in NAMES:
        unused = f"not __fish_seen_subcommand_from {names}"
        lines += [f"complete -c {name} -n '{unused}' -a {verb} -d {_quoted(text)}" for verb, text in _verbs()]
        lines.append(f"complete -c {name} -n '{unused}' -l version -d 'the version'")
        # A file in the place of a command is `tb info`, whose options are offered then, too.
        places = [(verb, f"__fish_seen_subcommand_from {verb}") for verb, _ in _verbs()] + [("info", unused)]
        for verb, place in places:
            here = f"complete -c {name} -n '{place}'"
            if words(verb):
                lines.append(f"{here} -f -a {_quoted(' '.join(words(verb)))}")
            for option in options(verb):
                flags = "".join(
                    f" -l {flag[2:]}" if flag.startswith("--") else f" -s {flag[1:]}" for flag in option.flags
                )
                values = (
                    f" -x -a {_quoted(' '.join(map(_plain, option.values)))}"
                    if option.values
                    else " -r"
                    if option.takes_value
                    else ""
                )
                lines.append(f"{here}{flags}{values} -d {_quoted(option.words)}")
    return "\n".join(lines) + "\n"


SHELLS: dict[str, Callable[[], str]] = {"bash": bash, "zsh": zsh, "fish": fish}
