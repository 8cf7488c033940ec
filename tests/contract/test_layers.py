"""Structure is tested, not remembered: imports point one way, tables list every module."""

import ast
import functools
import re
from pathlib import Path

import pytest

from tensorbytes import formats, frameworks

PACKAGE = Path(formats.__file__).parents[1]
# A module imports only from lines above its own.
LAYERS = [
    ["errors", "damage", "lazy", "typing", "notebook"],
    ["advice", "budget", "patterns", "plugins"],
    ["dtypes", "padding"],
    ["tensor"],
    ["deferred", "metadata"],
    ["tree"],
    ["structs"],
    ["_wire"],
    ["io"],
    ["rows", "tfrecord"],
    ["codecs", "picking", "quantization"],
    ["casting"],
    ["frameworks"],
    ["templates"],
    ["formats"],
    ["foreign"],
    ["loading", "opening"],
    ["reader", "records"],
    ["api"],
    ["ops", "savedmodel", "torch"],
    ["view"],
    ["__init__"],
    ["cli"],
    ["__main__"],
    ["testing"],
]
# What exists once: only these files import the libraries that it is made of.
OWNERS = {
    "concurrent": [],
    "queue": ["io/workers.py"],
    "isal": ["io/streams/engines.py"],
    "cramjam": ["io/streams/engines.py"],
    "zlib": ["io/checksums.py", "io/streams/engines.py"],
    "gzip": [],
    "bz2": [],
    "lzma": [],
    "zipfile": [],
}
# Texts in files outside formats/ that are the name of a format, and why they stand there. Elsewhere, what a format is
# and does is asked of its class.
NAMED = {
    "api.py": {"tb": "the default of signatures, which help() shows, and its short cut"},
    "errors.py": {"tb": "the advice to use the native format; errors know no formats", "arrow": "an extra of pip"},
    "cli/completion.py": {"tb": "the command"},
    "cli/demo.py": {"tensorproto": "shown by name, as a user would ask for it"},
    "cli/doctor.py": {"arrow": "an extra of pip"},
    "ops/profile.py": {"npy": "what bytes in records look like", "tensorproto": "what bytes in records look like"},
    "savedmodel/call.py": {"checkpoint": "the variables of a SavedModel are one"},
    "testing/transfer.py": {"tb": "the default of signatures"},
}
# Within formats/tfrecord/, the same between its folders.
TFRECORD = [
    ["files"],
    ["schema"],
    ["example"],
    ["kinds"],
    ["read"],
    ["write"],
    ["opened"],
    ["created"],
    ["format"],
    ["__init__"],
]


def imported(source):
    """The full names of what a file imports of ours, wherever in the file it does so."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            found |= {f"{module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return sorted(name for name in found if name.split(".")[0] in ("tensorbytes", ""))


def misplaced(path, source, package, layers):
    """What is wrong with the imports of a file; its path starts in the folder of the package."""
    rank = {name: number for number, names in enumerate(layers) for name in names}
    own = path.split("/")[0].removesuffix(".py")
    if own not in rank:
        return [f"{path}: {own} is in no layer: add it to the table and to the design"]
    found = []
    for name in imported(source):
        if name.startswith("."):
            found.append(f"{path} imports {name}: name the package")
        elif f"{name}.".startswith(f"{package}."):
            part = f"{name}.".removeprefix(f"{package}.").split(".")[0]
            other = part if part in rank else "__init__"
            if other != own and rank[other] >= rank[own]:
                found.append(f"{path} imports {name}: {other} stands beside or below {own}")
    return found


def misplaced_in(folder, package, layers):
    paths = sorted(folder.rglob("*.py"))
    assert paths
    return [
        wrong
        for path in paths
        for wrong in misplaced(path.relative_to(folder).as_posix(), path.read_text(), package, layers)
    ]


def test_imports_only_point_upwards():
    assert misplaced_in(PACKAGE, "tensorbytes", LAYERS) == []


def test_the_folders_of_tfrecord_too():
    assert misplaced_in(PACKAGE / "formats/tfrecord", "tensorbytes.formats.tfrecord", TFRECORD) == []


def importers(library):
    """The files that import a library."""
    return [path for path, libraries in imported_libraries().items() if library in libraries]


@functools.cache
def imported_libraries():
    """The libraries that each file imports, wherever in it."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        nodes = list(ast.walk(ast.parse(path.read_text())))
        names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
        names |= {node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module}
        found[path.relative_to(PACKAGE).as_posix()] = {name.partition(".")[0] for name in names}
    return found


