"""Compressed streams, both ways: gzip, zlib, snappy; and what codecs and archives need of the same libraries.

    engines     which library does the work, what is odd about it, and whole streams at once
    snappy      raw blocks, looked at byte by byte
    detection   which compression a file has, by its first bytes or by its name
    decoders    plain bytes out of compressed ones, in pieces of bounded size, in sequence or at any place
    encoders    the other way

Files are as TensorFlow reads them: the whole stream of records is compressed, and the framing lies inside.
TensorFlow 2.21, as tried:

gzip      Members one after another are read on; anything else after a member, zero bytes
          included, is an error. A file cut inside a member reads as a clean end if the cut
          leaves whole records. Here that is an error, unless the cut is where a flush ended
          (decoders.py), and zero bytes at the end are padding. TFRecordWriter.flush() does
          zlib's partial flush, whatever flush_mode its options name.
zlib      Whatever follows the stream is dropped in silence. Here it is an error.
snappy    Blocks of a length (u32, big-endian) and a raw snappy block. The writer fills blocks
          of up to 256 KiB, never splits what is written at once, and makes one block of a
          larger payload, of any size. The reader takes blocks of at most 262,144 plain bytes
          and raises ResourceExhaustedError for larger ones: TensorFlow can't read what it
          wrote. Here larger blocks are read, and none are written. A file cut inside a length
          reads as a clean end; here that is an error. TFRecordOptions refuses the name
          SNAPPY; TFRecordDataset(compression_type="SNAPPY") and the RecordWriter beneath
          TFRecordWriter take it.

An empty file is an empty stream in every compression, and for TensorFlow as well.
"""
