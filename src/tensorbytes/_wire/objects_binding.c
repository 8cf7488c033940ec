/* Objects of the native frame: many records in one call, both ways. */
#include "binding.h"

#include "header.h"
#include "objects.h"
#include "wire.h"

/* Records that are found and verified at a time, without the GIL. */
#define BATCH 128
/* More than this many records of one object are the general parser's work. */
#define MOST_PARTS (1 << 16)
/* Smaller copies are not worth letting go of the GIL. */
#define GIL_BYTES (64 * 1024)

/* ---- reading ------------------------------------------------------------------ */

/* An object that is being read. */
struct reading {
    PyObject *rows; /* NULL between two objects */
    struct objects_record first;
    size_t at; /* of its first frame */
    uint64_t have;
};

/* (code, shape, where the content is, or a copy of it[, key]); NULL with an exception set on failure. */
static PyObject *row_of(const uint8_t *buf, const struct objects_record *record, int copy)
{
    PyObject *shape = PyTuple_New((Py_ssize_t)record->rank), *content, *key;
    if (!shape)
        return NULL;
    for (uint64_t i = 0; i < record->rank; i++) {
        PyObject *dim = PyLong_FromUnsignedLongLong(record->dims[i]);
        if (!dim || PyTuple_SetItem(shape, (Py_ssize_t)i, dim) < 0) {
            Py_DECREF(shape);
            return NULL;
        }
    }
    content = copy ? PyByteArray_FromStringAndSize((const char *)buf + record->content, (Py_ssize_t)record->content_size)
                   : PyLong_FromSize_t(record->content);
    if (!content) {
        Py_DECREF(shape);
        return NULL;
    }
    if (record->container == OBJECTS_ALONE)
        return Py_BuildValue("KNN", (unsigned long long)record->code, shape, content);
    if (record->container == OBJECTS_DICT) {
        key = PyUnicode_DecodeUTF8((const char *)buf + record->name, (Py_ssize_t)(record->name_end - record->name), NULL);
    } else {
        key = Py_None;
        Py_INCREF(key);
    }
    if (!key) {
        Py_DECREF(shape);
        Py_DECREF(content);
        return NULL;
    }
    return Py_BuildValue("KNNN", (unsigned long long)record->code, shape, content, key);
}

/* Whether a record comes next: of a new object, which is item `last` + 1 of a stream, the first or none at all, or of
 * the one that is being read. */
static int follows(const struct reading *object, const struct objects_record *record, uint64_t last)
{
    if (record->part != object->have)
        return 0;
    if (!object->rows)
        return record->parts <= MOST_PARTS && (record->item == last + 1 || record->item <= 1)
            && (record->container != OBJECTS_ALONE || record->parts == 1)
            && (!record->directory_end || (record->parts > 1 && !record->item));
    return record->parts == object->first.parts && record->item == object->first.item
        && record->container == object->first.container && !record->directory_end;
}

/* Takes one record in; 1 if its object is whole now, 0 if not, -1 if it is not of the usual form, -2 with an exception
 * set. `made` gets the object. */
static int take_in(struct reading *object, const Py_buffer *view, const struct objects_record *record, size_t at,
                   const uint8_t *sizes, int copy, PyObject **made)
{
    PyObject *row = row_of(view->buf, record, copy);
    if (!row) {
        if (!PyErr_ExceptionMatches(PyExc_UnicodeDecodeError))
            return -2;
        PyErr_Clear();
        return -1;
    }
    if (record->container == OBJECTS_ALONE) {
        *made = row;
        return 1;
    }
    if (!object->rows) {
        object->first = *record;
        object->at = at;
        if (!(object->rows = PyList_New(0))) {
            Py_DECREF(row);
            return -2;
        }
    }
    int failed = PyList_Append(object->rows, row) < 0;
    Py_DECREF(row);
    if (failed)
        return -2;
    object->have++;
    if (object->have < record->parts)
        return 0;
    if (object->first.directory_end
        && !objects_listed(view->buf, (size_t)view->len, object->first.directory, object->first.directory_end, object->at,
                           (size_t)object->have, sizes))
        return -1;
    *made = Py_BuildValue("iN", object->first.container, object->rows);
    object->rows = NULL;
    object->have = 0;
    return *made ? 1 : -2;
}

