"""From rows and columns to records."""
