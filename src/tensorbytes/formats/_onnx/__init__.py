"""ONNX: tensors, models, external data."""
