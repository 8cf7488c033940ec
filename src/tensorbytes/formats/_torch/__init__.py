"""torch.save's files: a pickle machine that builds tensors and plain values, and nothing else."""
