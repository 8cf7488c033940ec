/* The limited-API shim over example.h: checks that every position lies within its buffer, so
 * that no call can read or write outside, then runs without the GIL. */
#include "binding.h"

#include <string.h>

#include "example.h"
#include "varints.h"
#include "wire.h"

/* The buffers of one call, released together. Those not given are NULL with a count of 0. */
#define MOST_BUFFERS 8
struct buffers {
    Py_buffer views[MOST_BUFFERS];
    int taken;
};

static void release(struct buffers *b)
{
    while (b->taken)
        PyBuffer_Release(&b->views[--b->taken]);
}

static int wrong(const char *what)
{
    PyErr_SetString(PyExc_ValueError, what);
    return 0;
}

/* The memory of an array argument, with the number of its items of `itemsize` bytes: int64_t from 8 on. */
static int take(struct buffers *b, PyObject *object, int writable, size_t itemsize, void *pointer, size_t *count)
{
    void **out = pointer;
    *out = NULL;
    *count = 0;
    if (object == Py_None)
        return 1;
    Py_buffer *view = &b->views[b->taken];
    if (PyObject_GetBuffer(object, view, writable ? PyBUF_WRITABLE : PyBUF_SIMPLE) < 0)
        return 0;
    b->taken++;
    if (itemsize >= 8 && view->len && (uintptr_t)view->buf % 8)
        return wrong("expected an array that is aligned");
    *out = view->buf;
    *count = (size_t)view->len / itemsize;
    return 1;
}

/* Pairs of (start, end), or of (offset, length), that must lie within `size` bytes. */
static int check_spans(const int64_t *spans, size_t count, size_t size)
{
    for (size_t i = 0; i < count; i++)
        if (spans[2 * i] < 0 || spans[2 * i] > spans[2 * i + 1] || (uint64_t)spans[2 * i + 1] > size)
            return wrong("a span is outside the buffer");
    return 1;
}

static int check_records(const int64_t *records, size_t count, size_t size)
{
    for (size_t i = 0; i < count; i++)
        if (records[2 * i] < 0 || records[2 * i + 1] < 0 || (uint64_t)records[2 * i] > size
            || (uint64_t)records[2 * i + 1] > size - (uint64_t)records[2 * i])
            return wrong("a record is outside the buffer");
    return 1;
}

/* offsets[from] .. offsets[to] must rise, from 0 or more to at most `most`. */
static int check_offsets(const int64_t *offsets, size_t from, size_t to, size_t count, size_t most)
{
    if (to >= count || from > to)
        return wrong("there are too few offsets");
    if (offsets[from] < 0 || offsets[to] < 0 || (uint64_t)offsets[to] > most)
        return wrong("an offset is outside the values");
    for (size_t i = from; i < to; i++)
        if (offsets[i + 1] < offsets[i])
            return wrong("offsets must never fall");
    return 1;
}

/* Keys must rise, no two alike; their offsets are sound. */
static int check_keys(const struct example_keys *keys)
{
    for (size_t i = 1; i < keys->count; i++)
        if (keys_compare(keys, i - 1, keys->data + keys->offsets[i],
                                (size_t)(keys->offsets[i + 1] - keys->offsets[i])) >= 0)
            return wrong("keys must rise");
    return 1;
}

