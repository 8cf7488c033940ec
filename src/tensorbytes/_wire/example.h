/* Example and SequenceExample to columns and back: plain C11, no Python.h, no malloc.
 *
 * Reading into columns takes one pass, record by record:
 *
 *   decode   verifies each record, walks it, and puts the values of the wanted features into their columns
 *
 * Where it must be known what a record holds, to infer a schema or to say what is wrong, three, each over a whole
 * batch of records:
 *
 *   locate   walks the skeleton of every record and notes where the list of each wanted
 *            feature lies, without looking at values
 *   count    how many values each list has, as running offsets
 *   fill     the values, straight into the final array
 *
 * Records of unusual build (merged messages, unknown fields, anything malformed) are
 * odd and left to the general parser, which rewrites them in the usual form or says what is
 * wrong. Writing takes one: record after record is measured, written and given its checksum.
 * example_reference.py defines what each must compute.
 */
#ifndef TENSORBYTES_EXAMPLE_H
#define TENSORBYTES_EXAMPLE_H

#include <stddef.h>
#include <stdint.h>

#include "keys.h"

/* The numbers of Feature's fields; shared with Python. */
enum example_kind { KIND_MISSING = 0, KIND_BYTES = 1, KIND_FLOAT = 2, KIND_INT64 = 3 };

/* What locate notes of a record. */
enum example_note { NOTE_ODD = 1, NOTE_UNKNOWN = 2 };

/* Finds the wanted features of records[2*r] .. + records[2*r + 1], for each r < count. Keys must rise;
 * of those that don't, some are not found.
 *
 * For record r and key k, kinds[k*count + r] is the kind of list and spans[2*(k*count + r)],
 * spans[... + 1] its first byte and the one after its last. With `lists`, the records are
 * SequenceExamples and the spans those of FeatureList messages (kind KIND_BYTES stands for
 * "present"); without, they are Examples or the contexts of SequenceExamples. */
void example_locate(const uint8_t *buf, const int64_t *records, size_t count,
                    const struct example_keys *keys, int lists,
                    uint8_t *kinds, int64_t *spans, uint8_t *notes);

/* The steps of FeatureLists: offsets[i + 1] - offsets[i] steps in span i. With kinds and steps
 * not NULL (room for `room`), also the kind and span of each step's list. Returns count, or the
 * index of the first list that is oddly built or finds no room. */
size_t example_steps(const uint8_t *buf, const int64_t *spans, size_t count, int64_t *offsets,
                     uint8_t *kinds, int64_t *steps, size_t room);

/* Running totals of the values in lists of one kind; for KIND_BYTES also of their bytes.
 * Returns count, or the index of the first list that is malformed. */
size_t example_count(const uint8_t *buf, const int64_t *spans, size_t count, int kind,
                     int64_t *offsets, uint64_t *bytes);

/* The values of lists. With width >= 0 each list must have that many. Each returns count, or the
 * index of the first list that is malformed, of another width, or finds no room. `size` is that of buf. */
size_t example_fill_float(const uint8_t *buf, const int64_t *spans, size_t count, int64_t width,
                          uint8_t *out, size_t room);
size_t example_fill_int64(const uint8_t *buf, size_t size, const int64_t *spans, size_t count, int64_t width,
                          int64_t *out, size_t room);
size_t example_fill_bytes(const uint8_t *buf, const int64_t *spans, size_t count,
                          int64_t *string_offsets, size_t room, uint8_t *data, size_t data_room);

/* ---- in one pass ---- */

/* A column that is read. An array that it needs not is NULL. Of the running numbers, the first is 0.
 *
 *   values     float, int64_t, or the bytes of strings
 *   strings    bytes so far, of each string                KIND_BYTES
 *   splits     values (strings) so far, of each list       where width is -1, and of optional features
 *   steps      lists so far, of each record                feature lists
 *   present    whether a record has the feature            optional ones
 */
struct example_target {
    int kind, lists, optional;
    int64_t width; /* the values (strings) that each list must have; -1: any number */
    uint8_t *values;
    int64_t *strings, *splits, *steps;
    uint8_t *present;
    size_t value_room, string_room, split_room, step_room, present_room; /* in items, the first 0 not counted */
    size_t values_used, strings_used, lists_used, seen;                  /* for the kernel alone */
};

enum example_outcome {
    OUTCOME_DONE = 0,
    OUTCOME_DAMAGED = 1, /* the checksum of a record differs */
    OUTCOME_ODD = 2,     /* a record is unusual, or is not what the columns are for */
    OUTCOME_ROOM = 3     /* a column has no room for a record */
};

struct example_job {
    const uint8_t *buf;
    size_t size;
    const int64_t *records; /* offset and length of each payload; their checksums follow them */
    size_t count;
    int verify, closed; /* closed: a key that is not wanted makes a record odd */
    struct example_target *targets; /* as many as there are keys: of features, then of feature lists */
    struct key_search *keys[2];     /* of features, of feature lists */
};

/* Adds records to columns that hold `row` of them. Returns how many were added, *outcome why no more, *column the one
 * that has no room. SIZE_MAX: the columns can't hold `row` records. */
size_t example_decode(struct example_job *job, size_t row, int *outcome, size_t *column);

/* A column to be written. Row r has the values offsets[r] .. offsets[r + 1]; with steps it is a
 * FeatureList of steps[r] .. steps[r + 1], and step s has the values offsets[s] .. offsets[s + 1].
 * String i is bytes[string_offsets[i] .. string_offsets[i + 1]). */
struct example_column {
    int kind;
    const uint8_t *key;
    size_t key_size;
    const int64_t *steps;           /* NULL for plain features */
    const int64_t *offsets;
    const uint8_t *present;         /* NULL when every row has the feature */
    const uint8_t *values;          /* of float, of int64_t or of strings, at any address */
    const int64_t *string_offsets;  /* KIND_BYTES */
};

/* Columns to be written together: the features of each record and, of SequenceExamples, their feature lists. */
struct example_batch {
    const struct example_column *columns; /* the features, then the feature lists */
    size_t features, lists;
    int sequence;                         /* whether the records are SequenceExamples */
    const int64_t *rows;                  /* which row each record has; NULL: record i has row i */
};

/* The sizes of one record. */
struct example_measures {
    size_t payload, features, lists; /* of the record, of all its entries, of those of its feature lists */
    int64_t *columns;                /* room for one number for each column; -1: this row lacks it */
};

/* The bytes that the framed record of a row takes. */
size_t example_measure(const struct example_batch *batch, size_t row, struct example_measures *measures);

/* Writes the record that was measured, but for the checksum at its end. Returns 0 if values have changed since; what
 * is written never takes more than was measured. */
int example_put(const struct example_batch *batch, size_t row, const struct example_measures *measures, uint8_t *out);

/* Writes records first .. first + count of a batch end to end, until one finds no room; ends[i] is where the i-th of
 * them ends. Returns how many were written. *needed is 0 if these are all, else the size of the one that found no
 * room, or -1 if values changed while they were written. */
size_t example_records(const struct example_batch *batch, size_t first, size_t count, struct example_measures *measures,
                       uint8_t *out, size_t room, int64_t *ends, int64_t *needed);

#endif
