/* The limited-API shim over huffman.h and filters.h: from one buffer into another, without the GIL.
 *
 * Sizes are checked here, so that the functions beneath need not; a call with wrong ones is a mistake of
 * the caller's and raises.
 */
#include "binding.h"

#include "filters.h"
#include "huffman.h"
#include "large.h"
#include "planes.h"

/* A buffer to read and one to write. */
struct pair {
    Py_buffer src, dst;
};

static int take_pair(PyObject *src, PyObject *dst, struct pair *pair)
{
    if (PyObject_GetBuffer(src, &pair->src, PyBUF_SIMPLE) < 0)
        return 0;
    if (PyObject_GetBuffer(dst, &pair->dst, PyBUF_WRITABLE) == 0)
        return 1;
    PyBuffer_Release(&pair->src);
    return 0;
}

static void release_pair(struct pair *pair)
{
    PyBuffer_Release(&pair->dst);
    PyBuffer_Release(&pair->src);
}

static int check(int fits, const char *name)
{
    if (!fits)
        PyErr_Format(PyExc_ValueError, "%s: the sizes of the buffers, or the width, don't fit", name);
    return fits;
}

static PyObject *py_huffman_encode(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    struct pair pair;
    size_t size = 0;
    (void)module;
    if (!binding_arguments("huffman_encode", count, 2, 3))
        return NULL;
    int portable = binding_portable(args, count, 2);
    if (portable < 0 || !take_pair(args[0], args[1], &pair))
        return NULL;
    int fits = check(pair.dst.len - HUFFMAN_SLACK >= pair.src.len, "huffman_encode");
    if (fits) {
        Py_BEGIN_ALLOW_THREADS
        size = huffman_encode(pair.dst.buf, pair.src.buf, (size_t)pair.src.len, portable);
        Py_END_ALLOW_THREADS
    }
    release_pair(&pair);
    return fits ? PyLong_FromSize_t(size) : NULL;
}

static PyObject *py_huffman_decode(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    struct pair pair;
    int sound;
    (void)module;
    if (!binding_arguments("huffman_decode", count, 2, 3))
        return NULL;
    int portable = binding_portable(args, count, 2);
    if (portable < 0 || !take_pair(args[0], args[1], &pair))
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    sound = huffman_decode(pair.dst.buf, (size_t)pair.dst.len, pair.src.buf, (size_t)pair.src.len, portable);
    Py_END_ALLOW_THREADS
    release_pair(&pair);
    return PyBool_FromLong(sound);
}

/* The width of elements; 0 with an exception set if it is none. */
static size_t width_of(PyObject *object, const char *name)
{
    size_t width;
    if (!binding_position(object, 8, &width))
        return 0;
    return check(width == 1 || width == 2 || width == 4 || width == 8, name) ? width : 0;
}

/* filter(src, dst, width, number): both buffers have the same size, a multiple of the width */
typedef void filter(uint8_t *dst, const uint8_t *src, size_t n, size_t width, uint64_t number);

static PyObject *apply(filter *run, const char *name, PyObject *const *args, Py_ssize_t count)
{
    struct pair pair;
    size_t width;
    if (!binding_arguments(name, count, 4, 4) || !(width = width_of(args[2], name)))
        return NULL;
    unsigned long long number = PyLong_AsUnsignedLongLong(args[3]);
    if (PyErr_Occurred() || !take_pair(args[0], args[1], &pair))
        return NULL;
    int fits = check(pair.src.len == pair.dst.len && pair.src.len % (Py_ssize_t)width == 0, name);
    if (fits) {
        Py_BEGIN_ALLOW_THREADS
        run(pair.dst.buf, pair.src.buf, (size_t)pair.src.len / width, width, number);
        Py_END_ALLOW_THREADS
    }
    release_pair(&pair);
    return fits ? Py_NewRef(Py_None) : NULL;
}

static void split(uint8_t *dst, const uint8_t *src, size_t n, size_t width, uint64_t rotate)
{
    filters_split(dst, src, n, width, rotate != 0, 0);
}

static void split_portable(uint8_t *dst, const uint8_t *src, size_t n, size_t width, uint64_t rotate)
{
    filters_split(dst, src, n, width, rotate != 0, 1);
}

static PyObject *py_planes_split(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    (void)module;
    if (!binding_arguments("planes_split", count, 4, 5))
        return NULL;
    int portable = binding_portable(args, count, 4);
    return portable < 0 ? NULL : apply(portable ? split_portable : split, "planes_split", args, 4);
}

static PyObject *py_difference(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    (void)module;
    return apply(filters_difference, "difference", args, count);
}

static PyObject *py_accumulate(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    (void)module;
    return apply(filters_accumulate, "accumulate", args, count);
}

