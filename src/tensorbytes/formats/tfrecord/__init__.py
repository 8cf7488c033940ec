"""TFRecord files of Examples and SequenceExamples: their files, schemas, rows and columns, both ways."""