@pytest.mark.parametrize("library", OWNERS)
def test_what_exists_once_has_one_owner(library):
    assert importers(library) == OWNERS[library]


def test_only_workers_start_threads():
    starts = re.compile(r"threading\.(Thread|Timer)\(|start_new_thread|from threading import")
    found = [path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py") if starts.search(path.read_text())]
    assert found == ["io/workers.py"]


def named_formats(source):
    """The texts in a file that are the name of a format; parts of longer texts don't count."""
    nodes = list(ast.walk(ast.parse(source)))
    inside = {id(part) for node in nodes if isinstance(node, ast.JoinedStr) for part in node.values}
    names = {*formats.BUILTIN, "tfrecord"}
    texts = [node for node in nodes if isinstance(node, ast.Constant) and id(node) not in inside]
    return {node.value for node in texts} & names


def test_no_format_is_called_by_its_name_outside_of_formats():
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        where = path.relative_to(PACKAGE).as_posix()
        names = set() if where.startswith("formats/") else named_formats(path.read_text())
        if names:
            found[where] = names
    assert found == {where: set(reasons) for where, reasons in NAMED.items()}


def test_the_search_for_names_finds_them():
    source = 'kinds = ("npz", "a npy file", f"npy{x}", f"{x}raw", f"npz{x}")\nif y == "arrow": z = {"parquet": 1}'
    assert named_formats(source) == {"npz", "arrow", "parquet"}


WRONG = {
    "from below": ("dtypes.py", "from tensorbytes.tensor import Tensor", "tensorbytes.tensor.Tensor: tensor stands"),
    "by another name": ("tree.py", "import tensorbytes.cli.verbs as v", "tensorbytes.cli.verbs: cli stands"),
    "in a function": ("codecs/x.py", "def f():\n    from tensorbytes import api", "tensorbytes.api: api stands"),
    "from beside": ("codecs/x.py", "from tensorbytes.quantization import core", "quantization.core: quantiz"),
    "a public name": ("io/x.py", "from tensorbytes import load", "tensorbytes.load: __init__ stands"),
    "the package": ("io/x.py", "import tensorbytes", "tensorbytes: __init__ stands"),
    "without the package": ("formats/x.py", "from ..api import load", "..api.load: name the package"),
    "a module in no layer": ("news.py", "", "news is in no layer"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_the_search_finds_what_it_is_for(case, tmp_path):
    path, source, words = WRONG[case]
    (tmp_path / path).parent.mkdir(exist_ok=True)
    (tmp_path / path).write_text(source)
    (found,) = misplaced_in(tmp_path, "tensorbytes", LAYERS)
    assert found.startswith(path)
    assert words in found


def test_the_search_finds_what_it_is_for_in_a_folder():
    package = "tensorbytes.formats.tfrecord"
    wrong = f"from {package} import example\nimport {package}.read.rows\nimport tensorbytes.tensor"
    assert misplaced("files/x.py", wrong, package, TFRECORD) == [
        f"files/x.py imports {package}.example: example stands beside or below files",
        f"files/x.py imports {package}.read.rows: read stands beside or below files",
    ]


@pytest.mark.parametrize(("package", "table"), [(formats, "formats"), (frameworks, "frameworks")])
def test_every_module_is_in_the_table(package, table):
    folder = Path(package.__file__).parent
    modules = {path.stem for path in folder.glob("[!_]*.py")} | {
        f"{path.parent.name}.format" for path in folder.glob("[!_]*/format.py")
    }
    listed = (
        {row.module.removeprefix("tensorbytes.formats.") for row in formats.BUILTIN.values()}
        if table == "formats"
        else set(frameworks.BUILTIN)
    )
    assert modules == listed


def test_every_format_answers_to_its_name():
    for name in formats.BUILTIN:
        assert formats.get(name).name == name


def test_importing_loads_no_framework():
    import subprocess
    import sys

    code = (
        "import sys, tensorbytes\n"
        "heavy = {'torch', 'tensorflow', 'jax', 'scipy', 'pyarrow', 'fsspec'} & set(sys.modules)\n"
        "print(sorted(heavy))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
