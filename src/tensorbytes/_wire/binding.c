/* The limited-API shim over wire.h: buffers and integers in, buffers and integers out.
 *
 * One build serves every CPython from 3.11 on. Work on more than GIL_BYTES runs
 * without the GIL. Python exceptions are raised only for wrong calls; what is
 * wrong with data is returned as numbers and worded in Python.
 */
#include "binding.h"

#ifdef __linux__
#include <fcntl.h> /* after pyconfig.h, which asks for all of it */
#endif

#include "large.h"
#include "salvage.h"
#include "varints.h"
#include "wire.h"

#define GIL_BYTES (64 * 1024)
/* How much is worked on between two looks at signals: some hundredths of a second. */
#define PORTION_BYTES (64 * 1024 * 1024)

static int take(PyObject *object, Py_buffer *view)
{
    return PyObject_GetBuffer(object, view, PyBUF_SIMPLE);
}

int binding_arguments(const char *name, Py_ssize_t got, Py_ssize_t least, Py_ssize_t most)
{
    if (got >= least && got <= most)
        return 1;
    PyErr_Format(PyExc_TypeError, "%s takes %zd to %zd arguments, got %zd", name, least, most, got);
    return 0;
}

int binding_position(PyObject *object, Py_ssize_t most, size_t *out)
{
    Py_ssize_t value = PyLong_AsSsize_t(object);
    if (value == -1 && PyErr_Occurred())
        return 0;
    if (value < 0 || value > most) {
        PyErr_Format(PyExc_IndexError, "position %zd is outside 0..%zd", value, most);
        return 0;
    }
    *out = (size_t)value;
    return 1;
}

int binding_portable(PyObject *const *args, Py_ssize_t count, Py_ssize_t place)
{
    return count > place ? PyObject_IsTrue(args[place]) : 0;
}

/* Faults memory in; -1 if a signal handler raised on the way. */
static int prefault_unlocked(uint8_t *memory, Py_ssize_t n)
{
    for (Py_ssize_t portion; n > 0; memory += portion, n -= portion) {
        portion = n < PORTION_BYTES ? n : PORTION_BYTES;
        Py_BEGIN_ALLOW_THREADS
        large_prefault(memory, (size_t)portion);
        Py_END_ALLOW_THREADS
        if (n > portion && PyErr_CheckSignals() < 0)
            return -1;
    }
    return 0;
}

static PyObject *py_prefault(PyObject *module, PyObject *buffer)
{
    Py_buffer view;
    (void)module;
    if (PyObject_GetBuffer(buffer, &view, PyBUF_WRITABLE) < 0)
        return NULL;
    int interrupted = prefault_unlocked(view.buf, view.len) < 0;
    PyBuffer_Release(&view);
    if (interrupted)
        return NULL;
    Py_RETURN_NONE;
}

/* A hint: where the system knows no such call, or refuses it, nothing happens until fsync, which tells of errors. */
static PyObject *py_start_writeback(PyObject *module, PyObject *const *args, Py_ssize_t n)
{
    size_t fd, offset, size;
    (void)module;
    if (!binding_arguments("start_writeback", n, 3, 3) || !binding_position(args[0], INT_MAX, &fd)
        || !binding_position(args[1], PY_SSIZE_T_MAX, &offset) || !binding_position(args[2], PY_SSIZE_T_MAX, &size))
        return NULL;
#ifdef __linux__
    Py_BEGIN_ALLOW_THREADS
    (void)!sync_file_range((int)fd, (off_t)offset, (off_t)size, SYNC_FILE_RANGE_WRITE);
    Py_END_ALLOW_THREADS
#endif
    Py_RETURN_NONE;
}

/* A hint, too: where it is refused, or there is no room, writing tells. The file stays as long as it is. */
static PyObject *py_reserve(PyObject *module, PyObject *const *args, Py_ssize_t n)
{
    size_t fd, offset, size;
    (void)module;
    if (!binding_arguments("reserve", n, 3, 3) || !binding_position(args[0], INT_MAX, &fd)
        || !binding_position(args[1], PY_SSIZE_T_MAX / 2, &offset) || !binding_position(args[2], PY_SSIZE_T_MAX / 2, &size))
        return NULL;
#ifdef __linux__
    Py_BEGIN_ALLOW_THREADS
    (void)!fallocate((int)fd, FALLOC_FL_KEEP_SIZE, (off_t)offset, (off_t)size);
    Py_END_ALLOW_THREADS
#endif
    Py_RETURN_NONE;
}

