"""TensorFlow's checkpoints: the table of tensors, the shards, slices of partitioned variables."""
