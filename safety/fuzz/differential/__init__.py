"""Our verdict and values beside those of the libraries whose formats these are, on the same mutated bytes."""
