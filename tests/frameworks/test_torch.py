"""PyTorch: the few steps that usual tensors take give what the general way gives, and leave the others to it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tensorbytes as tb
from tensorbytes.frameworks import torch as adapter
from tensorbytes.tensor import Tensor, identical

torch = pytest.importorskip("torch")

DTYPES = sorted(adapter._BY_NAME)


def filled(dtype, shape, seed=0):
    """A tensor of any bits."""
    count = int(np.prod(shape))
    bits = np.random.default_rng(seed).integers(0, 256, (count + 1) * dtype.itemsize, np.uint8)
    return torch.from_numpy(bits).view(dtype)[:count].reshape(shape)


def by_general_way(x):
    return adapter.with_origin(adapter._by_layout(x.detach()), adapter._describe(x))


@pytest.mark.parametrize("name", DTYPES)
@pytest.mark.parametrize("shape", [(), (1,), (0,), (2, 0), (3, 5), (2, 1, 4)])
def test_few_steps_give_the_value_of_the_general_way(name, shape):
    for kind in (torch.Tensor, torch.nn.Buffer):
        x = filled(adapter._BY_NAME[name], shape).as_subclass(torch.Tensor)
        x = x if kind is torch.Tensor else kind(x)
        found, expected = adapter._as_it_is(x), by_general_way(x)
        assert found is not None
        assert identical(found, expected)
        assert (found.origin, found.meta, found.name) == (expected.origin, {}, None)
        Tensor(found.dtype, found.shape, found.data)  # its parts fit


@given(st.data())
def test_views_of_any_kind_come_back(data):
    dtype = adapter._BY_NAME[data.draw(st.sampled_from(DTYPES))]
    x = filled(dtype, (4, 6, 4), data.draw(st.integers(0, 9)))
    for _ in range(data.draw(st.integers(0, 3))):
        axis = data.draw(st.integers(0, x.dim() - 1)) if x.dim() else 0
        change = data.draw(st.sampled_from(["cut", "step", "turn", "pick", "conjugate", "negate", "expand"]))
        if change == "cut" and x.dim():
            start = data.draw(st.integers(0, x.shape[axis]))
            x = x.narrow(axis, start, data.draw(st.integers(0, x.shape[axis] - start)))
        elif change == "step" and x.dim():
            x = x[(slice(None),) * axis + (slice(None, None, 2),)]
        elif change == "turn":
            x = x.permute(*reversed(range(x.dim())))
        elif change == "pick" and x.dim() and x.shape[axis]:
            x = x.select(axis, 0)
        elif change == "conjugate" and x.dtype in (torch.complex64, torch.complex128):
            x = x.conj()
        elif change == "negate" and x.dtype in (torch.float32, torch.complex64):
            x = torch._neg_view(x)
        elif change == "expand":
            x = x.unsqueeze(0).expand(2, *x.shape)
    value = adapter.to_value(x)
    assert identical(value, by_general_way(x))
    back = adapter.from_value(value)
    assert back.dtype == x.dtype
    assert back.shape == x.shape
    assert identical(adapter.to_value(back), value)


def test_what_is_made_of_writable_memory_shares_it_and_of_other_memory_does_not():
    data = bytearray(tb.dumps({"a": torch.arange(6.0), "b": torch.arange(3)}, "safetensors"))
    shared, own = tb.loads(data, to="torch"), tb.loads(bytes(data), to="torch")
    shared["a"][0] = 7
    assert tb.loads(data, to="torch")["a"][0] == 7
    assert own["a"][0] == 0
    own["a"][0] = 9  # it may be changed, too


@pytest.mark.parametrize("offset", range(9))
def test_memory_that_is_not_aligned_is_copied(offset):
    room = np.zeros(offset + 24, np.uint8)
    room[offset:] = np.arange(3.0).view(np.uint8)
    back = adapter.from_value(Tensor("float64", (3,), room[offset:]))
    assert back.tolist() == [0, 1, 2]
    assert back.data_ptr() % 8 == 0


def test_zeros_without_memory():
    assert tb.loads(tb.dumps(torch._efficientzerotensor(3, dtype=torch.float64)), to="torch").tolist() == [0, 0, 0]


def test_a_storage_that_was_freed_is_refused():
    x = torch.ones(5)
    x.untyped_storage().resize_(8)
    with pytest.raises(tb.errors.UnsupportedError, match="was freed"):
        tb.dumps(x)


@pytest.mark.parametrize("transform", ["functionalize", "vmap", "grad"])
def test_a_tensor_inside_of_a_transform_is_refused(transform):
    def attempt(x):
        for part in (x, x.to(torch.bfloat16), x.unsqueeze(0).expand(2, *x.shape)):
            with pytest.raises(tb.errors.UnsupportedError, match="does not give the values"):
                tb.dumps({"x": part})
        return x.sum()

    getattr(torch.func, transform)(attempt)(torch.ones(3, 2) if transform == "vmap" else torch.ones(3))
    with pytest.raises(tb.errors.UnsupportedError, match="does not give the values"):
        tb.dumps(torch._to_functional_tensor(torch.ones(2)))


@pytest.mark.filterwarnings("ignore::UserWarning")  # quantized dtypes are deprecated
def test_what_is_loaded_is_on_the_processor_whatever_torch_makes_by_default():
    x = torch.arange(6.0).reshape(2, 3)
    channels = torch.quantize_per_channel(x, torch.tensor([0.1, 0.2]), torch.tensor([0, 1]), 0, torch.qint8)
    given = [x, x[:0], x.bool(), x.to_sparse(), x.to_sparse_csr(), channels, torch._efficientzerotensor(3)]
    with torch.device("meta"):
        data = [tb.dumps(one) for one in given]
        back = [tb.loads(one, to="torch") for one in data]
    for one, other in zip(given, back, strict=True):
        assert other.device.type == "cpu"
        assert identical(adapter.to_value(one), adapter.to_value(other))


# ---- messages of plain tensors, by one call of the kernel -----------------------------------


def by_general_writer(obj):
    """What dumps gives where nothing takes the short way."""
    return b"".join(tb.buffers(obj))


@pytest.mark.parametrize("name", [*DTYPES, "bool"])
def test_the_short_way_gives_the_bytes_of_the_general_one(name):
    dtype = torch.bool if name == "bool" else adapter._BY_NAME[name]
    tensors = [
        filled(dtype, shape) if name != "bool" else torch.ones(shape, dtype=dtype) for shape in [(), (3, 5), (0, 2)]
    ]
    for obj in (*tensors, tensors, tuple(tensors), dict(zip("abc", tensors, strict=True)), {"x": tensors[1]}):
        raw = tb.dumps(obj)
        assert raw == by_general_writer(obj)
        back = tb.loads(raw, to="torch")
        assert tb.dumps(back) == raw
        assert type(back) is type(obj)


EXOTIC = {
    "requires grad": lambda x: x.requires_grad_(),
    "no leaf": lambda x: x.requires_grad_() * 2,
    "a Parameter": torch.nn.Parameter,
    "a Buffer": torch.nn.Buffer,
    "transposed": lambda x: x.T,
    "strided": lambda x: x[::2],
    "a storage offset": lambda x: x[1:],
    "expanded": lambda x: x[:1].expand(3, 4),
    "conjugated": lambda x: x.to(torch.complex64).conj(),
    "negated": lambda x: x.to(torch.complex64).conj().imag,
    "zeros without memory": lambda x: torch._efficientzerotensor((3, 4)),
    "sparse": lambda x: x.to_sparse(),
    "quantized": lambda x: torch.quantize_per_tensor(x, 0.5, 1, torch.qint8),
    "nested": lambda x: torch.nested.nested_tensor([x, x]),
    "without its gradient mode": lambda x: torch.inference_mode()(lambda: x * 1)(),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", EXOTIC)
def test_tensors_that_are_more_than_their_memory_are_stored_as_by_the_general_way(kind):
    x = EXOTIC[kind](torch.arange(12.0).reshape(3, 4))
    with torch.no_grad():  # in which NumPy gets what wants a gradient
        for obj in (x, {"a": x, "b": torch.ones(2)}, [x]):
            raw = tb.dumps(obj)
            assert raw == by_general_writer(obj)
            back = tb.loads(raw, to="torch")
            assert tb.dumps(back) == raw


@pytest.mark.parametrize("kind", ["subclass", "meta", "vmap", "functional", "freed", "fake"])
def test_tensors_without_values_of_their_own_are_refused(kind):
    x = torch.arange(4.0)
    if kind == "subclass":
        x = x.as_subclass(type("Sub", (torch.Tensor,), {}))
    elif kind == "meta":
        x = x.to("meta")
    elif kind == "functional":
        x = torch._to_functional_tensor(x)
    elif kind == "freed":
        x.untyped_storage().resize_(0)
    elif kind == "fake":
        from torch._subclasses.fake_tensor import FakeTensorMode

        x = FakeTensorMode().from_tensor(x)
    tb.dumps(torch.ones(1))
    for wrap in (lambda x: x, lambda x: {"a": x}):
        call, given = tb.dumps, wrap(x)
        if kind == "vmap":
            call, given = torch.vmap(lambda x, wrap=wrap: tb.dumps(wrap(x))), torch.ones(2, 3)
        with pytest.raises(tb.errors.UnsupportedError):
            call(given)


def test_tied_tensors_stay_tied_in_messages():
    x = torch.arange(6.0)
    for obj in ({"a": x, "b": x}, {"a": x, "b": x.view(6)}, {"a": x, "b": x.view(2, 3)}, [x, x[:3]]):
        raw = tb.dumps(obj)
        assert raw == by_general_writer(obj)
        back = tb.loads(raw, to="torch")
        one, two = back.values() if isinstance(back, dict) else back
        assert (one.data_ptr() == two.data_ptr()) == (one.shape == two.shape)
    y = torch.zeros(0)
    assert tb.dumps({"a": y, "b": y}) == by_general_writer({"a": y, "b": y})


def test_tensors_of_a_message_have_memory_of_their_own():
    raw = tb.dumps({"a": torch.zeros(3), "b": torch.zeros(3)})
    one, two = tb.loads(raw, to="torch"), tb.loads(raw, to="torch")
    one["a"] += 1
    assert one["b"].tolist() == two["a"].tolist() == [0, 0, 0]
    assert tb.loads(raw)["a"].tolist() == [0, 0, 0]
