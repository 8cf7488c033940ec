"""Errors are data: what they carry, how it is worded, and that nothing of it is lost on the way."""

import ast
import builtins
import copy
import inspect
import operator
import os
import pickle
import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

import tensorbytes as tb
from tensorbytes import cli, errors, formats
from tensorbytes.cli.hints import OPERATIONS, OPTIONS, in_commands
from tensorbytes.cli.verbs import VERBS
from tensorbytes.errors import Hint, Known, TensorbytesError
from tensorbytes.formats.tfrecord.write.encode import Misfit
from tensorbytes.ops.report import Loss
from tensorbytes.quantization import Quantize
from tensorbytes.tensor import InvalidValueError, UnevenRowsError
from tensorbytes.view.sample import TooLargeError

PACKAGE = Path(errors.__file__).parent
HINTS = (Hint("allow", {"meta", "name"}, "to drop them"), Hint("limits.max_bytes", 1 << 20), errors.REPAIR)
PLACE = {"path": "x.tb", "at": 120, "record": 3, "tensor": "w", "expected": "int64", "got": 7.5, "hints": HINTS}
PLAIN = (
    tb.errors.TensorbytesError,
    tb.errors.CorruptError,
    tb.errors.UnsupportedError,
    tb.errors.LimitError,
    tb.errors.SchemaError,
    tb.errors.UsageError,
    tb.errors.InUseError,
    tb.errors.MissingNameError,
    InvalidValueError,
    UnevenRowsError,
    TooLargeError,
)
EVERY = [
    *(kind("a fault", **PLACE) for kind in PLAIN),
    tb.errors.LossError("a fault", feature="meta", losses=[Loss("w", "meta", "it")], **PLACE),
    tb.errors.MissingDependencyError("format 'arrow'", "arrow"),
    tb.errors.StateDictError("a fault", missing_keys=["a"], unexpected_keys=["b"], **PLACE),
    tb.errors.TemplateError("a fault", missing=["w"], left_over=["b"], different=[("x", "int", "str")], **PLACE),
    Misfit("int64", "float32", (2, 3), missing=True, hints=HINTS),
]


def state(error):
    return {name: getattr(error, name) for name in TensorbytesError._ATTRIBUTES} | vars(error)


def named(error):
    return type(error).__name__


# ---- what they carry ---------------------------------------------------------------


@pytest.mark.parametrize("error", EVERY, ids=named)
@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, lambda e: pickle.loads(pickle.dumps(e))])
def test_nothing_is_lost_by_pickling_and_copying(error, duplicate):
    again = duplicate(error)
    assert type(again) is type(error)
    assert again is not error
    assert state(again) == state(error)
    assert str(again) == str(error)
    assert again.args == error.args


def test_every_error_of_the_module_is_in_the_list():
    known = {type(error) for error in EVERY}
    of_module = {kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, Exception)}
    assert {kind for kind in of_module if issubclass(kind, TensorbytesError)} <= known


@pytest.mark.parametrize(
    ("kind", "bases"),
    [
        (tb.errors.CorruptError, [ValueError]),
        (tb.errors.LossError, [ValueError]),
        (tb.errors.UnsupportedError, [TypeError, ValueError]),
        (tb.errors.LimitError, [ValueError]),
        (tb.errors.MissingDependencyError, [ImportError]),
        (tb.errors.MissingNameError, [KeyError]),
        (tb.errors.SchemaError, [ValueError]),
        (tb.errors.StateDictError, [ValueError, RuntimeError]),
        (tb.errors.TemplateError, [ValueError]),
        (tb.errors.UsageError, [TypeError]),
    ],
)
def test_code_that_does_not_know_us_catches_them(kind, bases):
    assert all(issubclass(kind, base) for base in [*bases, tb.errors.TensorbytesError])