static PyObject *py_example_locate(PyObject *module, PyObject *const *args, Py_ssize_t n)
{
    struct buffers b = {.taken = 0};
    const uint8_t *buf, *key_data;
    const int64_t *records, *key_offsets;
    uint8_t *kinds, *notes;
    int64_t *spans;
    size_t size, key_size, key_count, records_count, kind_count, span_count, note_count, lists;
    PyObject *result = NULL;
    (void)module;
    if (!binding_arguments("example_locate", n, 8, 8) || !binding_position(args[4], 1, &lists))
        return NULL;
    if (take(&b, args[0], 0, 1, &buf, &size) && take(&b, args[1], 0, 16, &records, &records_count)
        && take(&b, args[2], 0, 1, &key_data, &key_size) && take(&b, args[3], 0, 8, &key_offsets, &key_count)
        && take(&b, args[5], 1, 1, &kinds, &kind_count) && take(&b, args[6], 1, 16, &spans, &span_count)
        && take(&b, args[7], 1, 1, &notes, &note_count) && check_records(records, records_count, size)
        && (key_count > 0 || wrong("there are too few offsets"))
        && check_offsets(key_offsets, 0, key_count - 1, key_count, key_size)) {
        size_t cells = (key_count - 1) * records_count;
        struct example_keys keys = {key_data, key_offsets, key_count - 1};
        if (kind_count < cells || span_count < cells || note_count < records_count) {
            wrong("the arrays for kinds, spans or notes are too small");
        } else if (check_keys(&keys)) {
            Py_BEGIN_ALLOW_THREADS
            example_locate(buf, records, records_count, &keys, (int)lists, kinds, spans, notes);
            Py_END_ALLOW_THREADS
            result = Py_NewRef(Py_None);
        }
    }
    release(&b);
    return result;
}

static PyObject *py_example_steps(PyObject *module, PyObject *const *args, Py_ssize_t n)
{
    struct buffers b = {.taken = 0};
    const uint8_t *buf;
    const int64_t *spans;
    int64_t *offsets, *steps;
    uint8_t *kinds;
    size_t size, count, offset_count, kind_count, step_count, done;
    PyObject *result = NULL;
    (void)module;
    if (!binding_arguments("example_steps", n, 5, 5))
        return NULL;
    if (take(&b, args[0], 0, 1, &buf, &size) && take(&b, args[1], 0, 16, &spans, &count)
        && take(&b, args[2], 1, 8, &offsets, &offset_count) && take(&b, args[3], 1, 1, &kinds, &kind_count)
        && take(&b, args[4], 1, 16, &steps, &step_count) && check_spans(spans, count, size)
        && (offset_count > count || wrong("there are too few offsets"))
        && ((kinds == NULL) == (steps == NULL) || wrong("kinds and steps go together"))) {
        Py_BEGIN_ALLOW_THREADS
        done = example_steps(buf, spans, count, offsets, kinds, steps,
                             kind_count < step_count ? kind_count : step_count);
        Py_END_ALLOW_THREADS
        result = PyLong_FromSize_t(done);
    }
    release(&b);
    return result;
}

static PyObject *py_example_count(PyObject *module, PyObject *const *args, Py_ssize_t n)
{
    struct buffers b = {.taken = 0};
    const uint8_t *buf;
    const int64_t *spans;
    int64_t *offsets;
    uint64_t bytes = 0;
    size_t size, count, offset_count, kind, done;
    PyObject *result = NULL;
    (void)module;
    if (!binding_arguments("example_count", n, 4, 4) || !binding_position(args[2], KIND_INT64, &kind))
        return NULL;
    if (take(&b, args[0], 0, 1, &buf, &size) && take(&b, args[1], 0, 16, &spans, &count)
        && take(&b, args[3], 1, 8, &offsets, &offset_count) && check_spans(spans, count, size)
        && (offset_count > count || wrong("there are too few offsets")) && (kind || wrong("no kind of list is 0"))) {
        Py_BEGIN_ALLOW_THREADS
        done = example_count(buf, spans, count, (int)kind, offsets, &bytes);
        Py_END_ALLOW_THREADS
        result = Py_BuildValue("nK", (Py_ssize_t)done, (unsigned long long)bytes);
    }
    release(&b);
    return result;
}

/* A column of numbers to be filled. */
struct filling {
    struct buffers buffers;
    const int64_t *spans;
    void *out;
    size_t count, room, kind, done;
    long long width;
};

/* Takes the arguments (spans, kind, width, out). */
static int take_filling(struct filling *f, PyObject *const *args, size_t size)
{
    f->buffers.taken = 0;
    if (!binding_position(args[1], KIND_INT64, &f->kind))
        return 0;
    f->width = PyLong_AsLongLong(args[2]);
    if (f->width == -1 && PyErr_Occurred())
        return 0;
    if (f->kind != KIND_FLOAT && f->kind != KIND_INT64)
        return wrong("only lists of float and int64 are filled here");
    return take(&f->buffers, args[0], 0, 16, &f->spans, &f->count)
        && take(&f->buffers, args[3], 1, f->kind == KIND_FLOAT ? 4 : 8, &f->out, &f->room)
        && check_spans(f->spans, f->count, size);
}