/* The planes come one by one, since some of them stand where they were read from. */
static PyObject *py_planes_join(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    Py_buffer views[8], out;
    const uint8_t *planes[8];
    Py_ssize_t taken = 0, width, n = 0;
    int rotate, portable, fits = 0;
    (void)module;
    if (!binding_arguments("planes_join", count, 3, 4) || (portable = binding_portable(args, count, 3)) < 0 || (width = PySequence_Size(args[0])) < 0
        || (rotate = PyObject_IsTrue(args[2])) < 0 || PyObject_GetBuffer(args[1], &out, PyBUF_WRITABLE) < 0)
        return NULL;
    if (check(width == 1 || width == 2 || width == 4 || width == 8, "planes_join")) {
        for (fits = 1; fits && taken < width; taken++) {
            PyObject *plane = PySequence_GetItem(args[0], taken);
            fits = plane && PyObject_GetBuffer(plane, &views[taken], PyBUF_SIMPLE) == 0;
            Py_XDECREF(plane);
            if (!fits)
                break;
            planes[taken] = views[taken].buf;
            n = views[0].len;
            fits = check(views[taken].len == n, "planes_join");
        }
        fits = fits && check(n * width == out.len, "planes_join");
    }
    if (fits) {
        Py_BEGIN_ALLOW_THREADS
        filters_join(out.buf, planes, (size_t)n, (size_t)width, rotate, portable);
        Py_END_ALLOW_THREADS
    }
    while (taken > 0)
        PyBuffer_Release(&views[--taken]);
    PyBuffer_Release(&out);
    return fits ? Py_NewRef(Py_None) : NULL;
}

/* planes_encode(elements, out, scratch, width, rotate) and back: scratch is as large as the elements */
static PyObject *apply_coder(PyObject *const *args, Py_ssize_t count, const char *name, int encodes)
{
    struct pair pair;
    Py_buffer scratch;
    size_t width, size = 0;
    int rotate;
    if (!binding_arguments(name, count, 5, 5) || !(width = width_of(args[3], name))
        || (rotate = PyObject_IsTrue(args[4])) < 0 || !take_pair(args[0], args[1], &pair))
        return NULL;
    if (PyObject_GetBuffer(args[2], &scratch, PyBUF_WRITABLE) < 0) {
        release_pair(&pair);
        return NULL;
    }
    Py_ssize_t plain = encodes ? pair.src.len : pair.dst.len;
    size_t n = (size_t)plain / width;
    int fits = check(plain % (Py_ssize_t)width == 0 && scratch.len >= plain
                         && (!encodes || pair.dst.len - PLANES_SLACK >= plain),
                     name);
    if (fits) {
        Py_BEGIN_ALLOW_THREADS
        size = encodes ? planes_encode(pair.dst.buf, pair.src.buf, n, width, rotate, scratch.buf)
                       : (size_t)planes_decode(pair.dst.buf, n, width, rotate, pair.src.buf, (size_t)pair.src.len,
                                               scratch.buf);
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&scratch);
    release_pair(&pair);
    return fits ? PyLong_FromSize_t(size) : NULL;
}

static PyObject *py_planes_encode(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    (void)module;
    return apply_coder(args, count, "planes_encode", 1);
}

static PyObject *py_planes_decode(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    (void)module;
    return apply_coder(args, count, "planes_decode", 0);
}

/* chunks_encode(data, out, scratch, width, rotate, chunk, sizes, checksums, threads, part) and back, without a part */
static PyObject *apply_to_chunks(PyObject *const *args, Py_ssize_t count, const char *name, int encodes)
{
    Py_buffer views[5]; /* what is read, what is written, scratch, sizes, checksums */
    const int places[5] = {0, 1, 2, 6, 7}, written[5] = {0, 1, 1, encodes, encodes};
    struct planes_chunks how;
    size_t threads, part = 0, sound = 0;
    int taken = 0, fits = 0;
    if (!binding_arguments(name, count, 9 + encodes, 9 + encodes) || !(how.width = width_of(args[3], name))
        || (how.rotate = PyObject_IsTrue(args[4])) < 0 || !binding_position(args[5], UINT32_MAX, &how.chunk)
        || !binding_position(args[8], LARGE_MOST_THREADS, &threads)
        || (encodes && !binding_position(args[9], UINT32_MAX, &part)))
        return NULL;
    how.threads = (unsigned)threads;
    while (taken < 5
           && PyObject_GetBuffer(args[places[taken]], &views[taken], written[taken] ? PyBUF_WRITABLE : PyBUF_SIMPLE) == 0)
        taken++;
    if (taken == 5) {
        const Py_buffer *src = &views[0], *dst = &views[1];
        size_t n = (size_t)(encodes ? src : dst)->len;
        if (!encodes)
            part = how.chunk;
        fits = check(how.chunk && threads && part && part % how.chunk == 0 && n % how.width == 0
                         && how.chunk % how.width == 0, name);
        size_t chunks = fits ? n / how.chunk + (n % how.chunk != 0) : 0, parts = fits ? n / part + (n % part != 0) : 0;
        fits = fits
            && check((size_t)views[2].len / threads >= how.chunk
                         && (!encodes || (size_t)dst->len >= n + parts * PLANES_SLACK)
                         && (size_t)views[3].len / 4 >= chunks && (size_t)views[4].len / 4 >= chunks, name);
        if (fits) {
            how.scratch = views[2].buf;
            Py_BEGIN_ALLOW_THREADS
            if (encodes)
                planes_encode_chunks(dst->buf, src->buf, n, part, &how, views[3].buf, views[4].buf);
            else
                sound = planes_decode_chunks(dst->buf, n, &how, src->buf, (size_t)src->len, views[3].buf, views[4].buf);
            Py_END_ALLOW_THREADS
        }
    }
    while (taken > 0)
        PyBuffer_Release(&views[--taken]);
    if (!fits)
        return NULL;
    return encodes ? Py_NewRef(Py_None) : PyLong_FromSize_t(sound);
}

