/* Records read by their places, out of several files in one call.
 *
 * A file of small records is mapped, and its bytes are copied through a pipe: one system call takes hundreds of
 * records, each of which would cost one of its own with pread. Nothing here touches mapped memory itself. The system
 * copies it, and fails where a file was cut meanwhile, which would end a process that reads it.
 */
#include "binding.h"

#ifndef _WIN32
#include <errno.h>
#include <unistd.h>
#endif
#ifdef __linux__
#include <fcntl.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/uio.h>
#endif

#include <string.h>

#include "wire.h"

#define MAP_NAME "tensorbytes.map"
/* Places and lengths are below this: sums of some of them don't overflow. */
#define MOST (PY_SSIZE_T_MAX / 4)
/* What a pipe holds, and the spans that are copied at a time. */
#define PIPE_BYTES (64 * 1024)
#define MOST_SPANS 256
/* Of a span as long as this, the system is told before: it reads a cold one in one go. */
#define LONG_SPAN (16 * 1024)
/* How much of a shorter one the processor is told of. */
#define FETCHED_BYTES 1024
#define LINE_BYTES 64
/* How many records ahead their places are looked up. */
#define AHEAD 64

/* A process has some tens of thousands of maps at most, for all that it does. */
#define MOST_MAPS 8192

struct map {
    uint8_t *start;
    size_t size;
};

/* Where a file is read from: mapped memory, or else an open file, or -1. */
struct source {
    const struct map *map;
    int fd;
};

/* Some bytes of a file, which hold records one after another. */
struct span {
    const struct source *source;
    uint64_t offset;
    size_t size;
};

#ifdef __linux__
static atomic_int maps;

static void unmap(PyObject *capsule)
{
    struct map *map = PyCapsule_GetPointer(capsule, MAP_NAME);
    munmap(map->start, map->size);
    PyMem_Free(map);
    atomic_fetch_sub(&maps, 1);
}
#endif

static PyObject *py_map_file(PyObject *module, PyObject *const *args, Py_ssize_t n)
{
    size_t fd, size;
    (void)module;
    if (!binding_arguments("map_file", n, 2, 2) || !binding_position(args[0], INT_MAX, &fd)
        || !binding_position(args[1], MOST, &size))
        return NULL;
#ifdef __linux__
    void *start = MAP_FAILED;
    if (atomic_fetch_add(&maps, 1) < MOST_MAPS && size)
        start = mmap(NULL, size, PROT_READ, MAP_SHARED, (int)fd, 0);
    if (start != MAP_FAILED) {
        struct map *map = PyMem_Malloc(sizeof *map);
        PyObject *made = NULL;
        (void)madvise(start, size, MADV_RANDOM); /* a page that is not in memory is read without those around it */
        if (map) {
            *map = (struct map){start, size};
            made = PyCapsule_New(map, MAP_NAME, unmap);
        } else {
            PyErr_NoMemory();
        }
        if (!made) {
            munmap(start, size);
            PyMem_Free(map);
            atomic_fetch_sub(&maps, 1);
        }
        return made;
    }
    atomic_fetch_sub(&maps, 1);
#endif
    Py_RETURN_NONE;
}

#ifdef __linux__
/* Copies spans of mapped memory end to end. Returns 0 where some of it is not there. */
static int copy_spans(const int ends[2], struct iovec *spans, int count, uint8_t *out)
{
    while (count) {
        ssize_t written = writev(ends[1], spans, count);
        if (written < 0 && errno == EINTR)
            continue;
        if (written <= 0)
            return 0;
        for (size_t left = (size_t)written; left;) {
            ssize_t got = read(ends[0], out, left);
            if (got < 0 && errno == EINTR)
                continue;
            if (got <= 0)
                return 0;
            out += got;
            left -= (size_t)got;
        }
        for (; count && (size_t)written >= spans->iov_len; spans++, count--)
            written -= (ssize_t)spans->iov_len;
        if (count) {
            spans->iov_base = (uint8_t *)spans->iov_base + written;
            spans->iov_len -= (size_t)written;
        }
    }
    return 1;
}

static void announce(const struct map *map, const struct span *span)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), first = (size_t)span->offset / page * page;
    (void)madvise(map->start + first, (size_t)span->offset - first + span->size, MADV_WILLNEED);
}

/* Has the processor get memory that the system will copy, many lines at a time. It is a hint, and no access: where
 * nothing is mapped, or no longer there, nothing happens. */
static void fetch(const uint8_t *start, size_t size)
{
    for (size_t at = 0; at < size && at < FETCHED_BYTES; at += LINE_BYTES)
        __builtin_prefetch(start + at);
    __builtin_prefetch(start + size - 1);
}