static void fill(struct filling *f, const uint8_t *buf, size_t size)
{
    f->done = f->kind == KIND_FLOAT ? example_fill_float(buf, f->spans, f->count, f->width, f->out, f->room)
                                    : example_fill_int64(buf, size, f->spans, f->count, f->width, f->out, f->room);
}

static PyObject *py_example_fill(PyObject *module, PyObject *const *args, Py_ssize_t n)
{
    struct buffers b = {.taken = 0};
    struct filling f = {.buffers = {.taken = 0}};
    const uint8_t *buf;
    size_t size;
    PyObject *result = NULL;
    (void)module;
    if (!binding_arguments("example_fill", n, 5, 5))
        return NULL;
    if (take(&b, args[0], 0, 1, &buf, &size) && take_filling(&f, args + 1, size)) {
        Py_BEGIN_ALLOW_THREADS
        fill(&f, buf, size);
        Py_END_ALLOW_THREADS
        result = PyLong_FromSize_t(f.done);
    }
    release(&f.buffers);
    release(&b);
    return result;
}

static PyObject *py_example_fill_bytes(PyObject *module, PyObject *const *args, Py_ssize_t n)
{
    struct buffers b = {.taken = 0};
    const uint8_t *buf;
    const int64_t *spans;
    int64_t *offsets;
    uint8_t *data;
    size_t size, count, offset_count, room, done;
    PyObject *result = NULL;
    (void)module;
    if (!binding_arguments("example_fill_bytes", n, 4, 4))
        return NULL;
    if (take(&b, args[0], 0, 1, &buf, &size) && take(&b, args[1], 0, 16, &spans, &count)
        && take(&b, args[2], 1, 8, &offsets, &offset_count) && take(&b, args[3], 1, 1, &data, &room)
        && check_spans(spans, count, size) && (offset_count > 0 || wrong("there are too few offsets"))) {
        Py_BEGIN_ALLOW_THREADS
        done = example_fill_bytes(buf, spans, count, offsets, offset_count - 1, data, room);
        Py_END_ALLOW_THREADS
        result = PyLong_FromSize_t(done);
    }
    release(&b);
    return result;
}

/* varints_decode(buffer, start, end, out, portable): what example_fill does to one run, whose last byte ends a varint */
static PyObject *py_varints_decode(PyObject *module, PyObject *const *args, Py_ssize_t n)
{
    struct buffers b = {.taken = 0};
    const uint8_t *buf;
    int64_t *out;
    size_t size, room, start, end, found;
    PyObject *result = NULL;
    (void)module;
    if (!binding_arguments("varints_decode", n, 5, 5))
        return NULL;
    int portable = binding_portable(args, n, 4);
    if (portable < 0)
        return NULL;
    if (take(&b, args[0], 0, 1, &buf, &size) && take(&b, args[3], 1, 8, &out, &room)
        && binding_position(args[2], (Py_ssize_t)size, &end) && binding_position(args[1], (Py_ssize_t)end, &start)
        && (start == end || buf[end - 1] < 0x80 || wrong("the last varint is cut"))) {
        found = (portable ? varints_decode_portable : varints_decode)(buf + start, buf + end, buf + size, out, room);
        result = found == SIZE_MAX ? PyLong_FromLong(-1) : PyLong_FromSize_t(found);
    }
    release(&b);
    return result;
}

/* ---- in one pass ------------------------------------------------------------ */

#define ARRAYS 5

/* What a call of example_decode takes hold of, and lets go of together. */
struct decoding {
    Py_buffer *views;
    size_t taken;
    struct example_target *targets;
    struct key_search *search[2];
    uint64_t *cells[2];
};

