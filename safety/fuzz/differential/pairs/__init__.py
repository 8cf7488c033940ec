"""One module for each library or family: how it and we read the same bytes."""
