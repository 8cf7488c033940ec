"""Files of records: finding, opening, inflating, walking and fixing them."""
