"""What is promised of the code itself: nothing is run on the word of a file, and no connection is opened.

The sources are searched for every way to do so, and a process that reads, writes and converts every format is
watched by Python's own audit events.
"""

import ast
import functools
import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import tensorbytes as tb
from tensorbytes import formats
from tests.support.hostile_formats import NAMED, SHAPED, put

PACKAGE = Path(formats.__file__).parents[1]
SOURCES = sorted(PACKAGE.rglob("*.py"))
parsed = functools.cache(lambda path: list(ast.walk(ast.parse(path.read_text()))))
ROOT = PACKAGE.parents[1]

# Modules that unpickle, run, call foreign code, start processes or talk to the network.
MODULES = {
    "asyncio", "cloudpickle", "code", "codeop", "ctypes", "dill", "ftplib", "http", "imaplib", "joblib", "marshal",
    "multiprocessing", "pickle", "poplib", "pty", "requests", "runpy", "shelve", "smtplib", "socket", "socketserver",
    "ssl", "subprocess", "telnetlib", "urllib", "urllib3", "webbrowser", "xmlrpc", "yaml",
}  # fmt: skip
CALLS = {"eval", "exec", "compile", "__import__", "breakpoint", "input"}
METHODS = {
    "system", "popen", "execv", "execve", "execl", "execlp", "execvp", "spawnl", "spawnv", "posix_spawn", "fork",
    "import_module", "find_class", "load_module", "exec_module", "CDLL", "literal_eval", "create_connection",
}  # fmt: skip
# Where one of these is used all the same, and why that runs nothing that a file says. (file, what): reason
PERMITTED = {
    ("codecs/__init__.py", "import_module"): "a module out of our own table of codecs",
    ("formats/__init__.py", "import_module"): "a module out of our own table of formats",
    ("frameworks/__init__.py", "import_module"): "a module out of our own table; a name from a file must be in it",
    ("lazy.py", "import_module"): "a module out of the tables of our own packages",
    ("plugins.py", "import_module"): "modules that installed packages declare as entry points; no file can name one",
    ("cli/verbs.py", "import_module"): "a module out of our own table of commands, chosen by the command line",
    ("cli/doctor.py", "import_module"): "the compiled kernel, by its full name",
    ("cli/doctor.py", "system"): "platform.system: the name of the operating system",
    ("notebook.py", "import_module"): "the viewer, by its full name",
    ("tensor.py", "import_module"): "what makes Arrow arrays, by its full name",
    ("ops/benching/chart.py", "import_module"): "matplotlib, by its full name",
    ("ops/benching/__init__.py", "system"): "platform.system: the name of the operating system",
    ("testing/case.py", "import_module"): "the suite's own modules; no part of reading",
    ("testing/jax_cases.py", "ctypes"): "the suite makes buffers of its own; no part of reading",
    ("testing/torch_cases.py", "ctypes"): "the suite makes buffers of its own; no part of reading",
    ("savedmodel/export.py", "ctypes"): "one system call of Linux, which swaps two folders in one step",
    ("savedmodel/export.py", "CDLL"): "as above: the C library that is loaded already",
}


def uses(path):
    """What a file uses of the lists above."""
    found = set()
    for node in parsed(path):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names} & MODULES
        elif isinstance(node, ast.ImportFrom) and not node.level:
            found |= {(node.module or "").partition(".")[0]} & MODULES
        elif isinstance(node, ast.Call):
            if isinstance(node.func, ast.Name):
                found |= {node.func.id} & CALLS
            elif isinstance(node.func, ast.Attribute):
                found |= {node.func.attr} & METHODS
            found |= {"allow_pickle" for word in node.keywords if word.arg == "allow_pickle"}
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
            found |= {node.attr} & {"CDLL"}
    return found


def test_no_code_from_data():
    found = {(path.relative_to(PACKAGE).as_posix(), what) for path in SOURCES for what in uses(path)}
    assert found - PERMITTED.keys() == set()
    assert PERMITTED.keys() - found == set(), "permitted, and not used any more"
    assert all(PERMITTED.values())