/* A bytes object to be written in parts, the largest of which has `largest` bytes. Large parts
 * fault their memory in themselves; for many small ones it is done here. */
static PyObject *fresh_bytes(Py_ssize_t n, Py_ssize_t largest)
{
    PyObject *result = PyBytes_FromStringAndSize(NULL, n);
    if (result && n >= LARGE_BYTES && largest < LARGE_BYTES
        && prefault_unlocked((uint8_t *)PyBytes_AsString(result), n) < 0)
        Py_CLEAR(result);
    return result;
}

/* Goes on with a checksum; -1 if a signal handler raised on the way. */
static int crc_unlocked(uint32_t *crc, const uint8_t *buf, Py_ssize_t n)
{
    if (n < GIL_BYTES) {
        *crc = wire_crc32c(*crc, buf, (size_t)n);
        return 0;
    }
    for (Py_ssize_t portion; n > 0; buf += portion, n -= portion) {
        portion = n < PORTION_BYTES ? n : PORTION_BYTES;
        Py_BEGIN_ALLOW_THREADS
        *crc = wire_crc32c(*crc, buf, (size_t)portion);
        Py_END_ALLOW_THREADS
        if (n > portion && PyErr_CheckSignals() < 0)
            return -1;
    }
    return 0;
}

/* The same, and copies. */
static int copy_unlocked(uint32_t *crc, uint8_t *dst, const uint8_t *src, Py_ssize_t n)
{
    if (n < GIL_BYTES) {
        *crc = wire_copy_crc32c(*crc, dst, src, (size_t)n);
        return 0;
    }
    for (Py_ssize_t portion; n > 0; dst += portion, src += portion, n -= portion) {
        portion = n < PORTION_BYTES ? n : PORTION_BYTES;
        Py_BEGIN_ALLOW_THREADS
        *crc = large_copy_crc32c(*crc, dst, src, (size_t)portion);
        Py_END_ALLOW_THREADS
        if (n > portion && PyErr_CheckSignals() < 0)
            return -1;
    }
    return 0;
}

static PyObject *py_crc32c(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    Py_buffer view;
    unsigned long before = 0;
    (void)module;
    if (!binding_arguments("crc32c", count, 1, 2))
        return NULL;
    if (count == 2 && (before = PyLong_AsUnsignedLong(args[1])) == (unsigned long)-1 && PyErr_Occurred())
        return NULL;
    if (take(args[0], &view) < 0)
        return NULL;
    uint32_t crc = (uint32_t)before;
    int interrupted = crc_unlocked(&crc, view.buf, view.len) < 0;
    PyBuffer_Release(&view);
    return interrupted ? NULL : PyLong_FromUnsignedLong(crc);
}

static PyObject *py_crc32c_portable(PyObject *module, PyObject *buffer)
{
    Py_buffer view;
    (void)module;
    if (take(buffer, &view) < 0)
        return NULL;
    uint32_t crc = wire_crc32c_portable(0, view.buf, (size_t)view.len);
    PyBuffer_Release(&view);
    return PyLong_FromUnsignedLong(crc);
}

