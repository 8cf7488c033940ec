"""What saving and calling share."""

from __future__ import annotations

from typing import Any

from tensorbytes.errors import MissingDependencyError

DEFAULT = "serving_default"
FILE = "saved_model.pb"


def tensorflow() -> Any:
    try:
        import tensorflow
    except ModuleNotFoundError as error:
        if error.name != "tensorflow":
            raise
        raise MissingDependencyError("a SavedModel", "tensorflow") from None
    return tensorflow