@pytest.mark.parametrize("error", EVERY, ids=named)
def test_the_same_error_with_other_attributes(error):
    before = state(error)
    made = error.replaced(what="another", path="y.tb")
    assert type(made) is type(error)
    assert (made.what, made.path, made.args[0]) == ("another", "y.tb", "another")
    assert state(made) == before | {"what": "another", "path": "y.tb"}
    assert state(error) == before, "the first one stays as it was"
    with pytest.raises(TypeError, match="has no attribute 'colour'"):
        error.replaced(colour="red")


def test_offsets_move_with_the_bytes():
    moved = tb.errors.CorruptError("bad", at=7, record=2, hints=HINTS).shifted(100, "x.tb")
    assert (moved.at, moved.path, moved.record, moved.hints) == (107, "x.tb", 2, HINTS)
    assert moved.shifted(1).path == "x.tb"
    assert tb.errors.LimitError("much", at=7).shifted(3).at == 10
    assert tb.errors.LimitError("much").shifted(3).at is None


def test_errors_within_something():
    inner = tb.errors.UsageError("bad", expected=1)
    assert str(inner.within("feature 'x'", tensor="x")) == "feature 'x': bad: expected 1"
    assert str(tb.errors.UsageError(expected=1, got=2).within("feature 'x'")) == "feature 'x': expected 1, got 2"


# ---- how it is worded --------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (tb.errors.UsageError("a fault"), "a fault"),
        (tb.errors.UsageError("mode 'x'", expected="'r' or 'w'"), "mode 'x': expected 'r' or 'w'"),
        (tb.errors.UsageError(expected="bytes", got="int"), "expected bytes, got int"),
        (tb.errors.UsageError("metadata must be text", got="3"), "metadata must be text, got 3"),
        (tb.errors.CorruptError("bad", at=0), "<bytes>: bad (byte 0)"),
        (tb.errors.CorruptError("bad", at=9, path="x.tb"), "x.tb: bad (byte 9)"),
        (tb.errors.LimitError("much", at=9), "much (byte 9)"),
        (tb.errors.SchemaError("bad", path="x", record=4, tensor="w"), "x: bad (record 4, tensor 'w')"),
        (tb.errors.SchemaError("record 4: 'w' is bad", path="x", record=4, tensor="w"), "x: record 4: 'w' is bad"),
        (tb.errors.SchemaError("record 41 is bad", record=4), "record 41 is bad (record 4)"),
        (tb.errors.MissingNameError("there is no tensor 'w'", path="x"), "x: there is no tensor 'w'"),
        (
            tb.errors.CorruptError("bad", at=9, path="x.tb", hints=[errors.REPAIR, Hint(purpose="ask")]),
            "x.tb: bad (byte 9); repair(src, dst) keeps all undamaged records, or ask",
        ),
        (
            tb.errors.LossError("these:\n  one", feature="a", hints=[Hint("allow", {"a"})]),
            "these:\n  one\npass allow={'a'}",
        ),
        (
            tb.errors.MissingDependencyError("format 'arrow'", "arrow"),
            "format 'arrow' needs the optional package pyarrow: pip install 'tensorbytes[arrow]'",
        ),
    ],
)
def test_errors_in_a_line(error, text):
    assert str(error) == text