/* Reads objects from *next on, until there are `most` records, or one that is not of the usual form. */
static PyObject *read_objects(const Py_buffer *view, size_t *next, uint64_t *last, size_t most, const uint8_t *sizes, int copy)
{
    struct reading object = {NULL, {0}, 0, 0};
    struct objects_record record;
    int64_t places[2 * BATCH];
    PyObject *out = PyList_New(0), *made = NULL;
    size_t at = *next, count = 0;
    int status = WIRE_OK, state = 0;
    while (out && state >= 0 && (count < most || object.rows)) {
        size_t found;
        Py_BEGIN_ALLOW_THREADS
        found = wire_scan(view->buf, (size_t)view->len, &at, WIRE_SMALL, places, BATCH, &status);
        Py_END_ALLOW_THREADS
        if (!found)
            break;
        for (size_t i = 0; i < found && state >= 0 && (count < most || object.rows); i++, count++) {
            size_t start = (size_t)places[2 * i], size = (size_t)places[2 * i + 1];
            const uint8_t *buf = view->buf;
            state = -1;
            if (size >= WIRE_LARGE_PAYLOAD || !objects_parse(buf, start, start + size, sizes, &record)
                || !follows(&object, &record, *last)
                || (record.code == OBJECTS_BOOL && !objects_are_bools(buf + record.content, record.content_size)))
                break;
            state = take_in(&object, view, &record, start - 12, sizes, copy, &made);
            if (state == 1) {
                *next = start + size + 4;
                *last = record.item;
                if (PyList_Append(out, made) < 0)
                    state = -2;
                Py_DECREF(made);
            }
        }
        if (found < BATCH)
            break;
    }
    Py_XDECREF(object.rows);
    if (state == -2)
        Py_CLEAR(out);
    return out;
}

static PyObject *py_objects_read(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    Py_buffer view, sizes;
    size_t start, most, copy;
    PyObject *result = NULL;
    (void)module;
    if (!binding_arguments("objects_read", count, 6, 6))
        return NULL;
    unsigned long long last = PyLong_AsUnsignedLongLong(args[2]);
    if (PyErr_Occurred() || !binding_position(args[3], PY_SSIZE_T_MAX, &most) || !binding_position(args[5], 1, &copy)
        || PyObject_GetBuffer(args[0], &view, PyBUF_SIMPLE) < 0)
        return NULL;
    if (binding_position(args[1], view.len, &start) && PyObject_GetBuffer(args[4], &sizes, PyBUF_SIMPLE) == 0) {
        if (sizes.len != 256) {
            PyErr_SetString(PyExc_ValueError, "there must be 256 sizes of elements");
        } else {
            uint64_t item = last;
            PyObject *objects = read_objects(&view, &start, &item, most, sizes.buf, (int)copy);
            if (objects)
                result = Py_BuildValue("NnK", objects, (Py_ssize_t)start, (unsigned long long)item);
        }
        PyBuffer_Release(&sizes);
    }
    PyBuffer_Release(&view);
    return result;
}

/* ---- writing ------------------------------------------------------------------ */

/* A row (head, key, origin, array) taken apart; what is borrowed stays alive with the rows. */
static int take_part(PyObject *row, int container, Py_buffer *view, struct objects_part *part)
{
    PyObject *head = PyTuple_GetItem(row, 0), *key = PyTuple_GetItem(row, 1), *origin = PyTuple_GetItem(row, 2);
    PyObject *array = PyTuple_GetItem(row, 3);
    char *bytes;
    Py_ssize_t n;
    if (!head || !key || !origin || !array || PyBytes_AsStringAndSize(head, &bytes, &n) < 0)
        return -1;
    part->head = (const uint8_t *)bytes;
    part->head_size = (size_t)n;
    if (PyBytes_AsStringAndSize(origin, &bytes, &n) < 0)
        return -1;
    part->origin = (const uint8_t *)bytes;
    part->origin_size = (size_t)n;
    if (container == OBJECTS_DICT) {
        if (!PyUnicode_CheckExact(key)) { /* a subclass would come back as plain text, and two of them may be the same */
            PyErr_SetString(PyExc_TypeError, "a key must be text, and nothing else");
            return -1;
        }
        const char *name = PyUnicode_AsUTF8AndSize(key, &n);
        if (!name)
            return -1;
        part->name = (const uint8_t *)name;
        part->name_size = (size_t)n;
    }
    if (PyObject_GetBuffer(array, view, PyBUF_SIMPLE) < 0)
        return -1;
    part->data = view->buf;
    part->data_size = (size_t)view->len;
    return 0;
}

