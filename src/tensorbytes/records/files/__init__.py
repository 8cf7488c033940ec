"""Files of records: finding, opening, inflating, walking, mending them."""