def test_the_search_finds_what_it_is_for(tmp_path):
    (tmp_path / "x.py").write_text(
        "import pickle, os.path\nfrom urllib.request import urlopen\neval('1')\nimport importlib\n"
        "importlib.import_module(x)\nos.system('x')\nre.compile('x')\nnp.load(x, allow_pickle=True)\n"
    )
    assert uses(tmp_path / "x.py") == {"pickle", "urllib", "eval", "import_module", "system", "allow_pickle"}


def test_attributes_are_set_only_by_names_of_ours():
    """setattr with a name out of a file would let it reach into objects: each use names its own table."""
    found = {}
    for path in SOURCES:
        for node in parsed(path):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "setattr":
                found.setdefault(path.relative_to(PACKAGE).as_posix(), []).append(ast.unparse(node.args[1]))
    assert found == {
        "quantization/blocks.py": ["purpose"],  # two words, in the lines that call it
        "lazy.py": ["name"],  # of our own packages
        "formats/_checkpoint/bundle.py": ["_NUMBERS[number]"],  # a table of four words
        "cli/__init__.py": ["name"],  # stdin, stdout, stderr
        "savedmodel/export.py": ["attribute", "_unique(name, [*held, *dir(root)])"],  # save_model: names of the caller
    }


def test_no_address_is_ever_opened():
    """Addresses stand in messages and help alone; what opens one takes it from the caller (`storage.open_url`)."""
    for path in SOURCES:
        calls = [node for node in parsed(path) if isinstance(node, ast.Call)]
        for call in calls:
            name = ast.unparse(call.func)
            literal = [ast.unparse(word) for word in call.args if isinstance(word, ast.Constant | ast.JoinedStr)]
            if re.search("open|url|get|connect", name):
                assert not any("://" in text and text.strip("'\"") != "://" for text in literal), (path.name, name)
    users = [path.name for path in SOURCES if re.search(r"^\s*(import|from) fsspec", path.read_text(), re.MULTILINE)]
    assert len(users) <= 2, users


# ---- a process that is watched --------------------------------------------------

# Does all there is to do with two sets of files: the first loads what is loaded when it is used; then Python's
# audit events are recorded. The second set is named after modules and holds other values.
CHILD = """
import json, os, sys
import numpy as np
import tensorbytes as tb
first, second, work = sys.argv[1:]
WATCHED = ("exec", "compile", "import", "pickle.find_class", "marshal.loads", "ctypes.", "socket.", "subprocess.",
           "os.system", "os.exec", "os.spawn", "os.posix_spawn", "os.fork", "pty.", "urllib.", "http.", "ftplib.",
           "smtplib.", "webbrowser.", "code.__new__", "function.__new__", "builtins.input")
events, watching = [], False

def hook(name, arguments):
    if watching and (name.startswith(WATCHED) or name == "open"):
        events.append([name, str(arguments[0]) if arguments else ""])

def everything(folder):
    done = 0
    for name in sorted(os.listdir(folder)):
        path = os.path.join(folder, name)
        if ".data-" in name:
            continue
        format = {"index": "checkpoint"}.get(name.rpartition(".")[2])
        found = tb.load(path, format)
        tb.load(path, format, mmap=True)
        tb.inspect(path, format)
        tb.stats(path, format=format)
        with tb.open(path, format=format) as file:
            [entry.load() for entry in file.entries()]
        if format is None:
            tb.loads(open(path, "rb").read())
            tb.diff(path, path)
        for suffix in (".tb", ".npz", ".safetensors", ".pt", ".arrow", ".parquet"):
            try:
                tb.convert(path, os.path.join(work, "out" + suffix), src_format=format)
            except (tb.errors.LossError, tb.errors.UnsupportedError, tb.errors.UsageError):
                pass  # not every format holds everything
        tb.save(found, os.path.join(work, "again.tb"))
        tb.dumps(found)
        done += 1
    return done

everything(first)
sys.addaudithook(hook)
watching = True
done = everything(second)
watching = False
print(json.dumps([done, events]))
"""