@pytest.mark.parametrize(
    ("hint", "python", "command"),
    [
        (Hint("allow", {"meta"}, "to drop it"), "pass allow={'meta'} to drop it", "pass --allow meta to drop it"),
        (Hint("allow", {"b", "a"}), "pass allow={'a', 'b'}", "pass --allow a --allow b"),
        (Hint("format", of="save"), "pass format=...", "pass --to FORMAT"),
        (
            Hint("format", choices=("a", "b"), of="load"),
            "pass format=..., one of a, b",
            "pass --from FORMAT, one of a, b",
        ),
        (Hint("format", "tb", "to keep it", of="save"), "pass format='tb' to keep it", "pass --to tb to keep it"),
        (errors.MORE_BYTES, "pass limits=Limits(max_bytes=...) to allow it", "set TENSORBYTES_MAX_BYTES=N to allow it"),
        (Hint("objects", "skip", "x", of="load"), "pass objects='skip' x", "pass --read-option objects=skip x"),
        (Hint("extended", True, of="save"), "pass extended=True", "pass --option extended=true"),
        (Hint("replace", True, of="repair"), "pass replace=True", "pass --in-place"),
        (Hint("on_corrupt", "skip", of="open_records"), "pass on_corrupt='skip'", ""),
        (
            errors.REPAIR,
            "repair(src, dst) keeps all undamaged records",
            "tb repair SRC DST keeps all undamaged records",
        ),
        (Hint(operation="open", arguments=("path",), purpose="reads it"), "tb.open(path) reads it", ""),
        (
            Hint(operation="inspect", arguments=(Known("my file"),), purpose="lists them"),
            "inspect('my file') lists them",
            "tb info 'my file' lists them",
        ),
        (Hint(purpose="unpack it first"), "unpack it first", "unpack it first"),
        (Hint("theirs", 3), "pass theirs=3", "pass theirs=3"),
    ],
)
def test_hints_in_python_and_in_commands(hint, python, command):
    assert str(hint) == python
    assert in_commands(hint) == command


def test_commands_leave_out_what_they_can_not_do():
    error = tb.errors.CorruptError("bad", at=1, path="x", hints=[Hint("on_corrupt", "skip", of="open_records")])
    assert cli.error_text(error) == "x: bad (byte 1)"
    error = tb.errors.CorruptError("bad", at=1, path="x", hints=[*error.hints, errors.REPAIR])
    assert cli.error_text(error) == "x: bad (byte 1); tb repair SRC DST keeps all undamaged records"


# ---- every hint of the sources -----------------------------------------------------


def _constant(node):
    return ast.literal_eval(node) if isinstance(node, ast.Constant) else None


def hints_of_the_library():
    """(place, option, of, operation, the names of arguments) of each Hint(...) in the sources."""
    names = [field.name for field in fields(Hint)]
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Hint":
                given = dict(zip(names, node.args, strict=False)) | {word.arg: word.value for word in node.keywords}
                words = {name: _constant(given[name]) for name in ("option", "of", "operation") if name in given}
                place = f"{path.relative_to(PACKAGE)}:{node.lineno}"
                assert None not in words.values(), f"{place}: an option or an operation that only running it tells"
                arguments = [_constant(item) for item in getattr(given.get("arguments"), "elts", [])]
                yield place, words.get("option", ""), words.get("of", ""), words.get("operation", ""), arguments


LIBRARY = list(hints_of_the_library())
FLAGS = {flag for verb in VERBS for action in cli.parser(verb)._actions for flag in action.option_strings}
CALLS = {
    "records.parse_examples": tb.records.parse_examples,
    "records.read_events": tb.records.read_events,
    "Feature": tb.records.Feature,
    "Quantize": Quantize,
    "RecordWriter": tb.RecordWriter,
    "torch.load_module": tb.torch.load_module,
}


def test_the_sources_give_hints():
    assert len(LIBRARY) > 100
    assert {option for _, option, *_ in LIBRARY} >= {"allow", "format", "names", "limits.max_bytes"}


@pytest.mark.parametrize("option", sorted({(option, of) for _, option, of, *_ in LIBRARY if option}))
def test_every_option_exists(option):
    name, of = option
    assert f"{of}.{name}" in OPTIONS or name in OPTIONS, "the command line has no words for it"
    own, _, field = name.partition(".")
    if own == "read_options":
        assert any(field in formats.get(one).read_options for one in formats.BUILTIN)
    elif field:
        assert field in tb.errors.Limits.__dataclass_fields__
    for call in [of] if of else ["load"] if field else ["save", "dumps", "convert"]:
        takes = set(inspect.signature(CALLS.get(call) or getattr(tb, call)).parameters)
        if "options" in takes:  # those of the formats
            side = "read_options" if call == "load" else "write_options"
            takes |= {word for chosen in map(formats.get, formats.BUILTIN) for word in getattr(chosen, side)}
        assert own in takes, f"{call}() takes no {own}="


