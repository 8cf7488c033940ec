"""safetensors: the header and its checks, checkpoints in several files."""
