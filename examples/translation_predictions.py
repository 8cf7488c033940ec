"""Store a translation model's predictions, reload them in every installed framework, verify.

Each prediction has token ids of its own length, a text, scores, and an attention map whose
shape differs from sentence to sentence: what tf.io, np.save and safetensors each give up on.
"""

from __future__ import annotations

import importlib.util
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # TensorFlow's start-up notes would drown the output

import ml_dtypes
import numpy as np

import tensorbytes as tb

COUNT, HEADS, VOCABULARY = 500, 8, 32_000
WORDS = ["der", "die", "das", "Haus", "Katze", "läuft", "schläft", "über", "schöne", "Brücke", "nach", "Köln", "heute"]


def predict(rng: np.random.Generator) -> dict[str, Any]:
    """What a model would give for one sentence; made up, but of real shapes and types."""
    source, target = (int(n) for n in rng.integers(4, 40, 2))
    attention = rng.random((HEADS, target, source), np.float32)
    return {
        "text": " ".join(rng.choice(WORDS, target).tolist()),
        "ids": rng.integers(0, VOCABULARY, target, dtype=np.int32),
        "scores": np.log(rng.random(target, np.float32)),
        "attention": (attention / attention.sum(-1, keepdims=True)).astype(ml_dtypes.bfloat16),
        "beam": int(rng.integers(1, 5)),
    }


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    start = time.perf_counter()
    return work(), time.perf_counter() - start


def main() -> None:
    rng = np.random.default_rng(7)
    predictions = [predict(rng) for _ in range(COUNT)]
    raw = sum(np.asarray(x).nbytes for p in predictions for x in (p["ids"], p["scores"], p["attention"]))
    kernel = "compiled kernel" if tb.ACCELERATED else "pure Python (no C compiler was found at install time)"
    print(f"tensorbytes {tb.__version__}, {kernel}\n")
    print(f"{COUNT} predictions, {raw / 1e6:.1f} MB of numbers. The first one:")
    for name, value in predictions[0].items():
        text = repr(value)
        if isinstance(value, np.ndarray):
            text = f"{value.dtype} {list(value.shape)}"
        print(f"    {name:<10} {text if len(text) < 60 else text[:56] + ' ...'}")

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "predictions.tb"
        store(predictions, path, raw)
        reload_everywhere(predictions, path)
        look_inside(path)
        damage(path)


def store(predictions: list[dict[str, Any]], path: Path, raw: int) -> None:
    def write() -> None:
        with tb.open(path, "w") as f:
            for prediction in predictions:
                f.write(prediction)

    _, seconds = timed(write)
    size = path.stat().st_size
    print(f"\nWritten one by one to {path.name}: {size / 1e6:.1f} MB in {seconds * 1e3:.0f} ms")
    print(f"    {100 * (size - raw) / size:.1f} % of it is names, shapes, texts and checksums\n")


def reload_everywhere(predictions: list[dict[str, Any]], path: Path) -> None:
    print("Reloaded, and compared bit for bit with what was stored:")
    for framework in ("numpy", "torch", "tensorflow", "jax"):
        if importlib.util.find_spec(framework) is None:
            print(f"    {framework:<11} not installed here: pip install 'tensorbytes[{framework}]'")
            continue
        tb.loads(tb.dumps(np.ones(1, np.float32)), to=framework)  # its import shall not count
        back, seconds = timed(lambda to=framework: tb.load(path, to=to))
        same = tb.equal(back, predictions)
        kind = type(back[0]["attention"])
        verdict = "equal" if same else "DIFFERENT"
        print(f"    {framework:<11} {verdict}  {seconds * 1e3:6.0f} ms   {kind.__module__}.{kind.__name__}")
        if not same:
            raise SystemExit(f"{framework} gave back something else")


def look_inside(path: Path) -> None:
    with tb.open(path) as f:
        prediction = f[COUNT // 2]
    print(f"\nNumber {COUNT // 2} alone: {prediction['text'][:50]!r}, attention {list(prediction['attention'].shape)}")
    single = path.with_name("attention.tb")
    tb.save({"attention": prediction["attention"], "ids": prediction["ids"]}, single, meta={"model": "demo"})
    with tb.open(single) as f:
        print(f"As a file of named tensors: {f.keys()}, a slice of one without reading the rest: "
              f"{f['attention'][0, 0, :3].tolist()}")  # fmt: skip
    plain = tb.dumps(np.arange(3, dtype=np.float32), "tensorproto")
    print(f"The bytes of tf.io.serialize_tensor([0., 1., 2.]), without TensorFlow: {plain.hex(' ')}")


def damage(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    print("\nOne bit of the file flipped, loaded again:")
    try:
        tb.load(path)
    except tb.CorruptError as error:
        print(f"    CorruptError: {str(error).replace(str(path.parent) + os.sep, '')}")
    else:
        raise SystemExit("the damage went unnoticed")


if __name__ == "__main__":
    main()