static PyObject *py_chunks_encode(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    (void)module;
    return apply_to_chunks(args, count, "chunks_encode", 1);
}

static PyObject *py_chunks_decode(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    (void)module;
    return apply_to_chunks(args, count, "chunks_decode", 0);
}

/* bits_pack(src, dst, width, base, bits) and back: `plain` is the buffer of elements, the other is packed */
typedef void packer(uint8_t *dst, const uint8_t *src, size_t n, size_t width, uint64_t base, unsigned bits);

static PyObject *apply_packer(packer *run, const char *name, PyObject *const *args, Py_ssize_t count, int packs)
{
    struct pair pair;
    size_t width, bits;
    if (!binding_arguments(name, count, 5, 5) || !(width = width_of(args[2], name))
        || !binding_position(args[4], FILTERS_MOST_BITS, &bits))
        return NULL;
    unsigned long long base = PyLong_AsUnsignedLongLong(args[3]);
    if (PyErr_Occurred() || !take_pair(args[0], args[1], &pair))
        return NULL;
    Py_buffer *plain = packs ? &pair.src : &pair.dst, *packed = packs ? &pair.dst : &pair.src;
    size_t n = (size_t)plain->len / width;
    int fits = check((size_t)plain->len % width == 0 && bits <= 8 * width && n <= PY_SSIZE_T_MAX / 64
                         && filters_packed_size(n, (unsigned)bits) == (size_t)packed->len,
                     name);
    if (fits) {
        Py_BEGIN_ALLOW_THREADS
        run(pair.dst.buf, pair.src.buf, n, width, base, (unsigned)bits);
        Py_END_ALLOW_THREADS
    }
    release_pair(&pair);
    return fits ? Py_NewRef(Py_None) : NULL;
}

static PyObject *py_bits_pack(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    (void)module;
    return apply_packer(filters_pack, "bits_pack", args, count, 1);
}

static PyObject *py_bits_unpack(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    (void)module;
    return apply_packer(filters_unpack, "bits_unpack", args, count, 0);
}

PyMethodDef codec_methods[] = {
    {"huffman_encode", FAST(huffman_encode), "huffman_encode(plane, out) -> size; 1: one value; 0: not worth it"},
    {"huffman_decode", FAST(huffman_decode), "huffman_decode(code, out) -> whether the code was sound"},
    {"planes_encode", FAST(planes_encode), "planes_encode(elements, out, scratch, width, rotate) -> size"},
    {"planes_decode", FAST(planes_decode), "planes_decode(code, out, scratch, width, rotate) -> whether it was sound"},
    {"chunks_encode", FAST(chunks_encode),
     "chunks_encode(data, out, scratch, width, rotate, chunk, sizes, checksums, threads, part)"},
    {"chunks_decode", FAST(chunks_decode),
     "chunks_decode(code, out, scratch, width, rotate, chunk, sizes, checksums, threads) -> how many are sound"},
    {"planes_split", FAST(planes_split), "planes_split(elements, out, width, rotate)"},
    {"planes_join", FAST(planes_join), "planes_join([plane, ...], out, rotate)"},
    {"difference", FAST(difference), "difference(elements, out, width, first)"},
    {"accumulate", FAST(accumulate), "accumulate(differences, out, width, first)"},
    {"bits_pack", FAST(bits_pack), "bits_pack(elements, out, width, base, bits)"},
    {"bits_unpack", FAST(bits_unpack), "bits_unpack(packed, out, width, base, bits)"},
    {NULL, NULL, 0, NULL},
};