static void end_decoding(struct decoding *d)
{
    while (d->taken)
        PyBuffer_Release(&d->views[--d->taken]);
    PyMem_Free(d->views);
    PyMem_Free(d->targets);
    for (int i = 0; i < 2; i++) {
        PyMem_Free(d->search[i]);
        PyMem_Free(d->cells[i]);
    }
}

/* An array of a column, of items of so many bytes; `extra` of them are not counted as room. */
static int take_array(struct decoding *d, PyObject *object, size_t itemsize, size_t extra, void *pointer, size_t *room)
{
    void **out = pointer;
    *out = NULL;
    *room = 0;
    if (object == Py_None)
        return 1;
    Py_buffer *view = &d->views[d->taken];
    if (PyObject_GetBuffer(object, view, PyBUF_WRITABLE) < 0)
        return 0;
    d->taken++;
    size_t items = (size_t)view->len / itemsize;
    if (items < extra || (itemsize == 8 && (uintptr_t)view->buf % 8))
        return wrong("an array of a column is too small, or is not aligned");
    *out = view->buf;
    *room = items - extra;
    return 1;
}

/* field: kind, optional, width. */
static int take_target(struct decoding *d, PyObject *arrays, size_t number, const int64_t *field, int lists)
{
    struct example_target *t = d->targets + number;
    PyObject *parts[ARRAYS];
    int kind = (int)field[0], good = 1;
    if (field[0] < KIND_BYTES || field[0] > KIND_INT64 || field[1] < 0 || field[1] > 1 || field[2] < -1)
        return wrong("a column is of an unknown kind");
    t->kind = kind;
    t->lists = lists;
    t->optional = (int)field[1];
    t->width = field[2];
    for (size_t i = 0; i < ARRAYS; i++) /* a list may shrink meanwhile */
        if (!(parts[i] = PySequence_GetItem(arrays, (Py_ssize_t)(number * ARRAYS + i)))) {
            while (i)
                Py_DECREF(parts[--i]);
            return 0;
        }
    good = take_array(d, parts[0], kind == KIND_FLOAT ? 4 : kind == KIND_INT64 ? 8 : 1, 0, &t->values, &t->value_room)
        && take_array(d, parts[1], 8, 1, &t->strings, &t->string_room)
        && take_array(d, parts[2], 8, 1, &t->splits, &t->split_room)
        && take_array(d, parts[3], 8, 1, &t->steps, &t->step_room)
        && take_array(d, parts[4], 1, 0, &t->present, &t->present_room);
    for (size_t i = 0; i < ARRAYS; i++)
        Py_DECREF(parts[i]);
    if (!good)
        return 0;
    int splits = t->width < 0 || (t->optional && !lists);
    if (!t->values || !t->strings != (kind != KIND_BYTES) || !t->splits != !splits || !t->steps != !lists
        || !t->present != !t->optional)
        return wrong("a column has arrays that it does not need, or lacks some");
    return 1;
}

static int take_targets(struct decoding *d, PyObject *arrays, size_t columns, size_t features, const int64_t *fields)
{
    Py_ssize_t given = PySequence_Size(arrays);
    if (given < 0)
        return 0;
    if ((size_t)given != columns * ARRAYS)
        return wrong("each column has five arrays, or None");
    d->views = PyMem_Calloc(columns * ARRAYS + 1, sizeof *d->views);
    d->targets = PyMem_Calloc(columns + 1, sizeof *d->targets);
    if (!d->views || !d->targets) {
        PyErr_NoMemory();
        return 0;
    }
    for (size_t i = 0; i < columns; i++)
        if (!take_target(d, arrays, i, fields + 3 * i, i >= features))
            return 0;
    return 1;
}

static int take_keys(struct decoding *d, int which, const struct example_keys *keys)
{
    size_t cells = keys_table_size(keys->count);
    if (!check_keys(keys))
        return 0;
    d->search[which] = PyMem_Calloc(1, sizeof *d->search[which]);
    d->cells[which] = PyMem_Malloc(cells * sizeof *d->cells[which]);
    if (!d->search[which] || !d->cells[which]) {
        PyErr_NoMemory();
        return 0;
    }
    d->search[which]->keys = keys;
    d->search[which]->table.cells = d->cells[which];
    keys_fill_table(keys, &d->search[which]->table);
    return 1;
}

