"""How tensors are to be stored: the options compression= and quantize= of formats made of our messages.

Each may be one value for all tensors or a dict from patterns of names to values, of which the
first that matches counts. compression: "auto", a pipeline (codecs/pipelines.py), or None.
quantize: what quantization.Quantize.of takes, or None.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from tensorbytes.deferred import Deferred
from tensorbytes.errors import UsageError
from tensorbytes.formats import Option, Options, known_options
from tensorbytes.patterns import first_match, goes_by
from tensorbytes.tensor import Strings, Tensor, Value
from tensorbytes.tree import Document

if TYPE_CHECKING:
    from tensorbytes.codecs.choice import Choices
    from tensorbytes.formats._forms import Form
    from tensorbytes.quantization import Quantize

OPTIONS = known_options(
    compression=Option(str | Mapping | None, "`auto`, a codec or a pipeline of them; a dict gives one by name"),
    quantize=Option(object, "floats in fewer bits: a dtype, the largest error, a `Quantize`; a dict by name"),
)
READ_OPTIONS = known_options(
    dequantize=Option(bool, "False gives quantized tensors as the integers that are stored", True)
)
# Pipelines that may be the best for some data; of those that come to the same for some dtype, the first is taken.
# Levels other than the default are for those who ask for them.
PIPELINES: tuple[str | None, ...] = (
    None,
    "auto",
    "zstd",
    "lz4",
    "gzip",
    "zlib",
    "snappy",
    "huffman",
    "shuffle+zstd",
    "shuffle+lz4",
    "shuffle+huffman",
    "split+zstd",
    "split+huffman",
    "delta+shuffle+zstd",
    "delta+shuffle+huffman",
    "pack",
    "delta+pack",
)
# For formats that hold the same messages as the native one in another framing, these two tell enough.
FEW_PIPELINES: tuple[str | None, ...] = (None, "auto")


class Storing:
    """What was asked for, checked early."""

    def __init__(self, compression: Any = None, quantize: Any = None) -> None:
        self._compression = _rules(compression, _pipeline)
        # A Quantize may be written as a dict.
        one = isinstance(quantize, Mapping) and ("dtype" in quantize or "max_error" in quantize)
        self._quantize = _rules({"*": quantize} if one else quantize, _spec)
        self.changes = bool(self._compression or self._quantize)
        self._choices: Choices | None = None

    @classmethod
    def of(cls, options: Options) -> Storing:
        if options.get("compression") is None and options.get("quantize") is None:
            return AS_IS
        return cls(options.get("compression"), options.get("quantize"))

    def check_names(self, document: Document) -> None:
        """Refuse what would go unnoticed: a pattern that fits no tensor, a tensor's own name for what it can't be."""
        names = [leaf.name or "" for leaf in document.leaves] if self.changes else []
        for leaf in document.leaves if self._quantize else ():
            spec = self._quantize.get(leaf.name or "*")
            if leaf.name and spec is not None:
                self._quantization(leaf.name, leaf.value, plain=not leaf.kind)
        for pattern in [*self._compression, *self._quantize]:
            if pattern != "*" and not any(goes_by(name, pattern) for name in names):
                some = ", ".join(map(repr, names[:5])) + (" ..." if len(names) > 5 else "")
                there = f"there are {some}" if any(names) else "the tensor has no name"
                raise UsageError(f"no tensor has a name like {pattern!r}; {there}")

    def asked(self, name: str | None) -> tuple[Any, Any]:
        """What is asked for a tensor of this name, to be compared with what is asked for another."""
        return _match(self._compression, name)[1], id(_match(self._quantize, name)[1])

    def form(self, name: str | None, value: Tensor | Strings) -> Form:
        """The form of a tensor of this name."""
        from tensorbytes.formats import _forms

        spec = self._quantization(name, value) if self._quantize else None
        return _forms.of(value, _match(self._compression, name)[1], spec, name, self._known())

    def part(self, name: str | None, value: Tensor | Strings) -> Form:
        """The same for a part of a ragged or sparse value, whose numbers stay what they are."""
        from tensorbytes.formats import _forms

        return _forms.of(value, _match(self._compression, name)[1], None, name, self._known())

    def _known(self) -> Choices:
        """What "auto" chose so far: it holds for one file, so that what is written depends on nothing else."""
        from tensorbytes.codecs.choice import Choices

        if self._choices is None:
            self._choices = Choices()
        return self._choices

    def _quantization(self, name: str | None, value: Value | Deferred, plain: bool = True) -> Quantize | None:
        """What was asked for this tensor, if it can be had; a tensor that is called by its own name must have it.

        `plain=False`: it is not a tensor at all, but a Python or NumPy value.
        """
        from tensorbytes.quantization import applies

        pattern, spec = _match(self._quantize, name)
        if spec is None or (plain and applies(value, spec)):
            return spec if value.nbytes else None
        if pattern == name:
            kind, dtype, _, _ = value.header
            what = dtype if kind == "tensor" else f"a {kind} value"
            raise UsageError(f"quantize: {name!r} holds {what}, which {spec.dtype or 'a bound'} is not for")
        return None


def _rules(asked: Any, read: Callable[[Any], Any]) -> dict[str, Any]:
    """The values by the patterns of the names that they are for."""
    if asked is None:
        return {}
    rules = asked if isinstance(asked, Mapping) else {"*": asked}
    for pattern in rules:
        if not isinstance(pattern, str):
            raise UsageError(f"expected patterns of tensor names, such as 'layer1/*', got {pattern!r}")
    return {pattern: None if value is None else read(value) for pattern, value in rules.items()}


def _pipeline(asked: Any) -> str:
    from tensorbytes.codecs.pipelines import Pipeline
    from tensorbytes.formats._forms import AUTO

    if not isinstance(asked, str):
        raise UsageError(f"compression={asked!r}", expected="text, such as 'auto', 'zstd' or 'split+huffman'")
    if asked != AUTO:
        Pipeline.parse(asked)
    return asked


def _spec(asked: Any) -> Quantize:
    from tensorbytes.quantization import Quantize

    return Quantize.of(asked)


def _match(rules: Mapping[str, Any], name: str | None) -> tuple[str | None, Any]:
    pattern = first_match(name, rules)
    return (None, None) if pattern is None else (pattern, rules[pattern])


AS_IS = Storing()
