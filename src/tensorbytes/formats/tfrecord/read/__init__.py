"""From records to rows and columns."""
