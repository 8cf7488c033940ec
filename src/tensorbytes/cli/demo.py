"""tb demo: store a translation model's predictions, reload them in every installed framework, compare.

Each prediction has token ids of its own length, a text, scores, and an attention map whose shape differs from
sentence to sentence: what tf.io, np.save and safetensors each give up on.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from typing import Any

from tensorbytes.cli.interrupts import temporary_folder
from tensorbytes.cli.output import Cell, Output, size_text
from tensorbytes.cli.reading import whole_number
from tensorbytes.cli.writing import check_free, force_argument

EXAMPLES = """examples:
  tb demo                         in every framework that is installed
  tb demo --to numpy              in NumPy alone, which is quick
  tb demo --keep predictions.tb   and keep the file, to look into it:
  tb head predictions.tb -n 1"""

HEADS, VOCABULARY = 8, 32_000
WORDS = ["der", "die", "das", "Haus", "Katze", "läuft", "schläft", "über", "schöne", "Brücke", "nach", "Köln", "heute"]
FRAMEWORKS = ("numpy", "torch", "tensorflow", "jax")


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument("--to", action="append", choices=FRAMEWORKS, help="only this framework (repeatable)")
    parser.add_argument("--count", type=whole_number(1), default=500, metavar="N", help="so many predictions (500)")
    parser.add_argument("--keep", metavar="PATH", help="keep the file under this name")
    force_argument(parser)


def run(args: argparse.Namespace, out: Output) -> int:
    check_free([] if args.keep is None else [args.keep], args.force)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # TensorFlow's start-up notes would drown the output
    with temporary_folder("tensorbytes-demo-") as folder:
        job = Job(os.path.join(folder, "predictions.tb"), args, out)
        code = job.run()
        if args.keep is not None:
            from tensorbytes.io import storage

            storage.write(args.keep, [storage.read(job.path)], sync=False)
    return code


def predict(rng: Any) -> dict[str, Any]:
    """What a model would give for one sentence; made up, but of real shapes and types."""
    import ml_dtypes
    import numpy as np

    source, target = (int(n) for n in rng.integers(4, 40, 2))
    attention = rng.random((HEADS, target, source), np.float32)
    return {
        "text": " ".join(rng.choice(WORDS, target).tolist()),
        "ids": rng.integers(0, VOCABULARY, target, dtype=np.int32),
        "scores": np.log(rng.random(target, np.float32)),
        "attention": (attention / attention.sum(-1, keepdims=True)).astype(ml_dtypes.bfloat16),
        "beam": int(rng.integers(1, 5)),
    }


class Job:
    """The steps, each of which tells what it did."""

    def __init__(self, path: str, args: argparse.Namespace, out: Output) -> None:
        import numpy as np

        rng = np.random.default_rng(7)
        self.path, self.args, self.out = path, args, out
        self.predictions = [predict(rng) for _ in range(args.count)]

    def run(self) -> int:
        self.introduce()
        self.store()
        equal = [self.reload(name) for name in self.args.to or FRAMEWORKS]
        self.look_inside()
        return self.damage() or (0 if all(equal) else 1)

    def tell(self, plain: dict[str, Any], *lines: str | list[str | Cell]) -> None:
        if self.out.json:
            self.out.item(plain)
            return
        for line in lines:
            self.out.line(*([line] if isinstance(line, str) else line))

    def introduce(self) -> None:
        from tensorbytes import ACCELERATED, __version__

        count = len(self.predictions)
        numbers = (x for p in self.predictions for x in (p["ids"], p["scores"], p["attention"]))
        self.raw = sum(x.nbytes for x in numbers)
        kernel = "compiled kernel" if ACCELERATED else "reference kernel (tb doctor says why)"
        lines = [f"tensorbytes {__version__}, {kernel}", ""]
        lines.append(f"{count} predictions, {size_text(self.raw)} of numbers. The first one:")
        for name, value in self.predictions[0].items():
            text = f"{value.dtype} {list(value.shape)}" if hasattr(value, "dtype") else repr(value)
            lines.append(f"    {name:<10} {text if len(text) < 60 else text[:56] + ' ...'}")
        self.tell({"step": "made", "predictions": count, "bytes": self.raw, "kernel": kernel}, *lines)

    def store(self) -> None:
        from tensorbytes import api

        def write() -> None:
            with api.open(self.path, "w") as file:
                for prediction in self.predictions:
                    file.write(prediction)

        _, seconds = timed(write)
        size = os.path.getsize(self.path)
        name = os.path.basename(self.path)
        self.tell(
            {"step": "stored", "bytes": size, "seconds": round(seconds, 4)},
            "",
            f"Written one by one to {name}: {size_text(size)} in {seconds * 1e3:.0f} ms",
            f"    {100 * (size - self.raw) / size:.1f} % of it is names, shapes, texts and checksums",
            "",
            "Reloaded, and compared bit for bit with what was stored:",
        )

    def reload(self, framework: str) -> bool:
        from importlib import util

        import numpy as np

        from tensorbytes import api

        if util.find_spec(framework) is None:
            hint = f"pip install 'tensorbytes[{framework}]'"
            line: list[str | Cell] = [f"    {framework:<11} ", Cell(f"not installed here: {hint}", "dim")]
            self.tell({"step": "reloaded", "framework": framework, "installed": False}, line)
            return True
        api.loads(api.dumps(np.ones(1, np.float32)), to=framework)  # its import shall not count
        back, seconds = timed(lambda: api.load(self.path, to=framework))
        back = back if isinstance(back, list) else [back]
        same = api.equal(back, self.predictions)
        kind = type(back[0]["attention"])
        verdict = Cell("equal", "green") if same else Cell("DIFFERENT", "red")
        self.tell(
            {"step": "reloaded", "framework": framework, "equal": same, "seconds": round(seconds, 4)},
            [f"    {framework:<11} ", verdict, f"  {seconds * 1e3:6.0f} ms   {kind.__module__}.{kind.__name__}"],
        )
        return same

    def look_inside(self) -> None:
        import numpy as np

        from tensorbytes import api

        middle = len(self.predictions) // 2
        with api.open(self.path) as file:
            prediction = file[middle]
        single = os.path.join(os.path.dirname(self.path), "attention.tb")
        api.save({"attention": prediction["attention"], "ids": prediction["ids"]}, single, meta={"model": "demo"})
        with api.open(single) as file:
            names, part = file.keys(), file["attention"][0, 0, :3].tolist()
        plain = api.dumps(np.arange(3, dtype=np.float32), "tensorproto")
        shape = list(prediction["attention"].shape)
        self.tell(
            {"step": "looked", "number": middle, "attention": shape, "part": part, "tensorproto": plain.hex()},
            "",
            f"Number {middle} alone: {prediction['text'][:50]!r}, attention {shape}",
            f"As a file of named tensors: {names}, a slice of one without reading the rest: {part}",
            f"The bytes of tf.io.serialize_tensor([0., 1., 2.]), without TensorFlow: {plain.hex(' ')}",
        )

    def damage(self) -> int:
        from tensorbytes import api, errors
        from tensorbytes.io import storage

        data = bytearray(storage.read(self.path))
        data[len(data) // 2] ^= 1
        broken = os.path.join(os.path.dirname(self.path), "broken.tb")
        with open(broken, "wb") as file:
            file.write(data)
        try:
            api.load(broken)
        except errors.CorruptError as error:
            text = f"CorruptError: {str(error).replace(broken, os.path.basename(self.path))}"
            self.tell(
                {"step": "damaged", "error": text}, "", "One bit of the file flipped, loaded again:", f"    {text}"
            )
            return 0
        self.tell({"step": "damaged", "error": None}, "", Cell("the damage went unnoticed", "red").text)
        return 1


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    import time

    start = time.perf_counter()
    return work(), time.perf_counter() - start