@pytest.mark.parametrize("operation", sorted({(name, *arguments) for *_, name, arguments in LIBRARY if name}, key=str))
def test_every_operation_exists(operation):
    name, *arguments = operation
    assert name in OPERATIONS, "the command line has no words for it"
    parameters = list(inspect.signature(operator.attrgetter(name)(tb)).parameters)
    assert len(arguments) <= len(parameters)


@pytest.mark.parametrize("name", OPTIONS)
def test_what_the_command_line_says_is_there(name):
    row = OPTIONS[name]
    if row is None:
        return
    form, _ = row
    if form.startswith("TENSORBYTES_"):
        variable = form.partition("=")[0]
        code = f"import tensorbytes as tb; print(tb.errors.LIMITS.{name.removeprefix('limits.')})"
        done = subprocess.run(
            [sys.executable, "-c", code], env=os.environ | {variable: "77"}, capture_output=True, text=True
        )
        assert done.stdout == "77\n", done.stderr
    else:
        assert form.split()[0] in FLAGS
    assert any(name in (option, f"{of}.{option}") for _, option, of, *_ in LIBRARY), "no hint names it any more"


@pytest.mark.parametrize("name", OPERATIONS)
def test_commands_that_are_named_exist(name):
    assert OPERATIONS[name] is None or OPERATIONS[name].removeprefix("tb ") in VERBS
    assert any(operation == name for _, _, _, operation, _ in LIBRARY), "no hint names it any more"


def test_no_message_holds_advice_that_a_hint_should_be():
    """`pass x=`, `use 'tb'` and the like are data: no words of a fault give Python's spelling of an option."""
    advice = re.compile(r"\b(pass|with|use|say) (limits|allow|format|names|compression|schema|columns|objects|to)=")
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            name = getattr(getattr(node, "func", None), "id", "")
            if isinstance(node, ast.Call) and name.endswith("Error") and node.args:
                words = ast.unparse(node.args[0])
                assert not advice.search(words), f"{path.name}:{node.lineno}: {words}"


# ---- where they leave --------------------------------------------------------------


def test_errors_are_there_at_once():
    code = (
        "import sys, tensorbytes as tb; assert 'tensorbytes.errors' not in sys.modules; print(tb.errors.Hint.__name__)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "Hint\n", done.stderr


def test_a_missing_name(tmp_path):
    path = tmp_path / "x.tb"
    tb.save({"weight": np.ones(2), "bias": np.ones(2)}, path)
    with tb.open(path) as file, pytest.raises(KeyError) as caught:
        file["wieght"]
    error = caught.value
    assert isinstance(error, tb.errors.MissingNameError)
    assert (error.path, error.tensor) == (str(path), "wieght")
    assert str(error) == f"{path}: there is no tensor 'wieght'; it has 'weight', 'bias'; did you mean 'weight'?"
    with pytest.raises(tb.errors.MissingNameError):
        tb.load(path, names=["no"])


def test_limits_tell_where(tmp_path):
    path = tmp_path / "zeros.pb"
    path.write_bytes(bytes.fromhex("0801 1206 1204 08808040 2a04 0000803f"))
    with pytest.raises(tb.errors.LimitError) as caught:
        tb.load(path, "tensorproto", limits=tb.errors.Limits(max_bytes=100))
    error = caught.value
    assert error.path == str(path)
    assert isinstance(error.at, int)
    assert error.hints == (errors.MORE_BYTES,)
    assert f"(byte {error.at}); pass limits=Limits(max_bytes=...)" in str(error)
    assert "byte" not in error.what.partition("bytes")[2]


def test_what_a_file_holds_is_a_value(tmp_path):
    path = tmp_path / "objects.npy"
    np.save(path, np.array([{}, ()], object), allow_pickle=True)
    with pytest.raises(ValueError, match="nothing is unpickled here"):
        tb.load(path)


def test_no_built_in_hides_what_an_operation_is():
    for _, _, _, operation, _ in LIBRARY:
        if operation and hasattr(builtins, operation):
            assert str(Hint(operation=operation)).startswith("tb.")