/* Payloads must lie within the buffer; with `verify`, so must the checksums after them. */
static int check_framed(const int64_t *records, size_t count, size_t size, int verify)
{
    size_t least = verify ? 4 : 0;
    if (count && size < least)
        return wrong("a record is outside the buffer");
    return check_records(records, count, size - (count ? least : 0));
}

static PyObject *py_example_decode(PyObject *module, PyObject *const *args, Py_ssize_t n)
{
    struct buffers b = {.taken = 0};
    struct decoding d = {NULL, 0, NULL, {NULL, NULL}, {NULL, NULL}};
    const uint8_t *buf, *key_data;
    const int64_t *records, *key_offsets, *fields;
    size_t size, count, key_size, key_count, field_count, features, verify, closed, row, done, column = 0;
    int outcome = OUTCOME_DONE;
    PyObject *result = NULL;
    (void)module;
    if (!binding_arguments("example_decode", n, 10, 10) || !binding_position(args[2], WIRE_ALL, &verify)
        || !binding_position(args[3], PY_SSIZE_T_MAX, &row) || !binding_position(args[7], PY_SSIZE_T_MAX, &features)
        || !binding_position(args[8], 1, &closed))
        return NULL;
    if (take(&b, args[0], 0, 1, &buf, &size) && take(&b, args[1], 0, 16, &records, &count)
        && take(&b, args[4], 0, 1, &key_data, &key_size) && take(&b, args[5], 0, 8, &key_offsets, &key_count)
        && take(&b, args[6], 0, 24, &fields, &field_count) && check_framed(records, count, size, (int)verify)
        && (key_count > 0 || wrong("there are too few offsets"))
        && check_offsets(key_offsets, 0, key_count - 1, key_count, key_size)
        && ((features < key_count && field_count == key_count - 1) || wrong("each key has a column"))) {
        struct example_keys keys[2] = {{key_data, key_offsets, features},
                                       {key_data, key_offsets + features, key_count - 1 - features}};
        if (take_targets(&d, args[9], key_count - 1, features, fields) && take_keys(&d, 0, keys)
            && take_keys(&d, 1, keys + 1)) {
            struct example_job job = {buf, size, records, count, (int)verify, (int)closed, d.targets,
                                      {d.search[0], d.search[1]}};
            Py_BEGIN_ALLOW_THREADS
            done = example_decode(&job, row, &outcome, &column);
            Py_END_ALLOW_THREADS
            if (done != SIZE_MAX || wrong("the columns don't hold so many records"))
                result = Py_BuildValue("nin", (Py_ssize_t)done, outcome, (Py_ssize_t)column);
        }
    }
    end_decoding(&d);
    release(&b);
    return result;
}

/* ---- writing -------------------------------------------------------------- */

static PyObject *py_bytes_offsets(PyObject *module, PyObject *const *args, Py_ssize_t n)
{
    struct buffers b = {.taken = 0};
    int64_t *offsets, total = 0;
    size_t room;
    PyObject *result = NULL;
    (void)module;
    if (!binding_arguments("bytes_offsets", n, 2, 2))
        return NULL;
    Py_ssize_t count = PySequence_Size(args[0]), done = 0;
    if (count < 0)
        return NULL;
    if (take(&b, args[1], 1, 8, &offsets, &room)
        && (room > (size_t)count || wrong("there are too few offsets"))) {
        offsets[0] = 0;
        for (; done < count; done++) {
            PyObject *item = PySequence_GetItem(args[0], done);
            int right = item && PyBytes_CheckExact(item);
            total += right ? (int64_t)PyBytes_Size(item) : 0;
            offsets[done + 1] = total;
            Py_XDECREF(item);
            if (!right)
                break;
        }
        if (!PyErr_Occurred())
            result = PyLong_FromSsize_t(done);
    }
    release(&b);
    return result;
}

