"""tb schema: what each feature of records is."""

from __future__ import annotations

import argparse
import os
from typing import Any

from tensorbytes.cli.files import InputFile, for_each, input_files
from tensorbytes.cli.output import Cell, Heading, Output
from tensorbytes.cli.reading import read_options, reading_arguments
from tensorbytes.cli.words import DIM, many, name_cell
from tensorbytes.cli.writing import STDOUT, check_free, force_argument
from tensorbytes.errors import UsageError

EXAMPLES = """examples:
  tb schema train.tfrecord              names, types, encodings
  tb schema --scan train.tfrecord       inferred from every record
  tb schema train-*.tfrecord --as json -o train.tfrecord.schema.json
                                        of all files, to be kept beside them
  tb schema train.tfrecord --as tf      Python, for tf.io.parse_example
  tb schema train.tfrecord --as python  Python, for tensorbytes

The schema is that of the file FILE.schema.json if there is one, else inferred
from some records: the head, the tail and places between."""

_SOURCES = ("json", "tf", "python")
_ORIGINS = {
    "sidecar": "as the file beside it says",
    "sample": "inferred from some of the records",
    "all records": "inferred from every record",
}


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument("files", nargs="+", metavar="FILE", help="TFRecord files: paths, globs, folders, URLs, or -")
    parser.add_argument(
        "--as", dest="form", choices=("text", *_SOURCES), help="another form; of several files, one schema"
    )
    parser.add_argument("-o", "--output", metavar="PATH", help="write to a file; - for stdout")
    force_argument(parser)
    parser.add_argument("--scan", action="store_true", help="infer it from every record")
    reading_arguments(parser)


def run(args: argparse.Namespace, out: Output) -> int:
    check_free([] if args.output in (None, STDOUT) else [args.output], args.force)
    with input_files(args.files) as found:
        if args.form in _SOURCES or args.output is not None:
            return _as_source(found, args, out)
        return for_each(found, out, lambda file: _show(file, args, out, len(found) > 1))


def _schema(file: InputFile, args: argparse.Namespace) -> tuple[Any, str]:
    """(the schema, where it comes from)"""
    from tensorbytes import formats, opening
    from tensorbytes.formats.tfrecord.kinds import EXAMPLES as RECORDS
    from tensorbytes.records import infer_schema, open_records

    options = read_options(args)
    formats.check_options(formats.get(RECORDS), options, formats.get(RECORDS).read_options)
    several = "@" in os.path.basename(file.path)  # name@10, which is not a file
    if "://" not in file.path and not several and not os.path.exists(file.path):
        raise FileNotFoundError(2, "no such file", file.path)
    opened = opening.open_file(file.path, args.format, options=options)
    if opened.kind != RECORDS:
        raise UsageError(f"{file.shown}: not a TFRecord file of Examples, so it has no schema; tb info says what it is")
    if args.scan:
        return infer_schema(file.path, **options), "all records"
    records = open_records(file.path, **options)
    if records.known_schema is not None:
        return records.known_schema, "sidecar"
    return records.schema, "sample"


def _show(file: InputFile, args: argparse.Namespace, out: Output, several: bool) -> int:
    schema, origin = _schema(file, args)
    if out.json and args.form is None:
        import json

        out.item({"path": file.shown, "origin": origin, "schema": json.loads(schema.to_json())})
        return 0
    groups = (
        [("feature", schema.features)]
        if not schema.sequence
        else [("context", schema.features), ("list", schema.lists)]
    )
    said = f"{many(len(schema), 'feature')}, {_ORIGINS[origin]}"
    out.line(Cell(f"{file.shown}: " if several else "", "bold"), Cell(said, DIM))
    for title, features in groups:
        rows: list[list[str | Cell]] = [[name_cell(name), *_cells(feature)] for name, feature in features.items()]
        if rows:
            out.line()
            columns = [Heading(title, fold=True, least=20), Heading("type"), Heading("encoding", drop=2)]
            columns.append(Heading("if missing", fold=True, drop=1))
            kept = 4 if any(row[3] for row in rows) else 3
            out.table(columns[:kept], [row[:kept] for row in rows])
    return 0


def _cells(feature: Any) -> list[str]:
    kind = feature.describe().partition(" as ")[0]
    missing = "optional" if feature.optional else ""
    if feature.default is not None:
        missing = "default " + repr(feature).partition("default=")[2].partition(", quantize=")[0].removesuffix(")")
    return [kind, feature.stored_as(), missing]


# ---- as something to be kept ------------------------------------------------------------


def _as_source(found: list[InputFile], args: argparse.Namespace, out: Output) -> int:
    from tensorbytes.formats.tfrecord.schema import Schema

    schemas = [(file.shown, _schema(file, args)[0]) for file in found]
    schema = Schema.merged(schemas)
    if args.form == "tf":
        text = tf_source(schema)
    elif args.form == "python":
        text = python_source(schema)
    else:
        text = schema.to_json() if args.form in (None, "json") else str(schema)
    text = text.rstrip("\n") + "\n"
    if args.output in (None, STDOUT):
        out.raw(text.encode("utf-8", "backslashreplace"))
    else:
        from tensorbytes.io import storage

        storage.write(args.output, [text.encode()])
    return 0


def python_source(schema: Any) -> str:
    """Python that makes the schema again."""
    groups = [schema.features] if schema.lists is None else [schema.features, schema.lists]
    shown = [
        _dict_source({name: _finite(f"tb.records.{feature!r}") for name, feature in group.items()}) for group in groups
    ]
    return f"import tensorbytes as tb\n\nschema = tb.records.Schema({', '.join(shown)})\n"


def _finite(text: str) -> str:
    """NaN and infinities have no names of their own in Python."""
    import re

    return re.sub(r"(?<=[\[ =(-])(nan|inf)(?=[,\])])", r'float("\1")', text) if "default=" in text else text


def tf_source(schema: Any) -> str:
    """Python that parses the records with TensorFlow."""
    from tensorbytes.formats.tfrecord.schema import tf as rules

    stand_in = _Name("tf")
    features = _dict_source(rules.feature_specs(schema.features, stand_in))
    if schema.lists is None:
        return (
            f"import tensorflow as tf\n\nspec = {features}\n\n"
            "# dataset.batch(n).map(lambda records: tf.io.parse_example(records, spec))\n"
        )
    lists = _dict_source(rules.list_specs(schema.lists, stand_in))
    return (
        f"import tensorflow as tf\n\ncontext = {features}\nlists = {lists}\n\n"
        "# dataset.batch(n).map(lambda records: tf.io.parse_sequence_example(records, context, lists))\n"
    )


def _dict_source(items: dict[str, Any]) -> str:
    inside = "".join(f"    {name!r}: {item},\n" for name, item in items.items())
    return "{\n" + inside + "}" if items else "{}"


class _Name:
    """Stands in for TensorFlow, which need not be installed: what is called on it becomes Python source."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __getattr__(self, name: str) -> _Name:
        return _Name(f"{self._text}.{name}")

    def __call__(self, *given: Any, **named: Any) -> _Name:
        while given and given[-1] is None:
            given = given[:-1]
        words = [_literal(value) for value in given]
        words += [f"{name}={_literal(value)}" for name, value in named.items() if value not in (False, ())]
        return _Name(f"{self._text}({', '.join(words)})")

    def __repr__(self) -> str:
        return self._text

    __str__ = __repr__


def _literal(value: Any) -> str:
    return repr(value.tolist()) if hasattr(value, "tolist") and not isinstance(value, _Name) else repr(value)