@pytest.fixture(scope="module")
def watched(tmp_path_factory):
    """(how many files were read, the audit events while they were)"""
    folders = [tmp_path_factory.mktemp(name) for name in ("first", "second", "work")]
    for folder, names in zip(folders[:2], (["a", "b"], ["os", "antigravity", "subprocess.run", "this"]), strict=True):
        for format, build in NAMED.items():
            if format not in ("delimited",):
                put(build(names), folder, f"named-{format}")
        for format in ("npy", "onnx", "arrowtensor", "tensorproto"):
            put(SHAPED[format]((6,), bytes(range(6))), folder, f"shaped-{format}")
        tb.save(tb.Sparse("coo", (2, 3), (np.array([[0, 1]]),), tb.Tensor("float32", (1,), bytes(4))), folder / "s.tb")
        tb.save({"t": np.array(names), "c": np.zeros(1000)}, folder / "z.tb", compression="zstd")
    command = [sys.executable, "-c", CHILD, *map(str, folders)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=250)
    assert run.returncode == 0, run.stderr[-3000:]
    return folders, *json.loads(run.stdout)


def test_reading_runs_nothing_and_connects_to_nothing(watched):
    _, done, events = watched
    assert done > 12
    assert [event for event in events if event[0] != "open"] == []


def test_reading_opens_no_file_but_those_it_was_given(watched):
    folders, _, events = watched
    opened = {path for name, path in events if name == "open"}
    assert len(opened) > 12
    allowed = (*map(str, folders), "/dev/", "/proc/self/", "/sys/")
    others = {path for path in opened if not path.startswith(allowed) and not path.isdecimal()}
    assert others == set()


def test_the_watch_notices(tmp_path):
    """The same hook sees an unpickled class, an import, a socket and a process."""
    code = CHILD.split("everything(first)")[0] + (
        "sys.addaudithook(hook)\nwatching = True\nimport pickle, socket, subprocess, antigravity\n"
        "pickle.loads(b'cos\\ngetcwd\\n.')\nsocket.socket().close()\nsubprocess.run(['true'])\nwatching = False\n"
        "print(json.dumps(sorted({name for name, _ in events})))"
    )
    environment = {"PATH": "/usr/bin:/bin", "BROWSER": "true"}
    run = subprocess.run([sys.executable, "-c", code, "", "", ""], capture_output=True, text=True, env=environment)
    assert run.returncode == 0, run.stderr
    found = json.loads(run.stdout.splitlines()[-1])
    assert {"import", "exec", "pickle.find_class", "socket.__new__", "subprocess.Popen"} <= set(found)


# ---- dependencies ----------------------------------------------------------------


def test_what_is_installed_with_it_is_little_and_named_with_a_reason():
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    names = {re.split(r"[<>=;\[ ]", line)[0] for line in project["dependencies"]}
    assert names == {"cramjam", "numpy", "rich", "ml_dtypes", "isal"}
    page = (ROOT / "docs" / "safety.md").read_text()
    assert all(f"`{name}`" in page for name in names)


def test_the_audit_takes_what_was_skipped_for_no_success(monkeypatch):
    monkeypatch.syspath_prepend(ROOT)
    from safety import audit

    assert {package.name for package in audit.packages()} >= {"numpy", "cramjam", "rich", "ml-dtypes"}
    skipped = '{"dependencies": [{"name": "x", "skip_reason": "not found"}], "fixes": []}'
    assert audit.verdict(skipped).reason
    sound = '{"dependencies": [{"name": "x", "version": "1", "vulns": []}], "fixes": []}'
    assert audit.verdict(sound) == (["x"], {}, "")
    known = '{"dependencies": [{"name": "x", "version": "1", "vulns": [{"id": "CVE-1"}]}], "fixes": []}'
    assert audit.verdict(known).known == {"x": ["CVE-1"]}
    assert audit.verdict("", "no network").reason == "pip-audit failed: no network"
