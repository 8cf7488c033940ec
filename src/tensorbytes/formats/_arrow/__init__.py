"""Arrow and Parquet: values as columns, the two containers, rows in batches."""
