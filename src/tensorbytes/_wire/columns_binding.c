/* The limited-API shim over columns.h. Sizes are checked here, so that the functions beneath need not. */
#include "binding.h"

#include "columns.h"

enum { MOST_BUFFERS = 4 };

/* The buffers of a call. */
struct buffers {
    Py_buffer views[MOST_BUFFERS];
    int taken;
};

static void release(struct buffers *buffers)
{
    while (buffers->taken > 0)
        PyBuffer_Release(&buffers->views[--buffers->taken]);
}

/* One more of them; NULL with an exception set if there is none. */
static Py_buffer *take(struct buffers *buffers, PyObject *object, int flags)
{
    Py_buffer *view = &buffers->views[buffers->taken];
    if (PyObject_GetBuffer(object, view, flags) < 0) {
        release(buffers);
        return NULL;
    }
    buffers->taken++;
    return view;
}

static int check(int fits, const char *name)
{
    if (!fits)
        PyErr_Format(PyExc_ValueError, "%s: the sizes of the buffers, or a number, don't fit", name);
    return fits;
}

/* The flags of n elements, if they are given. */
static int take_present(struct buffers *buffers, PyObject *object, Py_ssize_t n, const char *name, const uint8_t **out)
{
    *out = NULL;
    if (object == Py_None)
        return 1;
    Py_buffer *view = take(buffers, object, PyBUF_SIMPLE);
    if (!view)
        return 0;
    *out = view->buf;
    return check(view->len == n, name);
}

static int is_aligned(const Py_buffer *view)
{
    return (uintptr_t)view->buf % sizeof(int64_t) == 0;
}

/* missing(data, present, width[, portable]) */
static PyObject *apply_missing(PyObject *const *args, Py_ssize_t count, const char *name, int clears)
{
    struct buffers buffers = {.taken = 0};
    Py_buffer *data, *present;
    size_t width;
    int zero = 1;
    if (!binding_arguments(name, count, 3, 4) || !binding_position(args[2], PY_SSIZE_T_MAX, &width))
        return NULL;
    int portable = binding_portable(args, count, 3);
    if (portable < 0 || !(data = take(&buffers, args[0], clears ? PyBUF_WRITABLE : PyBUF_SIMPLE))
        || !(present = take(&buffers, args[1], PyBUF_SIMPLE)))
        return NULL;
    int fits = check(width > 0 && data->len % (Py_ssize_t)width == 0 && data->len / (Py_ssize_t)width == present->len, name);
    if (fits) {
        Py_BEGIN_ALLOW_THREADS
        if (clears)
            columns_missing_clear(data->buf, present->buf, (size_t)present->len, width, portable);
        else
            zero = columns_missing_zero(data->buf, present->buf, (size_t)present->len, width, portable);
        Py_END_ALLOW_THREADS
    }
    release(&buffers);
    return !fits ? NULL : clears ? Py_NewRef(Py_None) : PyBool_FromLong(zero);
}

static PyObject *py_missing_zero(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    (void)module;
    return apply_missing(args, count, "missing_zero", 0);
}

static PyObject *py_missing_clear(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    (void)module;
    return apply_missing(args, count, "missing_clear", 1);
}

static PyObject *py_offsets_rise(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    struct buffers buffers = {.taken = 0};
    Py_buffer *offsets;
    size_t width;
    int rise = 0;
    (void)module;
    if (!binding_arguments("offsets_rise", count, 2, 2) || !binding_position(args[1], 8, &width)
        || !(offsets = take(&buffers, args[0], PyBUF_SIMPLE)))
        return NULL;
    int fits = check((width == 4 || width == 8) && offsets->len % (Py_ssize_t)width == 0, "offsets_rise");
    if (fits) {
        Py_BEGIN_ALLOW_THREADS
        rise = columns_offsets_rise(offsets->buf, (size_t)offsets->len / width, width);
        Py_END_ALLOW_THREADS
    }
    release(&buffers);
    return fits ? PyBool_FromLong(rise) : NULL;
}

static PyObject *py_longest_word(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    struct buffers buffers = {.taken = 0};
    Py_buffer *data;
    size_t words, longest;
    (void)module;
    if (!binding_arguments("longest_word", count, 2, 2) || !binding_position(args[1], PY_SSIZE_T_MAX, &words)
        || !(data = take(&buffers, args[0], PyBUF_SIMPLE)))
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    longest = columns_longest_word(data->buf, (size_t)data->len, words);
    Py_END_ALLOW_THREADS
    release(&buffers);
    return longest == SIZE_MAX ? PyLong_FromLong(-1) : PyLong_FromSize_t(longest);
}

/* What the numbers of a column of decimals are. */
struct kind {
    size_t width, scale;
    unsigned long long most;
};

static int take_kind(PyObject *const *args, const char *name, int has_most, struct kind *kind)
{
    if (!binding_position(args[0], 32, &kind->width) || !binding_position(args[1], COLUMNS_MOST_SCALE, &kind->scale))
        return 0;
    kind->most = has_most ? PyLong_AsUnsignedLongLong(args[2]) : 0;
    return !PyErr_Occurred()
           && check((kind->width == 4 || kind->width == 8 || kind->width == 16 || kind->width == 32)
                        && kind->most <= COLUMNS_MOST_DECIMAL,
                    name);
}