static PyObject *py_scan(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    Py_buffer view, out;
    size_t next = 0, found = 0;
    size_t verify;
    int status = 0;
    (void)module;
    if (!binding_arguments("scan", count, 4, 4) || take(args[0], &view) < 0)
        return NULL;
    if (!binding_position(args[2], WIRE_SMALL, &verify) || !binding_position(args[1], view.len, &next)
        || PyObject_GetBuffer(args[3], &out, PyBUF_WRITABLE) < 0) {
        PyBuffer_Release(&view);
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS
    found = wire_scan(view.buf, (size_t)view.len, &next, (int)verify, out.buf,
                      (size_t)out.len / (2 * sizeof(int64_t)), &status);
    Py_END_ALLOW_THREADS
    PyBuffer_Release(&out);
    PyBuffer_Release(&view);
    return Py_BuildValue("nni", (Py_ssize_t)found, (Py_ssize_t)next, status);
}

static PyObject *py_frame_header(PyObject *module, PyObject *length)
{
    uint8_t out[12];
    unsigned long long value = PyLong_AsUnsignedLongLong(length);
    (void)module;
    if (PyErr_Occurred())
        return NULL;
    wire_frame_header(out, value);
    return PyBytes_FromStringAndSize((const char *)out, sizeof out);
}

static PyObject *py_frame(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    Py_buffer prefix, data;
    PyObject *result = NULL;
    (void)module;
    if (!binding_arguments("frame", count, 2, 2) || take(args[0], &prefix) < 0)
        return NULL;
    if (take(args[1], &data) < 0) {
        PyBuffer_Release(&prefix);
        return NULL;
    }
    Py_ssize_t length = prefix.len + data.len;
    result = fresh_bytes(12 + length + 4, data.len);
    if (result) {
        uint8_t *out = (uint8_t *)PyBytes_AsString(result);
        wire_frame_header(out, (uint64_t)length);
        uint32_t crc = wire_copy_crc32c(0, out + 12, prefix.buf, (size_t)prefix.len);
        if (copy_unlocked(&crc, out + 12 + prefix.len, data.buf, data.len) < 0)
            Py_CLEAR(result);
        else
            wire_put_u32(out + 12 + length, wire_mask(crc));
    }
    PyBuffer_Release(&data);
    PyBuffer_Release(&prefix);
    return result;
}

/* The bytes of all parts of one record, and of the largest part so far; -1 with an exception set on failure. */
static Py_ssize_t record_size(PyObject *parts, Py_ssize_t *largest)
{
    Py_ssize_t size = 0, n = PySequence_Size(parts);
    for (Py_ssize_t i = 0; i < n; i++) {
        Py_buffer view;
        PyObject *part = PySequence_GetItem(parts, i);
        if (!part || take(part, &view) < 0) {
            Py_XDECREF(part);
            return -1;
        }
        size += view.len;
        *largest = view.len > *largest ? view.len : *largest;
        PyBuffer_Release(&view);
        Py_DECREF(part);
    }
    return n < 0 ? -1 : size;
}

/* Records of more parts than this are rare, and large. */
#define FEW_PARTS 8

struct parts {
    uint8_t *out;
    size_t size;
    const Py_buffer *views;
    Py_ssize_t n;
    uint32_t crc;
};

static void copy_them(void *argument)
{
    struct parts *parts = argument;
    uint8_t *out = parts->out;
    large_fault_in(out, parts->size);
    for (Py_ssize_t i = 0; i < parts->n; out += parts->views[i++].len)
        parts->crc = large_copy_crc32c(parts->crc, out, parts->views[i].buf, (size_t)parts->views[i].len);
}

/* Copies all parts one after another, for their checksum; -1 if a signal handler raised on the way. Many small ones
 * that are much together are shared out between two threads. */
static int copy_parts(uint32_t *crc, uint8_t *out, const Py_buffer *views, Py_ssize_t n, Py_ssize_t length)
{
    Py_ssize_t half = 0, middle = 0;
    while (n > FEW_PARTS && half < n && middle < length / 2)
        middle += views[half++].len;
    if (middle < LARGE_BYTES || length - middle < LARGE_BYTES) {
        for (Py_ssize_t i = 0; i < n; out += views[i++].len)
            if (copy_unlocked(crc, out, views[i].buf, views[i].len) < 0)
                return -1;
        return 0;
    }
    struct parts both[2] = {{out, (size_t)middle, views, half, 0},
                            {out + middle, (size_t)(length - middle), views + half, n - half, 0}};
    Py_BEGIN_ALLOW_THREADS
    large_both(copy_them, &both[0], &both[1]);
    Py_END_ALLOW_THREADS
    *crc = wire_crc32c_join(both[0].crc, both[1].crc, (uint64_t)(length - middle));
    return 0;
}

/* Writes one framed record at out, which has room for `length` payload bytes. */
static int write_record(uint8_t *out, PyObject *parts, Py_ssize_t length)
{
    uint32_t crc = 0;
    Py_ssize_t total = 0, taken = 0, n = PySequence_Size(parts);
    Py_buffer few[FEW_PARTS], *views = n <= FEW_PARTS ? few : PyMem_Calloc((size_t)n, sizeof *views);
    if (n < 0 || !views)
        return n < 0 ? -1 : (PyErr_NoMemory(), -1);
    for (; taken < n; taken++) {
        PyObject *part = PySequence_GetItem(parts, taken);
        int failed = !part || take(part, &views[taken]) < 0;
        Py_XDECREF(part);
        if (failed)
            break;
        total += views[taken].len;
    }
    if (taken == n && total != length)
        PyErr_SetString(PyExc_BufferError, "a buffer changed its size while it was being written");
    int sound = taken == n && total == length;
    if (sound) {
        wire_frame_header(out, (uint64_t)length);
        sound = copy_parts(&crc, out + 12, views, n, length) == 0;
        wire_put_u32(out + 12 + length, wire_mask(crc));
    }
    while (taken > 0)
        PyBuffer_Release(&views[--taken]);
    if (views != few)
        PyMem_Free(views);
    return sound ? 0 : -1;
}

static PyObject *py_frames(PyObject *module, PyObject *records)
{
    Py_ssize_t total = 0, largest = 0, n = PySequence_Size(records);
    PyObject *result;
    (void)module;
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *parts = PySequence_GetItem(records, i);
        Py_ssize_t size = parts ? record_size(parts, &largest) : -1;
        Py_XDECREF(parts);
        if (size < 0)
            return NULL;
        if (size >= 2 * LARGE_BYTES && size > largest)
            largest = size; /* two threads will copy its parts, and fault their memory in */
        total += 16 + size;
    }
    if (n < 0 || !(result = fresh_bytes(total, largest)))
        return NULL;
    uint8_t *out = (uint8_t *)PyBytes_AsString(result), *end = out + total;
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *parts = PySequence_GetItem(records, i);
        Py_ssize_t size = parts ? record_size(parts, &largest) : -1;
        int failed = size < 0;
        if (!failed && size > end - out - 16) {
            PyErr_SetString(PyExc_BufferError, "a buffer changed its size while it was being written");
            failed = 1;
        }
        failed = failed || write_record(out, parts, size) < 0;
        Py_XDECREF(parts);
        if (failed) {
            Py_DECREF(result);
            return NULL;
        }
        out += 16 + size;
    }
    if (out != end) {
        PyErr_SetString(PyExc_BufferError, "a buffer changed its size while it was being written");
        Py_DECREF(result);
        return NULL;
    }
    return result;
}

