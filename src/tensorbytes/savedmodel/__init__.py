"""SavedModels: a function or a module, saved with its variables, to be called again.

    save_model(function, "folder", example)          # a function, a tf.function, a tf.Module, a Keras model
    model = load_model("folder")
    model(x)                                         # x of any framework; the results are NumPy arrays
    model.signatures["serving_default"](x=x)
    model.variables

TensorFlow records what a function does with symbolic tensors, so each argument needs an
example or a tf.TensorSpec. The folder is written under another name and takes the place of
an old one once it is whole. A SavedModel is a program: call only those you trust. Its
variables alone are data: load(path) reads them, safely and without TensorFlow.
"""

from tensorbytes.savedmodel.call import Model, Signature, load_model
from tensorbytes.savedmodel.export import save_model

__all__ = ["Model", "Signature", "load_model", "save_model"]