/* The usual forms of values, which collect_row keeps by itself; shared with Python. */
enum { FORM_OTHER = 0, FORM_BYTES = 1, FORM_TEXT = 2, FORM_INT64 = 3, FORM_ARRAY = 4 };

/* The bytes of an array of just the right class, items and sizes, (class, "dtype", dtype, sizes); NULL without an error
 * if it is anything else. A buffer would tell of its items too, in words that NumPy makes anew for each. */
static PyObject *copy_array(PyObject *value, PyObject *wanted)
{
    if (!PyTuple_Check(wanted) || PyTuple_Size(wanted) != 4) {
        PyErr_SetString(PyExc_TypeError, "expected a tuple of (class, attribute, dtype, sizes)");
        return NULL;
    }
    PyObject *sizes = PyTuple_GetItem(wanted, 3), *copy = NULL;
    Py_ssize_t rank = PyTuple_Size(sizes);
    Py_buffer view;
    if (rank < 0 || (PyObject *)Py_TYPE(value) != PyTuple_GetItem(wanted, 0))
        return NULL;
    PyObject *dtype = PyObject_GetAttr(value, PyTuple_GetItem(wanted, 1));
    if (!dtype)
        return NULL;
    int fits = dtype == PyTuple_GetItem(wanted, 2);
    Py_DECREF(dtype);
    if (!fits)
        return NULL;
    if (PyObject_GetBuffer(value, &view, PyBUF_C_CONTIGUOUS) < 0) {
        PyErr_Clear(); /* not contiguous */
        return NULL;
    }
    fits = view.ndim == rank;
    for (Py_ssize_t i = 0; fits && i < rank; i++) {
        Py_ssize_t size = PyLong_AsSsize_t(PyTuple_GetItem(sizes, i)); /* negative: any */
        fits = size < 0 ? !PyErr_Occurred() : view.shape[i] == size;
    }
    if (fits)
        copy = PyBytes_FromStringAndSize(view.buf, view.len);
    PyBuffer_Release(&view);
    return copy;
}

/* What is to be kept of a value in a usual form, and its size; NULL without an error if it has another form. */
static PyObject *usual_form(PyObject *value, size_t form, PyObject *detail, Py_ssize_t *size)
{
    PyObject *kept = NULL;
    int overflow = 0;
    if (form == FORM_BYTES && PyBytes_CheckExact(value)) {
        kept = Py_NewRef(value);
    } else if (form == FORM_TEXT && PyUnicode_CheckExact(value)) {
        kept = PyUnicode_AsUTF8String(value);
        if (!kept && PyErr_ExceptionMatches(PyExc_UnicodeEncodeError))
            PyErr_Clear();
    } else if (form == FORM_INT64 && PyLong_CheckExact(value)) {
        (void)PyLong_AsLongLongAndOverflow(value, &overflow);
        *size = 8;
        return overflow ? NULL : Py_NewRef(value);
    } else if (form == FORM_ARRAY) {
        kept = copy_array(value, detail);
        *size = kept ? PyBytes_Size(kept) : 0;
        return kept;
    }
    *size = kept ? PyBytes_Size(kept) + 8 : 0;
    return kept;
}

/* One value of a row for its column, (name, form, detail, values, add). Returns its size, or -1 with an error. */
static Py_ssize_t collect_value(PyObject *row, PyObject *column)
{
    size_t form;
    if (!PyTuple_Check(column) || PyTuple_Size(column) != 5) {
        PyErr_SetString(PyExc_TypeError, "expected tuples of (name, form, detail, values, add)");
        return -1;
    }
    if (!binding_position(PyTuple_GetItem(column, 1), FORM_ARRAY, &form))
        return -1;
    PyObject *value = PyObject_GetItem(row, PyTuple_GetItem(column, 0));
    if (!value)
        return -1;
    Py_ssize_t size = -1;
    PyObject *kept = usual_form(value, form, PyTuple_GetItem(column, 2), &size);
    if (kept) {
        if (PyList_Append(PyTuple_GetItem(column, 3), kept) < 0)
            size = -1;
        Py_DECREF(kept);
    } else if (!PyErr_Occurred()) {
        PyObject *told = PyObject_CallFunctionObjArgs(PyTuple_GetItem(column, 4), value, NULL);
        size = told ? PyLong_AsSsize_t(told) : -1;
        Py_XDECREF(told);
    } else {
        size = -1;
    }
    Py_DECREF(value);
    return size;
}

