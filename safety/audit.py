"""What is installed with the library, and what is known of it.

    python -m safety.audit [--strict]

Lists every package that `pip install tensorbytes` brings, with the range that is asked for, the version that is
here and its licence; then asks pip-audit, where it is installed, whether any of these versions has a known
vulnerability. Exit status 1: some have. Where the database can't be reached that is said, and is not a success: with
--strict the exit status is 2.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tempfile
from importlib import metadata
from typing import NamedTuple

PROJECT = "tensorbytes"


class Package(NamedTuple):
    name: str
    wanted: str  # the range, as whoever needs it says
    needed_by: str
    version: str
    licence: str


def packages(project: str = PROJECT) -> list[Package]:
    """What is installed with a project, extras left out, and what that needs in turn."""
    found: dict[str, Package] = {}
    waiting = [(line, project) for line in _requirements(project)]
    while waiting:
        line, needed_by = waiting.pop(0)
        match = re.match(r"[\w.-]+", line)
        assert match is not None, line
        name = re.sub(r"[-_.]+", "-", match[0]).lower()
        if name in found:
            continue
        try:
            about = metadata.metadata(name)
        except metadata.PackageNotFoundError:  # for other machines
            continue
        found[name] = Package(name, line[match.end() :].strip() or "any", needed_by, about["Version"], _licence(about))
        waiting += [(more, name) for more in _requirements(name)]
    return list(found.values())


def _requirements(name: str) -> list[str]:
    lines = [line.partition(";") for line in metadata.requires(name) or []]
    return [wanted.strip() for wanted, _, marker in lines if "extra" not in marker]


def _licence(about: metadata.PackageMetadata) -> str:
    named = [line.rpartition("::")[2].strip() for line in about.get_all("Classifier") or [] if "License ::" in line]
    own = about.get_all("License-Expression") or about.get_all("License") or ["unknown"]
    text = own[0] if "License-Expression" in about else ", ".join(named) or own[0]
    return str(text).strip().splitlines()[0][:60]


class Verdict(NamedTuple):
    audited: list[str]
    known: dict[str, list[str]]  # package: the names of its vulnerabilities
    reason: str  # why none could be audited


def audited(found: list[Package]) -> Verdict:
    """What pip-audit says of these versions."""
    command = shutil.which("pip-audit")
    if command is None:
        return Verdict([], {}, "pip-audit is not installed: pip install pip-audit")
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write("".join(f"{package.name}=={package.version}\n" for package in found))
        file.flush()
        options = ["--no-deps", "--disable-pip", "--progress-spinner", "off", "--format", "json", "-r", file.name]
        run = subprocess.run([command, *options], capture_output=True, text=True)
    return verdict(run.stdout, run.stderr)


def verdict(text: str, said: str = "") -> Verdict:
    """What the JSON of pip-audit says. A package that it skipped was not audited, though it calls that a success."""
    try:
        rows = json.loads(text)["dependencies"]
    except (ValueError, LookupError):
        return Verdict([], {}, f"pip-audit failed: {said.strip().splitlines()[-1] if said.strip() else 'no output'}")
    done = [row["name"] for row in rows if "skip_reason" not in row]
    known = {row["name"]: [fault["id"] for fault in row["vulns"]] for row in rows if row.get("vulns")}
    return Verdict(done, known, "" if done else "its database of known vulnerabilities can't be reached from here")


def main(arguments: list[str]) -> int:
    found = packages()
    print(f"{'package':<16} {'version':<12} {'wanted':<12} {'needed by':<16} licence")
    for package in found:
        print(
            f"{package.name:<16} {package.version:<12} {package.wanted:<12} {package.needed_by:<16} {package.licence}"
        )
    result = audited(found)
    for name, faults in result.known.items():
        print(f"{name}: {', '.join(faults)}")
    if result.known:
        return 1
    missing = sorted({package.name for package in found} - set(result.audited))
    if missing:
        print(f"not audited: {', '.join(missing)}; {result.reason or 'pip-audit left them out'}")
        return 2 if "--strict" in arguments else 0
    print(f"no known vulnerability in {len(found)} packages")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