/* Whether there are n numbers, and one offset more. */
static int fit(const Py_buffer *data, const Py_buffer *offsets, size_t width)
{
    Py_ssize_t n = offsets->len / (Py_ssize_t)sizeof(int64_t) - 1;
    return is_aligned(offsets) && offsets->len % (Py_ssize_t)sizeof(int64_t) == 0 && n >= 0
           && data->len % (Py_ssize_t)width == 0 && data->len / (Py_ssize_t)width == n;
}

/* decimal_sizes(data, present, offsets, width, scale, most) */
static PyObject *py_decimal_sizes(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    struct buffers buffers = {.taken = 0};
    Py_buffer *data, *offsets;
    const uint8_t *present;
    struct kind kind;
    int few = 0;
    (void)module;
    if (!binding_arguments("decimal_sizes", count, 6, 6) || !take_kind(args + 3, "decimal_sizes", 1, &kind)
        || !(data = take(&buffers, args[0], PyBUF_SIMPLE)) || !(offsets = take(&buffers, args[2], PyBUF_WRITABLE)))
        return NULL;
    int fits = check(fit(data, offsets, kind.width), "decimal_sizes")
               && take_present(&buffers, args[1], data->len / (Py_ssize_t)kind.width, "decimal_sizes", &present);
    if (fits) {
        Py_BEGIN_ALLOW_THREADS
        few = columns_decimal_sizes(offsets->buf, data->buf, present, (size_t)data->len / kind.width, kind.width,
                                    (unsigned)kind.scale, kind.most);
        Py_END_ALLOW_THREADS
    }
    release(&buffers);
    return fits ? PyBool_FromLong(few) : NULL;
}

/* decimal_text(data, offsets, out, width, scale) */
static PyObject *py_decimal_text(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    struct buffers buffers = {.taken = 0};
    Py_buffer *data, *offsets, *out;
    struct kind kind;
    int sound = 0;
    (void)module;
    if (!binding_arguments("decimal_text", count, 5, 5) || !take_kind(args + 3, "decimal_text", 0, &kind)
        || !(data = take(&buffers, args[0], PyBUF_SIMPLE)) || !(offsets = take(&buffers, args[1], PyBUF_SIMPLE))
        || !(out = take(&buffers, args[2], PyBUF_WRITABLE)))
        return NULL;
    int fits = check(fit(data, offsets, kind.width), "decimal_text");
    if (fits) {
        Py_BEGIN_ALLOW_THREADS
        sound = columns_decimal_text(out->buf, (size_t)out->len, offsets->buf, data->buf, (size_t)data->len / kind.width,
                                     kind.width, (unsigned)kind.scale);
        Py_END_ALLOW_THREADS
        fits = check(sound, "decimal_text");
    }
    release(&buffers);
    return fits ? Py_NewRef(Py_None) : NULL;
}

/* decimal_parse(text, offsets, present, out, width, scale, most) */
static PyObject *py_decimal_parse(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    struct buffers buffers = {.taken = 0};
    Py_buffer *text, *offsets, *out;
    const uint8_t *present;
    struct kind kind;
    int plain = 0;
    (void)module;
    if (!binding_arguments("decimal_parse", count, 7, 7) || !take_kind(args + 4, "decimal_parse", 1, &kind)
        || !(text = take(&buffers, args[0], PyBUF_SIMPLE)) || !(offsets = take(&buffers, args[1], PyBUF_SIMPLE))
        || !(out = take(&buffers, args[3], PyBUF_WRITABLE)))
        return NULL;
    int fits = check(fit(out, offsets, kind.width), "decimal_parse")
               && take_present(&buffers, args[2], out->len / (Py_ssize_t)kind.width, "decimal_parse", &present);
    if (fits) {
        Py_BEGIN_ALLOW_THREADS
        plain = columns_decimal_parse(out->buf, text->buf, (size_t)text->len, offsets->buf, present,
                                      (size_t)out->len / kind.width, kind.width, (unsigned)kind.scale, kind.most);
        Py_END_ALLOW_THREADS
    }
    release(&buffers);
    return fits ? PyBool_FromLong(plain) : NULL;
}

PyMethodDef column_methods[] = {
    {"missing_zero", FAST(missing_zero), "missing_zero(data, present, width) -> whether what is missing is zero"},
    {"missing_clear", FAST(missing_clear), "missing_clear(data, present, width): make it so"},
    {"offsets_rise", FAST(offsets_rise), "offsets_rise(offsets, width) -> whether they do"},
    {"longest_word", FAST(longest_word), "longest_word(data, count) -> its bytes; -1 if the words run past the end"},
    {"decimal_sizes", FAST(decimal_sizes),
     "decimal_sizes(data, present, offsets, width, scale, most) -> whether all are under most"},
    {"decimal_text", FAST(decimal_text), "decimal_text(data, offsets, out, width, scale)"},
    {"decimal_parse", FAST(decimal_parse),
     "decimal_parse(text, offsets, present, out, width, scale, most) -> whether all are plain, and under most"},
    {NULL, NULL, 0, NULL},
};
