"""Addresses such as file::name[0:4, :]: what they mean, that they come back, and what is refused where."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensorbytes.errors import UsageError
from tensorbytes.ops.addressing import Address, parse_address


@pytest.mark.parametrize(
    ("text", "path", "name", "index", "number"),
    [
        ("a.tb", "a.tb", None, None, None),
        ("a.tb::w", "a.tb", "w", None, None),
        ("a.tb::w[0:4, :]", "a.tb", "w", (slice(0, 4), slice(None)), None),
        ("a.tb::w [ -1 ,...,::-2,]", "a.tb", "w", (-1, ..., slice(None, None, -2)), None),
        ("a.npy::[0:4]", "a.npy", None, (slice(0, 4),), None),
        ("a.tfrecord::#3", "a.tfrecord", None, None, 3),
        ("a.tfrecord::#-1[2]", "a.tfrecord", None, (2,), -1),
        ('a.tb::"a[0]"[1]', "a.tb", "a[0]", (1,), None),
        ('a.tb::"x::y"', "a.tb", "x::y", None, None),
        ('a.tb::"x::"', "a.tb", "x::", None, None),
        ('a.tb::""[0]', "a.tb", "", (0,), None),
        (r'a.tb::"say \"\\\""', "a.tb", 'say "\\"', None, None),
        ('a.tb::"#3"', "a.tb", "#3", None, None),
        ("a.tb::dense/kernel:0", "a.tb", "dense/kernel:0", None, None),
        ("a::b::c", "a::b", "c", None, None),
        ("a::b::", "a::b", None, None, None),
        (r"C:\data\a.tb::w[1]", r"C:\data\a.tb", "w", (1,), None),
        ("s3://bucket/a.tb", "s3://bucket/a.tb", None, None, None),
        ("s3://bucket/a.tb::w", "s3://bucket/a.tb", "w", None, None),
        ("http://[::1]:80/a.tb", "http://[::1]:80/a.tb", None, None, None),
        ("http://[::1]:80/a.tb::w[::2]", "http://[::1]:80/a.tb", "w", (slice(None, None, 2),), None),
        ("zip://a.tb::s3://b/c.zip", "zip://a.tb::s3://b/c.zip", None, None, None),
        ("zip://a.tb::s3://b/c.zip::w", "zip://a.tb::s3://b/c.zip", "w", None, None),
        ("shard[0-9]", "shard[0-9]", None, None, None),
        ("shard[0-9].npz::w", "shard[0-9].npz", "w", None, None),
        ("-::w", "-", "w", None, None),
    ],
)
def test_meaning(text, path, name, index, number):
    found = parse_address(text)
    assert found == Address(path, name, index, number)
    assert parse_address(str(found)) == found


def test_the_index_is_numpys():
    x = np.arange(60).reshape(3, 4, 5)
    np.testing.assert_array_equal(x[parse_address("x::[::-1, 1:3, ...]").index], x[::-1, 1:3, ...])
    np.testing.assert_array_equal(x[parse_address("x::[-1, ..., 4:0:-2]").index], x[-1, ..., 4:0:-2])


@pytest.mark.parametrize(
    ("text", "place", "expected"),
    [
        ("f::w[0][1]", 5, "one in quotes"),
        ("f::w[a]", 6, "an integer, a slice or ..."),
        ("f::w[]", 6, "an integer"),
        ("f::w[0 1]", 8, "a comma or ]"),
        ("f::w[0]]", 8, "the end"),
        ("f::w[0", 7, "a ] that ends"),
        ("f::w[1:2:0]", 10, "other than 0"),
        ("f::w[1:2:3:4]", 11, "a comma or ]"),
        ("f::w[..., ...]", 11, "one ellipsis"),
        ("f::w[__import__('os')]", 6, "an integer"),
        ("f::w[" + "9" * 5000 + "]", 24, "a comma"),
        ("f::w[None]", 6, "an integer"),
        ("f::w[True]", 6, "an integer"),
        ("f::w[\u0663]", 6, "an integer"),  # a digit, but not one of ours
        ("f::#x", 5, "number of a row"),
        ("f::#", 5, "number of a row"),
        ('f::"w', 6, "ends the name"),
        ('f::"w"x', 7, "an index"),
        ('f::w"', 5, "quotes"),
        ("::w", 1, "a file before"),
    ],
)
def test_refused_with_the_place(text, place, expected):
    with pytest.raises(UsageError, match=expected) as error:
        parse_address(text)
    assert f"character {place}:" in str(error.value)


def test_a_file_of_that_name_wins(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert parse_address("a::w[0]") == Address("a", "w", (0,))
    (tmp_path / "a::w[0]").write_bytes(b"")
    assert parse_address("a::w[0]") == Address("a::w[0]")
    assert parse_address(tmp_path / "x::y") == Address(str(tmp_path / "x::y"))
    assert parse_address("a::w[0]::v") == Address("a::w[0]", "v")


# Letters that mean something here, and some that don't.
_text = st.text(st.sampled_from('a:"[]#\\/ 0,.-\n\u00e9'), max_size=12) | st.text(max_size=8)
_whole = st.integers(-(10**17), 10**17)
_end = st.none() | _whole
_step = _whole | st.builds(slice, _end, _end, st.none() | _whole.filter(bool))


@st.composite
def _indices(draw):
    steps = draw(st.lists(_step, min_size=1, max_size=4))
    if draw(st.booleans()):
        steps.insert(draw(st.integers(0, len(steps))), ...)
    return tuple(steps)


@given(
    _text.filter(bool),
    st.one_of(st.tuples(st.none() | _text, st.none()), st.tuples(st.none(), _whole)),
    st.none() | _indices(),
)
def test_round_trip(path, what, index):
    address = Address(path, what[0], index, what[1])
    assert parse_address(str(address)) == address


@given(_text)
def test_any_text_is_an_address_or_refused(text):
    try:
        found = parse_address(text)
    except UsageError:
        return
    assert parse_address(str(found)) == found
