"""Every tensor comes back bit for bit, or is refused in words: all frameworks, dtypes, layouts and formats."""

import os
import subprocess
import sys
from fnmatch import fnmatchcase

import numpy as np
import pytest

import tensorbytes as tb
from tensorbytes import api, dtypes, formats, frameworks, testing
from tensorbytes.formats.frame import FORMAT as FRAME
from tensorbytes.tensor import Ragged, Sparse, Strings, Tensor
from tensorbytes.testing import bits
from tests.support.tiers import deep_but

GROUPS = [
    (framework, dtype)
    for framework in frameworks.BUILTIN
    for dtype in dict.fromkeys(case.dtype for case in testing.cases(framework))
]


@pytest.mark.parametrize(("framework", "dtype"), GROUPS)
def test_a_tensor_comes_back_as_it_was(framework, dtype):
    """In our own frame; test_fidelity.py tries the other formats."""
    testing.check_cases(testing.cases(framework, dtype), "tb")


# Text has a class of its own in NumPy alone: see test_text_in_other_frameworks.
PAIRS = [(*group, to) for group in GROUPS for to in frameworks.BUILTIN if to != group[0] and group[1] != "str"]


@pytest.mark.parametrize(
    ("framework", "dtype", "to"),  # one in three before each commit, all before each release
    deep_but(PAIRS[::3], PAIRS),
)
def test_a_tensor_is_the_same_in_another_framework(framework, dtype, to):
    for case in testing.cases(framework, dtype):
        if dtype != "bytes" or case.layout.startswith("objects"):
            testing.check_transfer(case, to)


def test_text_in_other_frameworks():
    data = tb.dumps(np.array(["naïve", "", "日本"]))
    assert tb.loads(data, to="tensorflow").numpy().tolist() == ["naïve".encode(), b"", "日本".encode()]
    for to in ("torch", "jax", "scipy"):  # which have no strings
        assert tb.loads(data, to=to).tolist() == ["naïve", "", "日本"]


# ---- the suite itself -------------------------------------------------------


def test_every_dtype_has_cases_in_every_framework_that_has_it():
    have = {name: {case.dtype for case in testing.cases(name)} for name in frameworks.BUILTIN}
    for row in dtypes.DTYPES.values():
        assert not row.numpy or row.name in have["numpy"]
        assert not row.torch or row.name in have["torch"]
        assert not row.in_tensorflow or row.name in have["tensorflow"]


@pytest.mark.parametrize("name", [name for name in dtypes.DTYPES if name not in testing.suite("jax").NAMES])
def test_dtypes_without_cases_in_jax_are_unknown_to_it(name):
    value = Tensor(name, (2,), bytes(2 * dtypes.get(name).itemsize), origin={"numpy.dtype": "<M8[s]"})
    with testing.setting("jax"), pytest.raises(tb.errors.UnsupportedError):
        tb.loads(tb.dumps(value), to="jax")


@pytest.mark.parametrize("name", [name for name in dtypes.DTYPES if name not in testing.suite("scipy").NAMES])
def test_dtypes_without_cases_in_scipy_are_unknown_to_it(name):
    values = Tensor(name, (1,), bytes(dtypes.get(name).itemsize), origin={"numpy.dtype": "<M8[s]"})
    value = Sparse("coo", (3,), (np.array([[1]]),), values)
    with pytest.raises(tb.errors.UnsupportedError):
        tb.loads(tb.dumps(value), to="scipy")


def test_every_refusal_has_a_case():
    """Each pattern is the first to match some case: some share their reason."""
    cases = [case.id for name in frameworks.BUILTIN for case in testing.cases(name)]
    used = {next((pattern for pattern in testing.REFUSALS if fnmatchcase(case, pattern)), None) for case in cases}
    assert testing.REFUSALS.keys() - used == set()


def test_case_names_are_unique():
    ids = [case.id for name in frameworks.BUILTIN for case in testing.cases(name)]
    assert len(ids) == len(set(ids))


@pytest.mark.parametrize("name", dtypes.DTYPES)
def test_the_values_are_those_that_are_promised(name):
    row, rows = dtypes.get(name), bits.patterns(name)
    if name == "bool":
        assert rows.reshape(-1).tolist() == [1, 0]
    elif row.bits <= 8:
        assert sorted(rows.reshape(-1).tolist()) == list(range(1 << row.bits))
    if name in ("float16", "float32", "float64"):
        x = np.frombuffer(rows.tobytes(), name)
        assert len(np.unique(rows[np.isnan(x)], axis=0)) >= 4, "NaNs with different payloads"
        assert np.isinf(x).sum() >= 2
        assert (np.signbit(x) & (x == 0)).any(), "minus zero"
        with np.errstate(all="ignore"):
            assert ((x != 0) & (abs(x) < np.finfo(name).tiny)).sum() >= 2, "subnormals"


