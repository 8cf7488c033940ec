/* Objects of the native frame in their usual form, read and written by the record: plain C11, no Python.h, no malloc.
 *
 * The usual form: dense tensors alone, or the items of a flat dict, list or tuple, which say no more of themselves
 * than the framework they came from. Anything else, sound or not, is the general parser's and writer's work.
 * objects_reference.py defines what each function must compute; spec/frame.md is the normative text.
 */
#ifndef TENSORBYTES_OBJECTS_H
#define TENSORBYTES_OBJECTS_H

#include <stddef.h>
#include <stdint.h>

/* What a record is part of: a tensor alone has no place in a structure. */
enum objects_container { OBJECTS_ALONE = 0, OBJECTS_DICT = 1, OBJECTS_LIST = 2, OBJECTS_TUPLE = 3 };
/* Ranks above this are left to the general parser. */
#define OBJECTS_MAX_RANK 32
/* The code of bools, of which not every byte is one. */
#define OBJECTS_BOOL 10

/* One record, as offsets into the buffer it was found in. */
struct objects_record {
    uint64_t code, part, parts, item;
    uint64_t rank, dims[OBJECTS_MAX_RANK];
    int container, named;
    size_t name, name_end;
    size_t directory, directory_end; /* both 0 if there is none */
    size_t content, content_size;
};

/* Parses the payload in [buf+start, buf+end). sizes[code] is what an element of each dtype takes, 0 for those that
 * are not read here. Returns 1, or 0 for anything that is not of the usual form. */
int objects_parse(const uint8_t *buf, size_t start, size_t end, const uint8_t sizes[256], struct objects_record *out);

/* Whether a directory, in [buf+start, buf+end), is what objects_write makes of the `count` records of its object, whose
 * first frame stands at `first`. The records were found sound before; they are looked at again. */
int objects_listed(const uint8_t *buf, size_t n, size_t start, size_t end, size_t first, size_t count,
                   const uint8_t sizes[256]);

/* A tensor to be written. The head is the fields dtype and tensor_shape. */
struct objects_part {
    const uint8_t *head, *name, *origin, *data;
    size_t head_size, name_size, origin_size, data_size;
    size_t header_size, payload_size; /* these and the code of the dtype are set by objects_measure */
    uint64_t code;
};

/* What the parts are together. `item` is the number in a stream, 0 outside; `at` is where the first frame will stand. */
struct objects_whole {
    struct objects_part *parts;
    size_t count;
    int container;
    uint64_t item, at;
};

/* The bytes that objects_write will write; 0 if a head is not of the usual form. */
size_t objects_measure(struct objects_whole *whole);

/* Writes what was measured: framed records. */
void objects_write(uint8_t *out, const struct objects_whole *whole);

/* Whether every byte is a bool: 0 or 1. */
int objects_are_bools(const uint8_t *data, size_t n);

#endif