/* Reads spans of mapped files, as many as come first; returns how many, 0 if some are not there. */
static size_t read_mapped(const struct span *spans, size_t count, uint8_t *out)
{
    struct iovec parts[MOST_SPANS];
    int ends[2], good = 1;
    size_t done = 0;
    if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) < 0)
        return 0;
    while (good && done < count && spans[done].source->map) {
        size_t size = 0;
        int n = 0;
        for (; n < MOST_SPANS && size < PIPE_BYTES && done < count && spans[done].source->map; n++, done++) {
            const struct span *span = spans + done;
            if (span->size >= LONG_SPAN)
                announce(span->source->map, span);
            else
                fetch(span->source->map->start + span->offset, span->size);
            parts[n] = (struct iovec){span->source->map->start + span->offset, span->size};
            size += span->size;
        }
        good = copy_spans(ends, parts, n, out);
        out += size;
    }
    close(ends[0]);
    close(ends[1]);
    return good ? done : 0;
}
#else
static size_t read_mapped(const struct span *spans, size_t count, uint8_t *out)
{
    (void)spans, (void)count, (void)out;
    return 0;
}
#endif

/* Whether a span of an open file is there. */
static int read_span(const struct span *span, uint8_t *out)
{
#ifndef _WIN32
    for (size_t have = 0; have < span->size;) {
        ssize_t got = pread(span->source->fd, out + have, span->size - have, (off_t)(span->offset + have));
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return 0;
        have += (size_t)got;
    }
    return 1;
#else
    (void)span, (void)out;
    return 0;
#endif
}

static int read_spans(const struct span *spans, size_t count, uint8_t *out)
{
    for (size_t i = 0; i < count;) {
        size_t done = 1;
        if (!(spans[i].source->map ? (done = read_mapped(spans + i, count - i, out)) > 0 : read_span(spans + i, out)))
            return 0;
        for (; done; done--)
            out += spans[i++].size;
    }
    return 1;
}

/* Whether there are whole records at all places, with both checksums. */
static int are_sound(const uint8_t *data, const int64_t *places, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const uint8_t *header = data + places[2 * i] - 12;
        uint64_t length = (uint64_t)wire_get_u32(header) | (uint64_t)wire_get_u32(header + 4) << 32;
        if (length != (uint64_t)places[2 * i + 1] || wire_get_u32(header + 8) != wire_mask(wire_crc32c(0, header, 8)))
            return 0;
    }
    for (size_t i = 0, end; i < count; i = end) {
        end = count - i < 3 ? count : i + 3;
        if (wire_count_sound(data, places, i, end, WIRE_ALL) < end - i)
            return 0;
    }
    return 1;
}

/* What is asked for; every array is as long as it must be. */
struct request {
    const struct source *sources;
    size_t files, count;
    const int64_t *starts, *places, *numbers, *order;
    uint8_t *touched;
};

/* Has the processor get the place of a record. */
static void look_ahead(const struct request *asked, int64_t i)
{
#ifdef __GNUC__
    if (i >= 0 && (size_t)i < asked->count && asked->numbers[i] >= 0 && asked->numbers[i] < asked->starts[asked->files])
        __builtin_prefetch(asked->places + 2 * asked->numbers[i]);
#else
    (void)asked, (void)i;
#endif
}

/* Fills in the spans to read and where each record comes to be, and how many bytes that takes. Returns the number of
 * spans; 0 if they can't be read; -1 if numbers or places are none. */
static Py_ssize_t lay_out(const struct request *asked, struct span *spans, int64_t *moved, size_t most, size_t *total)
{
    int64_t records = asked->starts[asked->files];
    size_t at = 0, file = 0;
    Py_ssize_t used = 0;
    int closed = 0;
    size_t j = 0;
    for (; j < asked->count; j++) {
        int64_t i = asked->order[j];
        if (j + AHEAD < asked->count)
            look_ahead(asked, asked->order[j + AHEAD]);
        if (i < 0 || (size_t)i >= asked->count)
            return -1;
        int64_t number = asked->numbers[i];
        if (number < 0 || number >= records)
            return -1;
        if (number < asked->starts[file])
            file = 0;
        while (number >= asked->starts[file + 1])
            file++;
        int64_t start = asked->places[2 * number], length = asked->places[2 * number + 1];
        const struct source *source = asked->sources + file;
        if (start < 12 || length < 0 || start >= MOST || length >= MOST)
            return -1;
        uint64_t offset = (uint64_t)start - 12, size = (uint64_t)length + 16;
        asked->touched[file] = 1;
        closed |= !source->map && source->fd < 0;
        if (closed)
            continue; /* only to tell which files are needed */
        if (size > most - at || (source->map && (size > source->map->size || offset > source->map->size - size)))
            break; /* too much, or it can't be there */
        moved[2 * i] = (int64_t)at + 12;
        moved[2 * i + 1] = length;
        at += (size_t)size;
        struct span *last = used ? spans + used - 1 : NULL;
        if (last && last->source == source && last->offset + last->size == offset)
            last->size += (size_t)size;
        else
            spans[used++] = (struct span){source, offset, (size_t)size};
    }
    *total = at;
    return closed || j < asked->count ? 0 : used;
}

