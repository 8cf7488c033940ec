"""NumPy's arrays: headers, elements, text of fixed width."""