class _Damaged:
    """The native format, with something done to the bytes of the content or to the object."""

    def __init__(self, harm):
        self.harm = harm

    def __getattr__(self, name):
        return getattr(FRAME, name)

    def dumps(self, document, allow, options):
        return FRAME.dumps(self.harm(document), allow, options)


def _each_value(change):
    def harm(document):
        leaf = document.leaves[0]
        return type(document)([type(leaf)(change(leaf.value), leaf.path, leaf.kind)])

    return harm


HARMS = {
    "one bit": lambda v: Tensor(v.dtype, v.shape, bytes(v.data[:-1]) + bytes([v.data[-1] ^ 1]), meta=v.meta),
    "the shape": lambda v: Tensor(v.dtype, (1, *v.shape), v.data, meta=v.meta),
    "the dtype": lambda v: Tensor("int32", v.shape, v.data, meta=v.meta),
    "an error that is not a refusal": lambda v: {}[v],
}


def _any_case(framework):
    """A plain one, but not so plain that small contiguous tensors' short cut takes it past the format."""
    layout = "transposed" if framework in ("numpy", "torch") else "4-d"
    return next(case for case in testing.cases(framework, "float32") if case.layout == layout)


@pytest.mark.parametrize("harm", HARMS)
@pytest.mark.parametrize("framework", ["numpy", "torch", "tensorflow", "jax"])
def test_the_suite_notices_damage(monkeypatch, framework, harm):
    damaged = _Damaged(_each_value(HARMS[harm]))
    monkeypatch.setattr(formats, "get", lambda name: damaged)
    with pytest.raises(testing.ContractError):
        testing.check_case(_any_case(framework), "tb")


def test_the_suite_notices_a_lost_sign_of_zero(monkeypatch):
    def harm(value):
        return Tensor(value.dtype, value.shape, (value.numpy() + 0.0).astype("<f4").tobytes())

    monkeypatch.setattr(formats, "get", lambda name: _Damaged(_each_value(harm)))
    with np.errstate(all="ignore"), pytest.raises(testing.ContractError):
        testing.check_case(_any_case("numpy"), "tb")


def test_the_suite_notices_a_changed_input(monkeypatch):
    kept = api.dumps

    def meddling(x, format):
        made = kept(x, format)
        x[0] = 0
        return made

    monkeypatch.setattr(api, "dumps", meddling)
    case = next(case for case in testing.cases("numpy", "float32") if case.layout == "1-d")
    assert "the caller's tensor was changed" in testing.outcome(case, "tb").detail


def test_the_suite_notices_a_refusal_that_no_table_has(monkeypatch):
    def refuse(value):
        raise tb.errors.LossError("no", feature="dtype")

    monkeypatch.setattr(formats, "get", lambda name: _Damaged(_each_value(refuse)))
    with pytest.raises(testing.ContractError, match="which no table says"):
        testing.check_case(_any_case("numpy"), "tb")


def test_check_format_counts():
    counts = testing.check_format("raw", only=["numpy"])
    assert counts["exact"] > 500
    assert counts["exact"] + counts["refused"] == len(testing.cases("numpy"))


# ---- what the cases can't show ----------------------------------------------


def test_jax_without_64_bits_refuses_rather_than_rounds():
    jax_cases = testing.suite("jax")
    for name in ("int64", "uint64", "float64", "complex128"):
        data = tb.dumps(np.ones(3, name))
        with jax_cases.setting(x64=False), pytest.raises(tb.errors.LossError, match="jax_enable_x64"):
            tb.loads(data, to="jax")
        with jax_cases.setting(x64=True):
            assert tb.loads(data, to="jax").dtype == name


def test_a_jax_array_does_not_change_with_the_buffer_it_was_read_from():
    x = np.arange(100_000, dtype=np.float32)
    buffer = bytearray(tb.dumps(x))
    made = tb.loads(buffer, to="jax")
    buffer[:] = bytes(len(buffer))
    assert np.array_equal(np.asarray(made), x)


