/* The JSON header of a safetensors file in the form that its library writes: plain C11, no Python.h, no malloc.
 *
 * Anything else, sound or not, is the general parser's work. objects_reference.py defines what is computed.
 */
#ifndef TENSORBYTES_HEADER_H
#define TENSORBYTES_HEADER_H

#include <stddef.h>
#include <stdint.h>

#define HEADER_MAX_RANK 64

/* The numbers of one entry, in their order in the table: the name is the bytes [name, name_end) of the buffer, the
 * content [begin, end) of the data, and the dimensions are dims[first], ... of the next table. */
enum header_column { HEADER_NAME, HEADER_NAME_END, HEADER_DTYPE, HEADER_BEGIN, HEADER_END, HEADER_RANK, HEADER_COLUMNS };

/* What is known of dtypes: number i has names[i], of at most 15 bytes and a zero, and takes bits[i] for an element. */
struct header_dtypes {
    const char (*names)[16];
    const uint8_t *bits;
    size_t count;
};

struct header_found {
    size_t entries, dims;
    size_t metadata, metadata_end; /* the object under "__metadata__"; both 0 if there is none */
};

/* Reads the header in [buf, buf+n) of `size` bytes of data, each of which belongs to one tensor, in the order of the
 * entries. Tables that are NULL are only counted. Returns 1, or 0 for anything else than the usual form. */
int header_read(const uint8_t *buf, size_t n, uint64_t size, const struct header_dtypes *dtypes, int64_t *table,
                int64_t *dims, struct header_found *found);

#endif