/* Whether an array was seen before; -1 with an exception set on failure. One without memory is known by itself. */
static int is_seen(PyObject *seen, const struct objects_part *part, PyObject *row)
{
    PyObject *address = PyLong_FromVoidPtr(part->data_size ? (void *)part->data : (void *)PyTuple_GetItem(row, 3));
    if (!address)
        return -1;
    int found = PySet_Contains(seen, address);
    if (found == 0 && PySet_Add(seen, address) < 0)
        found = -1;
    Py_DECREF(address);
    return found;
}

/* The bytes of the rows, or None where that is the general writer's work: too much, or the same memory twice. */
static PyObject *write_rows(PyObject *rows, struct objects_whole *whole, Py_buffer *views, size_t *taken, size_t most)
{
    PyObject *seen = whole->count > 1 ? PySet_New(NULL) : NULL, *result = NULL;
    size_t total = 0;
    int usual = 1, ready = seen || whole->count == 1;
    for (size_t i = 0; ready && usual && i < whole->count; i++) {
        PyObject *row = PyList_GetItem(rows, (Py_ssize_t)i);
        if (!row || take_part(row, whole->container, &views[i], &whole->parts[i]) < 0)
            break;
        ++*taken;
        total += whole->parts[i].data_size;
        int found = seen ? is_seen(seen, &whole->parts[i], row) : 0;
        if (found < 0)
            break;
        usual = !found && total <= most;
    }
    Py_XDECREF(seen);
    if (!usual)
        Py_RETURN_NONE;
    if (!ready || *taken < whole->count)
        return NULL;
    size_t size = objects_measure(whole);
    for (size_t i = 0; i < whole->count && size; i++)
        if (whole->parts[i].code == OBJECTS_BOOL && !objects_are_bools(whole->parts[i].data, whole->parts[i].data_size))
            size = 0;
    if (!size)
        Py_RETURN_NONE;
    result = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)size);
    if (!result)
        return NULL;
    uint8_t *out = (uint8_t *)PyBytes_AsString(result);
    if (size < GIL_BYTES) {
        objects_write(out, whole);
    } else {
        Py_BEGIN_ALLOW_THREADS
        objects_write(out, whole);
        Py_END_ALLOW_THREADS
    }
    return result;
}

static PyObject *py_objects_write(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    size_t container, at, most, taken = 0;
    PyObject *result = NULL;
    (void)module;
    if (!binding_arguments("objects_write", count, 5, 5) || !binding_position(args[1], OBJECTS_TUPLE, &container))
        return NULL;
    unsigned long long item = PyLong_AsUnsignedLongLong(args[2]);
    Py_ssize_t n = PyList_Size(args[0]);
    if (n < 0 || PyErr_Occurred() || !binding_position(args[3], PY_SSIZE_T_MAX / 4, &at)
        || !binding_position(args[4], UINT32_MAX / 2, &most))
        return NULL;
    if (n == 0 || n > MOST_PARTS || (container == OBJECTS_ALONE && n != 1))
        Py_RETURN_NONE;
    struct objects_part alone = {0};
    Py_buffer view;
    struct objects_whole whole = {&alone, (size_t)n, (int)container, item, at};
    Py_buffer *views = &view;
    if (n > 1) {
        whole.parts = PyMem_Calloc((size_t)n, sizeof *whole.parts);
        views = PyMem_Calloc((size_t)n, sizeof *views);
    }
    if (whole.parts && views)
        result = write_rows(args[0], &whole, views, &taken, most);
    else
        PyErr_NoMemory();
    while (taken > 0)
        PyBuffer_Release(&views[--taken]);
    if (n > 1) {
        PyMem_Free(views);
        PyMem_Free(whole.parts);
    }
    return result;
}

/* ---- headers of safetensors files ------------------------------------------------ */

#define MOST_DTYPES 64