static PyObject *tensor_tuple(const struct wire_tensor *tensor)
{
    PyObject *shape = PyTuple_New((Py_ssize_t)tensor->rank);
    if (!shape)
        return NULL;
    for (uint64_t i = 0; i < tensor->rank; i++) {
        PyObject *dim = PyLong_FromUnsignedLongLong(tensor->dims[i]);
        if (!dim || PyTuple_SetItem(shape, (Py_ssize_t)i, dim) < 0) {
            Py_DECREF(shape);
            return NULL;
        }
    }
    return Py_BuildValue("KNnnK", (unsigned long long)tensor->dtype, shape, (Py_ssize_t)tensor->content,
                         (Py_ssize_t)tensor->content_size, (unsigned long long)tensor->item);
}

static PyObject *py_plain_tensor(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    Py_buffer view;
    struct wire_tensor tensor;
    size_t start, end;
    int plain;
    (void)module;
    if (!binding_arguments("plain_tensor", count, 3, 3) || take(args[0], &view) < 0)
        return NULL;
    if (!binding_position(args[2], view.len, &end) || !binding_position(args[1], (Py_ssize_t)end, &start)) {
        PyBuffer_Release(&view);
        return NULL;
    }
    plain = wire_plain_tensor(view.buf, start, end, &tensor) && !tensor.named;
    PyBuffer_Release(&view);
    if (!plain)
        Py_RETURN_NONE;
    return tensor_tuple(&tensor);
}

static PyObject *py_plain_record(PyObject *module, PyObject *buffer)
{
    Py_buffer view;
    struct wire_tensor tensor;
    int64_t record[2];
    size_t next = 0;
    int status = 0, plain = 0, interrupted = 0;
    (void)module;
    if (take(buffer, &view) < 0)
        return NULL;
    /* The head first: what is not plain is not summed here, since it will be elsewhere. */
    plain = wire_scan(view.buf, (size_t)view.len, &next, 0, record, 1, &status) == 1 && next == (size_t)view.len
        && wire_plain_tensor(view.buf, (size_t)record[0], (size_t)(record[0] + record[1]), &tensor);
    if (plain) {
        size_t end = (size_t)(record[0] + record[1]);
        uint32_t crc = 0;
        interrupted = crc_unlocked(&crc, (const uint8_t *)view.buf + record[0], record[1]) < 0;
        plain = wire_get_u32((const uint8_t *)view.buf + end) == wire_mask(crc);
    }
    PyBuffer_Release(&view);
    if (interrupted)
        return NULL;
    if (!plain)
        Py_RETURN_NONE;
    return tensor_tuple(&tensor);
}