static PyObject *py_collect_row(PyObject *module, PyObject *const *args, Py_ssize_t n)
{
    Py_ssize_t total = 0;
    (void)module;
    if (!binding_arguments("collect_row", n, 2, 2))
        return NULL;
    if (!PyTuple_Check(args[1])) {
        PyErr_SetString(PyExc_TypeError, "expected a tuple of columns");
        return NULL;
    }
    for (Py_ssize_t i = 0; i < PyTuple_Size(args[1]); i++) {
        Py_ssize_t size = collect_value(args[0], PyTuple_GetItem(args[1], i));
        if (size < 0 && PyErr_Occurred())
            return NULL;
        total += size;
    }
    return PyLong_FromSsize_t(total);
}

/* (kind, key, steps, offsets, present, values, string_offsets) of a column, checked for the rows from .. to. */
static int take_column(struct buffers *b, PyObject *const *args, size_t from, size_t to, struct example_column *c)
{
    size_t kind, step_count, offset_count, present_count, value_count, string_count;
    if (!binding_position(args[0], KIND_INT64, &kind))
        return 0;
    size_t item = kind == KIND_FLOAT ? 4 : kind == KIND_INT64 ? 8 : 1;
    c->kind = (int)kind;
    if (!kind)
        return wrong("no kind of list is 0");
    if (!take(b, args[1], 0, 1, &c->key, &c->key_size) || !take(b, args[2], 0, 8, &c->steps, &step_count)
        || !take(b, args[3], 0, 8, &c->offsets, &offset_count) || !take(b, args[4], 0, 1, &c->present, &present_count)
        || !take(b, args[5], 0, 1, &c->values, &value_count)
        || !take(b, args[6], 0, 8, &c->string_offsets, &string_count))
        return 0;
    value_count /= item;
    if (c->present && present_count < to)
        return wrong("there are fewer rows than asked for");
    if (c->steps) {
        if (!check_offsets(c->steps, from, to, step_count, offset_count ? offset_count - 1 : 0))
            return 0;
        from = (size_t)c->steps[from];
        to = (size_t)c->steps[to];
    }
    if (kind == KIND_BYTES) {
        if (!check_offsets(c->offsets, from, to, offset_count, string_count ? string_count - 1 : 0))
            return 0;
        return check_offsets(c->string_offsets, (size_t)c->offsets[from], (size_t)c->offsets[to], string_count, value_count);
    }
    return check_offsets(c->offsets, from, to, offset_count, value_count);
}

/* The columns of a call: their buffers, what they are to the kernel, and room for its measures. */
struct batch {
    struct buffers *buffers;
    struct example_column *columns;
    int64_t *measured;
    size_t taken; /* of the buffers */
};

static void release_batch(struct batch *batch)
{
    while (batch->taken)
        release(&batch->buffers[--batch->taken]);
    PyMem_Free(batch->buffers);
    PyMem_Free(batch->columns);
    PyMem_Free(batch->measured);
}

/* One more sequence of columns, for the rows from .. to. */
static int take_columns(struct batch *batch, PyObject *columns, Py_ssize_t count, size_t from, size_t to)
{
    PyObject *parts[7];
    int good = 1;
    for (Py_ssize_t i = 0; good && i < count; i++) {
        PyObject *column = PySequence_GetItem(columns, i);
        good = column != NULL;
        if (good && !(good = PyTuple_Check(column) && PyTuple_Size(column) == 7))
            PyErr_SetString(PyExc_TypeError,
                            "expected tuples of (kind, key, steps, offsets, present, values, string_offsets)");
        for (int part = 0; good && part < 7; part++)
            parts[part] = PyTuple_GetItem(column, part);
        if (good) {
            size_t slot = batch->taken++;
            batch->buffers[slot].taken = 0;
            good = take_column(&batch->buffers[slot], parts, from, to, &batch->columns[slot]);
        }
        Py_XDECREF(column); /* its buffers hold what they are of */
    }
    return good;
}