/* The dtypes as C strings; 0 with an exception set where there are too many, or a name is too long. */
static int take_dtypes(PyObject *names, PyObject *bits, char (*out)[16], struct header_dtypes *dtypes)
{
    char *bytes, *name;
    Py_ssize_t count, n, length = PyTuple_Size(names);
    if (length < 0 || PyBytes_AsStringAndSize(bits, &bytes, &count) < 0)
        return 0;
    int fits = count == length && count > 0 && count <= MOST_DTYPES;
    for (Py_ssize_t i = 0; fits && i < count; i++) {
        if (PyBytes_AsStringAndSize(PyTuple_GetItem(names, i), &name, &n) < 0)
            return 0;
        fits = n < 16;
        for (Py_ssize_t k = 0; fits && k < n; k++)
            out[i][k] = name[k];
    }
    if (!fits)
        PyErr_SetString(PyExc_ValueError, "dtypes have short names, and as many widths");
    *dtypes = (struct header_dtypes){(const char (*)[16])out, (const uint8_t *)bytes, (size_t)count};
    return fits;
}

/* The names of all entries; NULL with an exception set on failure. */
static PyObject *names_of(const uint8_t *buf, const int64_t *table, size_t count)
{
    PyObject *names = PyList_New((Py_ssize_t)count);
    for (size_t i = 0; names && i < count; i++) {
        const int64_t *entry = table + HEADER_COLUMNS * i;
        PyObject *name = PyUnicode_DecodeUTF8((const char *)buf + entry[HEADER_NAME],
                                              (Py_ssize_t)(entry[HEADER_NAME_END] - entry[HEADER_NAME]), NULL);
        if (!name || PyList_SetItem(names, (Py_ssize_t)i, name) < 0)
            Py_CLEAR(names);
    }
    return names;
}

static PyObject *read_header(const Py_buffer *view, uint64_t size, const struct header_dtypes *dtypes)
{
    struct header_found found, again;
    PyObject *table, *dims, *names = NULL, *result = NULL;
    if (!header_read(view->buf, (size_t)view->len, size, dtypes, NULL, NULL, &found))
        Py_RETURN_NONE;
    table = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(found.entries * HEADER_COLUMNS * sizeof(int64_t)));
    dims = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(found.dims * sizeof(int64_t)));
    /* The header is bytes: it is the same in both readings. */
    if (table && dims) {
        int64_t *entries = (int64_t *)PyBytes_AsString(table);
        if (header_read(view->buf, (size_t)view->len, size, dtypes, entries, (int64_t *)PyBytes_AsString(dims), &again))
            names = names_of(view->buf, entries, found.entries);
        if (names)
            result = Py_BuildValue("OOO(nn)", names, table, dims, (Py_ssize_t)found.metadata, (Py_ssize_t)found.metadata_end);
        if (!result && PyErr_ExceptionMatches(PyExc_UnicodeDecodeError)) {
            PyErr_Clear();
            result = Py_None;
            Py_INCREF(result);
        }
    }
    Py_XDECREF(names);
    Py_XDECREF(table);
    Py_XDECREF(dims);
    return result;
}

static PyObject *py_header_read(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    char names[MOST_DTYPES][16] = {{0}};
    struct header_dtypes dtypes;
    Py_buffer view;
    size_t size;
    (void)module;
    if (!binding_arguments("header_read", count, 4, 4) || !PyBytes_Check(args[0])) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_TypeError, "a header is bytes, which don't change");
        return NULL;
    }
    if (!binding_position(args[1], PY_SSIZE_T_MAX, &size) || !take_dtypes(args[2], args[3], names, &dtypes)
        || PyObject_GetBuffer(args[0], &view, PyBUF_SIMPLE) < 0)
        return NULL;
    PyObject *result = read_header(&view, size, &dtypes);
    PyBuffer_Release(&view);
    return result;
}

PyMethodDef object_methods[] = {
    {"header_read", FAST(header_read), "header_read(header, size, dtypes, bits) -> (names, table, dims, metadata) or None"},
    {"objects_read", FAST(objects_read), "objects_read(buffer, start, item, most, sizes, copy) -> (objects, next, item)"},
    {"objects_write", FAST(objects_write), "objects_write(rows, container, item, at, most) -> bytes or None"},
    {NULL, NULL, 0, NULL},
};