static PyObject *py_fields(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    Py_buffer view;
    struct wire_field field;
    size_t start, end, stop;
    PyObject *found;
    (void)module;
    if (!binding_arguments("fields", count, 4, 4) || !binding_position(args[3], 255, &stop) || take(args[0], &view) < 0)
        return NULL;
    found = binding_position(args[2], view.len, &end) && binding_position(args[1], (Py_ssize_t)end, &start) ? PyList_New(0) : NULL;
    while (found && wire_next_field(view.buf, &start, end, (uint8_t)stop, &field)) {
        PyObject *item = Py_BuildValue("KiKKK", (unsigned long long)field.number, field.wire,
                                       (unsigned long long)field.start, (unsigned long long)field.end,
                                       (unsigned long long)field.at);
        if (!item || PyList_Append(found, item) < 0)
            Py_CLEAR(found);
        Py_XDECREF(item);
    }
    PyBuffer_Release(&view);
    return found ? Py_BuildValue("Nn", found, (Py_ssize_t)start) : NULL;
}

/* Offsets must be aligned, start at 0, never fall, and end within the data. */
static int offsets_valid(const Py_buffer *offsets, Py_ssize_t data_size)
{
    const int64_t *p = offsets->buf;
    Py_ssize_t n = offsets->len / (Py_ssize_t)sizeof(int64_t);
    int aligned = (uintptr_t)p % 8 == 0, valid = aligned && n >= 1 && p[0] >= 0 && p[n - 1] <= data_size;
    for (Py_ssize_t i = 1; valid && i < n; i++)
        valid = p[i] >= p[i - 1];
    if (!valid)
        PyErr_SetString(PyExc_ValueError, aligned ? "string offsets must rise from 0 to the size of the data"
                                                  : "expected an array that is aligned");
    return valid;
}

static PyObject *py_strings_pack(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    Py_buffer offsets, data;
    PyObject *result = NULL;
    size_t tag;
    (void)module;
    if (!binding_arguments("strings_pack", count, 3, 3) || !binding_position(args[0], 127, &tag) || take(args[1], &offsets) < 0)
        return NULL;
    if (take(args[2], &data) < 0) {
        PyBuffer_Release(&offsets);
        return NULL;
    }
    if (offsets_valid(&offsets, data.len)) {
        size_t n = (size_t)offsets.len / sizeof(int64_t) - 1;
        result = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)wire_strings_size(offsets.buf, n));
        if (result)
            wire_strings_pack((uint8_t *)PyBytes_AsString(result), (uint8_t)tag, offsets.buf, n, data.buf);
    }
    PyBuffer_Release(&data);
    PyBuffer_Release(&offsets);
    return result;
}

static PyObject *py_strings_unpack(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    Py_buffer view;
    size_t start, end, tag, stop, found;
    uint64_t total;
    PyObject *offsets = NULL, *data = NULL, *result = NULL;
    (void)module;
    if (!binding_arguments("strings_unpack", count, 4, 4) || !binding_position(args[3], 127, &tag) || take(args[0], &view) < 0)
        return NULL;
    if (binding_position(args[2], view.len, &end) && binding_position(args[1], (Py_ssize_t)end, &start)) {
        found = wire_strings_count(view.buf, start, end, (uint8_t)tag, &total, &stop);
        offsets = PyByteArray_FromStringAndSize(NULL, (Py_ssize_t)((found + 1) * sizeof(int64_t)));
        data = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)total);
        if (offsets && data
            && !wire_strings_fill(view.buf, start, end, (uint8_t)tag, found, total,
                                  (int64_t *)(void *)PyByteArray_AsString(offsets), (uint8_t *)PyBytes_AsString(data))) {
            /* They changed meanwhile: no run at all, so that the general parser reads on. */
            const int64_t none = 0;
            Py_DECREF(offsets);
            Py_DECREF(data);
            offsets = PyByteArray_FromStringAndSize((const char *)&none, sizeof none);
            data = PyBytes_FromStringAndSize(NULL, 0);
            stop = start;
        }
        if (offsets && data)
            result = Py_BuildValue("OOn", offsets, data, (Py_ssize_t)stop);
        Py_XDECREF(offsets);
        Py_XDECREF(data);
    }
    PyBuffer_Release(&view);
    return result;
}

