"""Structure is tested, not remembered: imports point one way, tables list every module."""

import ast
import re
from pathlib import Path

import pytest

from tensorbytes import formats, frameworks

PACKAGE = Path(formats.__file__).parents[1]
# A module imports only from lines above its own; modules of one line may share.
LAYERS = [
    ["errors", "lazy", "typing", "notebook"],
    ["dtypes"],
    ["tensor"],
    ["deferred"],
    ["tree"],
    ["_wire"],
    ["threads", "hidden"],
    ["storage"],
    ["codecs", "quantization"],
    ["frameworks", "formats"],  # never each other
    ["shortcut", "foreign"],
    ["opening"],
    ["output", "loader"],
    ["reader", "writer", "records"],
    ["api"],
    ["tools", "savedmodel"],
    ["viewer"],
    ["__init__"],
    ["cli"],
    ["__main__"],
    ["testing"],
]
RANK = {name: rank for rank, names in enumerate(LAYERS) for name in names}
# Within records/, the same between its folders.
RECORDS = ["files", "schema", "example", "read", "write", "summaries", "events", "__init__"]
SOURCES = sorted(PACKAGE.rglob("*.py"))


def layer(path: Path) -> str:
    top = path.relative_to(PACKAGE).parts[0]
    return top.removesuffix(".py")


def imported(path: Path) -> set[str]:
    """The layers that a file imports, wherever in the file it does so."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "tensorbytes":
            parts = node.module.split(".")
            found |= {parts[1]} if len(parts) > 1 else {alias.name for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {
                ([*alias.name.split("."), "__init__"])[1]
                for alias in node.names
                if alias.name.startswith("tensorbytes")
            }
    return {name if name in RANK else "__init__" for name in found}


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_only_point_upwards(path):
    own = layer(path)
    assert own in RANK, f"{own} is in no layer: add it to LAYERS and to the design"
    for other in imported(path) - {own}:
        assert RANK[other] < RANK[own], f"{own} imports {other}, which stands beside or below it"


@pytest.mark.parametrize("path", sorted((PACKAGE / "records").rglob("*.py")), ids=lambda path: path.name)
def test_the_folders_of_records_too(path):
    own = RECORDS.index(path.relative_to(PACKAGE / "records").parts[0].removesuffix(".py"))
    for other in re.findall(r"from tensorbytes\.records\.(\w+)", path.read_text()):
        assert RECORDS.index(other) <= own, f"{RECORDS[own]} imports {other}, which stands below it"


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_no_file_outgrows_a_reader(path):
    assert len(path.read_text().splitlines()) <= 420


@pytest.mark.parametrize(("package", "table"), [(formats, "formats"), (frameworks, "frameworks")])
def test_every_module_is_in_the_table(package, table):
    modules = {path.stem for path in Path(package.__file__).parent.glob("[!_]*.py")}
    listed = (
        {module.rpartition(".")[2] for module, _ in formats.BUILTIN.values()}
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