SHARDED = """
import jax, numpy as np, tensorbytes as tb
from tensorbytes import testing
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
devices = np.array(jax.devices()).reshape(2, 2)
assert devices.size == 4
mesh = Mesh(devices, ("x", "y"))
jax.config.update("jax_enable_x64", True)
for name in testing.suite("jax").NAMES:
    source = testing.bits.array(name, (8, 4))
    for spec in (P(), P("x"), P(None, "y"), P("x", "y"), P(("x", "y"))):
        x = jax.device_put(source, NamedSharding(mesh, spec))
        before = testing.fingerprint(x, "jax")
        made = tb.loads(tb.dumps(x), to="jax")
        after = testing.fingerprint(made, "jax")
        assert before["dense"] == after["dense"], (name, spec)
        assert testing.fingerprint(x, "jax") == before
        assert tb.loads(tb.dumps(x), to="tensor").origin["device"] == "cpu:0,cpu:1,cpu:2,cpu:3"
        if name in testing.suite("torch").NAMES:
            assert testing.fingerprint(tb.loads(tb.dumps(x), to="torch"), "torch")["dense"] == before["dense"]
last = jax.device_put(source, jax.devices()[3])
assert tb.loads(tb.dumps(last), to="jax", device="original").devices() == {jax.devices()[3]}
assert tb.loads(tb.dumps(last), to="jax").devices() == {jax.devices()[0]}
"""


@pytest.mark.deep
def test_jax_arrays_sharded_over_several_devices():
    env = os.environ | {"XLA_FLAGS": "--xla_force_host_platform_device_count=4", "JAX_PLATFORMS": "cpu"}
    done = subprocess.run([sys.executable, "-c", SHARDED], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", dtypes.DTYPES)
def test_neutral_values_come_back_too(name):
    tensor = Tensor(name, (3, 4), bits.content(name, (3, 4)), "w", {"unit": "m"})
    flat = Tensor(name, (3,), bits.content(name, (3,)))
    splits, at = np.array([0, 1, 3], np.int32), np.array([[2, 1], [0, 0], [1, 1]])
    for value in (
        tensor,
        Ragged(flat, (splits,), name="r", meta={"a": "b"}),
        Ragged(flat, (np.array([0, 2]), splits)),
        Ragged(flat, (splits,), np.array([[1, 1], [1, 2]])),
        Sparse("coo", (3, 4), (at,), flat),
        Sparse("csr", (3, 4), (np.array([0, 1, 1, 3]), np.array([3, 0, 1])), flat),
        Sparse("dia", (4, 4), (np.array([-1]),), Tensor(name, (1, 3), flat.data)),
    ):
        made = tb.loads(tb.dumps(value), to="tensor")
        assert (type(made), made.name, made.meta) == (type(value), value.name, value.meta)
        assert _parts(made) == _parts(value)


def _parts(value):
    if isinstance(value, Tensor):
        return value.dtype, value.shape, bytes(value.data)
    if isinstance(value, Strings):
        return value.shape, value.encoding, value.items()
    index = value.splits if isinstance(value, Ragged) else value.parts
    whole = value.shapes if isinstance(value, Ragged) else value.shape
    whole = whole.tolist() if isinstance(whole, np.ndarray) else whole
    return whole, [(part.dtype.name, part.tolist()) for part in index], _parts(value.values)


def test_columns_and_tables_are_not_taken_for_arrays():
    """Their labels and missing values would be gone: pyarrow makes NaN of null."""
    import pyarrow as pa

    for x in (pa.chunked_array([[1, None, 3]]), pa.table({"a": [1, 2]}), pa.array([1, None])):
        with pytest.raises(tb.errors.UnsupportedError):
            tb.dumps(x)
    assert tb.loads(tb.dumps(pa.array([1, 2, 3]))).tolist() == [1, 2, 3]


@pytest.mark.deep
@pytest.mark.parametrize("framework", ["numpy", "torch"])
def test_more_than_two_gibibytes(framework, tmp_path):
    """Past 2 GiB, where signed 32-bit lengths end, and protobuf with them."""
    count = (1 << 31) // 4 + 1000
    x = np.arange(count, dtype=np.uint32).reshape(-1, 8).view(np.float32)
    given = x if framework == "numpy" else __import__("torch").from_numpy(x)
    tb.save(given, tmp_path / "big.tb", sync=False)
    made = np.asarray(tb.load(tmp_path / "big.tb", to=framework))
    assert made.shape == x.shape
    assert np.array_equal(made.view(np.uint32), x.view(np.uint32))
    with pytest.raises(tb.errors.LossError, match="2 GiB"):
        tb.dumps(given, "tensorproto")