static PyObject *py_resync(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    Py_buffer view;
    size_t start, end;
    PyObject *result = NULL;
    (void)module;
    if (!binding_arguments("resync", count, 3, 3) || take(args[0], &view) < 0)
        return NULL;
    if (binding_position(args[2], view.len, &end) && binding_position(args[1], (Py_ssize_t)end, &start)) {
        Py_BEGIN_ALLOW_THREADS
        start = salvage_resync(view.buf, start, end);
        Py_END_ALLOW_THREADS
        result = PyLong_FromSize_t(start);
    }
    PyBuffer_Release(&view);
    return result;
}

static PyObject *py_closing(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    Py_buffer view;
    size_t start, end;
    unsigned long crc;
    PyObject *result = NULL;
    (void)module;
    if (!binding_arguments("closing", count, 4, 4))
        return NULL;
    if ((crc = PyLong_AsUnsignedLong(args[3])) == (unsigned long)-1 && PyErr_Occurred())
        return NULL;
    if (take(args[0], &view) < 0)
        return NULL;
    if (binding_position(args[2], view.len, &end) && binding_position(args[1], (Py_ssize_t)end, &start)) {
        uint32_t rolling = (uint32_t)crc;
        Py_BEGIN_ALLOW_THREADS
        start = salvage_closing(view.buf, start, end, &rolling);
        Py_END_ALLOW_THREADS
        result = Py_BuildValue("nk", (Py_ssize_t)start, (unsigned long)rolling);
    }
    PyBuffer_Release(&view);
    return result;
}

static PyMethodDef methods[] = {
    {"crc32c", FAST(crc32c), "crc32c(buffer, crc=0) -> int"},
    {"crc32c_portable", py_crc32c_portable, METH_O, "The table-driven variant, for tests."},
    {"scan", FAST(scan), "scan(buffer, start, verify, out) -> (found, next, status)"},
    {"frame", FAST(frame), "frame(prefix, data) -> bytes of one TFRecord"},
    {"frame_header", py_frame_header, METH_O, "frame_header(length) -> the 12 bytes before a payload"},
    {"frames", py_frames, METH_O, "frames([[part, ...], ...]) -> bytes of many TFRecords"},
    {"plain_tensor", FAST(plain_tensor), "plain_tensor(buffer, start, end) -> (dtype, shape, at, size, item) or None"},
    {"plain_record", py_plain_record, METH_O, "The same for a buffer that is exactly one sound record, whether it has a name or not."},
    {"fields", FAST(fields), "fields(buffer, start, end, stop) -> ([(number, wire, start, end, at), ...], next)"},
    {"resync", FAST(resync), "resync(buffer, start, end) -> where the next sound header stands"},
    {"closing", FAST(closing), "closing(buffer, start, end, crc) -> (where the payload ends, its crc)"},
    {"strings_pack", FAST(strings_pack), "strings_pack(tag, offsets, data) -> bytes"},
    {"strings_unpack", FAST(strings_unpack), "strings_unpack(buffer, start, end, tag) -> (offsets, data, stop)"},
    {"prefault", py_prefault, METH_O, "prefault(buffer): fault large fresh memory in, the cheapest way"},
    {"reserve", FAST(reserve), "reserve(fd, offset, size): have the disk set blocks aside, without making the file longer"},
    {"start_writeback", FAST(start_writeback), "start_writeback(fd, offset, size): have the disk begin, without waiting"},
    {NULL, NULL, 0, NULL},
};

static int add_others(PyObject *module)
{
    PyMethodDef *others[] = {
        example_methods, codec_methods, column_methods, gather_methods, number_methods, object_methods, row_methods,
    };
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (PyModule_AddFunctions(module, others[i]) < 0)
            return -1;
    return 0;
}

/* Nothing here is kept between calls but tables that are filled once, on import; buffers are pinned for as long as
 * they are used. So no lock is needed, whether there is a GIL or not. */
static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, (void *)add_others},
#ifdef Py_GIL_DISABLED
    {Py_mod_gil, Py_MOD_GIL_NOT_USED},
#endif
    {0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_kernel", "The compiled kernel; see reference.py.", 0, methods, slots, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__kernel(void)
{
    wire_init();
    varints_init();
    return PyModuleDef_Init(&definition);
}