/* The bytes of the records that are asked for; None if they are more than `most`, not there, or not sound, or a file is
 * not open. */
static PyObject *read_all(const struct request *asked, int64_t *moved, size_t most)
{
    size_t total = 0;
    struct span *spans = PyMem_Malloc((asked->count + 1) * sizeof *spans);
    if (!spans)
        return PyErr_NoMemory();
    memset(moved, 0, 16 * asked->count);
    Py_ssize_t used = lay_out(asked, spans, moved, most, &total);
    PyObject *result = NULL;
    if (used < 0)
        PyErr_SetString(PyExc_ValueError, "a number or a place is no record's");
    else if (!used && asked->count)
        result = Py_NewRef(Py_None);
    else if ((result = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)total))) {
        uint8_t *out = (uint8_t *)PyBytes_AsString(result);
        int sound;
        Py_BEGIN_ALLOW_THREADS
        sound = read_spans(spans, (size_t)used, out) && are_sound(out, moved, asked->count);
        Py_END_ALLOW_THREADS
        if (!sound) {
            Py_DECREF(result);
            result = Py_NewRef(Py_None);
        }
    }
    PyMem_Free(spans);
    return result;
}

/* The sources as a tuple has them: maps, numbers of open files, or None. */
static struct source *take_sources(PyObject *tuple, Py_ssize_t count)
{
    struct source *sources = PyMem_Calloc((size_t)count + 1, sizeof *sources);
    if (!sources)
        return (struct source *)PyErr_NoMemory();
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *item = PyTuple_GetItem(tuple, i);
        size_t fd = 0;
        sources[i].fd = -1;
        if (item && item != Py_None) {
            if (PyCapsule_IsValid(item, MAP_NAME))
                sources[i].map = PyCapsule_GetPointer(item, MAP_NAME);
            else if (binding_position(item, INT_MAX, &fd))
                sources[i].fd = (int)fd;
        }
        if (PyErr_Occurred()) {
            PyMem_Free(sources);
            return NULL;
        }
    }
    return sources;
}

enum { STARTS, PLACES, NUMBERS, ORDER, MOVED, TOUCHED, BUFFERS };

/* Whether the buffers are arrays of whole numbers that fit each other. */
static int fit(const Py_buffer *views, Py_ssize_t files)
{
    const int64_t *starts = views[STARTS].buf;
    for (int i = STARTS; i <= MOVED; i++)
        if ((uintptr_t)views[i].buf % 8 || views[i].len % 8)
            return 0;
    if (views[STARTS].len / 8 != files + 1 || views[TOUCHED].len < files || starts[0] || views[PLACES].len % 16)
        return 0;
    for (Py_ssize_t i = 0; i < files; i++)
        if (starts[i + 1] < starts[i])
            return 0;
    return starts[files] == views[PLACES].len / 16 && views[MOVED].len / 2 >= views[NUMBERS].len
        && views[ORDER].len == views[NUMBERS].len;
}

static PyObject *py_gather(PyObject *module, PyObject *const *args, Py_ssize_t n)
{
    Py_buffer views[BUFFERS];
    struct source *sources = NULL;
    PyObject *result = NULL;
    size_t most;
    int taken = 0;
    (void)module;
    if (!binding_arguments("gather", n, 8, 8) || !binding_position(args[7], MOST, &most))
        return NULL;
    Py_ssize_t files = PyTuple_Size(args[0]);
    if (files < 0 || !(sources = take_sources(args[0], files)))
        return NULL;
    for (; taken < BUFFERS; taken++)
        if (PyObject_GetBuffer(args[1 + taken], views + taken, taken < MOVED ? PyBUF_SIMPLE : PyBUF_WRITABLE) < 0)
            break;
    if (taken == BUFFERS && !fit(views, files)) {
        PyErr_SetString(PyExc_ValueError, "the arrays don't fit");
    } else if (taken == BUFFERS) {
        struct request asked = {
            sources, (size_t)files, (size_t)views[NUMBERS].len / 8, views[STARTS].buf, views[PLACES].buf,
            views[NUMBERS].buf, views[ORDER].buf, views[TOUCHED].buf,
        };
        result = read_all(&asked, views[MOVED].buf, most);
    }
    while (taken > 0)
        PyBuffer_Release(&views[--taken]);
    PyMem_Free(sources);
    return result;
}

PyMethodDef gather_methods[] = {
    {"map_file", FAST(map_file), "map_file(fd, size) -> a map that gather reads from; None where there is none"},
    {"gather", FAST(gather),
     "gather(sources, starts, places, numbers, order, moved, touched, most) -> the bytes of records, or None"},
    {NULL, NULL, 0, NULL},
};