/* The rows that records first .. first + count have lie in from .. to. */
static int check_rows(const int64_t *rows, size_t row_count, size_t first, size_t count, size_t *from, size_t *to)
{
    *from = first;
    *to = first + count;
    if (!rows)
        return *to >= first || wrong("there are fewer rows than asked for");
    if (first > row_count || count > row_count - first)
        return wrong("there are fewer rows than asked for");
    *from = *to = 0;
    for (size_t i = first; i < first + count; i++) {
        if (rows[i] < 0 || rows[i] > PY_SSIZE_T_MAX - 1)
            return wrong("no row has this number");
        *to = (size_t)rows[i] >= *to ? (size_t)rows[i] + 1 : *to;
    }
    return 1;
}

static PyObject *py_example_records(PyObject *module, PyObject *const *args, Py_ssize_t n)
{
    struct buffers b = {.taken = 0};
    struct batch batch = {.taken = 0};
    const int64_t *rows;
    uint8_t *out;
    int64_t *ends, needed = 0;
    size_t row_count, first, count, room, from, to, done = 0;
    PyObject *result = NULL;
    (void)module;
    if (!binding_arguments("example_records", n, 6, 6) || !binding_position(args[3], PY_SSIZE_T_MAX, &first))
        return NULL;
    int sequence = args[1] != Py_None;
    Py_ssize_t features = PySequence_Size(args[0]), lists = sequence ? PySequence_Size(args[1]) : 0;
    if (features < 0 || lists < 0)
        return NULL;
    size_t total = (size_t)features + (size_t)lists;
    batch.buffers = PyMem_Calloc(total, sizeof *batch.buffers);
    batch.columns = PyMem_Calloc(total, sizeof *batch.columns);
    batch.measured = PyMem_Calloc(total, sizeof *batch.measured);
    if (!batch.buffers || !batch.columns || !batch.measured) {
        PyErr_NoMemory();
    } else if (take(&b, args[2], 0, 8, &rows, &row_count) && take(&b, args[4], 1, 1, &out, &room)
               && take(&b, args[5], 1, 8, &ends, &count) && check_rows(rows, row_count, first, count, &from, &to)
               && take_columns(&batch, args[0], features, from, to)
               && take_columns(&batch, sequence ? args[1] : args[0], lists, from, to)) {
        struct example_batch made = {batch.columns, (size_t)features, (size_t)lists, sequence, rows};
        struct example_measures measures = {.columns = batch.measured};
        Py_BEGIN_ALLOW_THREADS
        done = example_records(&made, first, count, &measures, out, room, ends, &needed);
        Py_END_ALLOW_THREADS
        if (needed >= 0 || wrong("a record does not fit: were the values changed while they were written?"))
            result = Py_BuildValue("nL", (Py_ssize_t)done, (long long)needed);
    }
    release_batch(&batch);
    release(&b);
    return result;
}

PyMethodDef example_methods[] = {
    {"example_decode", FAST(example_decode),
     "example_decode(buffer, records, verify, row, keys, offsets, fields, features, closed, arrays) -> (done, outcome, column)"},
    {"example_locate", FAST(example_locate), "where the wanted features of records lie"},
    {"example_steps", FAST(example_steps), "where the steps of feature lists lie"},
    {"example_count", FAST(example_count), "how many values lists have"},
    {"example_fill", FAST(example_fill), "the values of lists of float or int64"},
    {"example_fill_bytes", FAST(example_fill_bytes), "the values of lists of bytes"},
    {"varints_decode", FAST(varints_decode), "varints_decode(buffer, start, end, out, portable) -> count or -1, for tests"},
    {"bytes_offsets", FAST(bytes_offsets), "where byte strings would be, end to end"},
    {"collect_row", FAST(collect_row), "the values of a row, each kept by its column"},
    {"example_records", FAST(example_records), "the framed records of rows, end to end"},
    {NULL, NULL, 0, NULL},
};
