/* The limited-API shim over numbers.h: figures over the elements of buffers, without the GIL.
 *
 * Sizes are checked here, so that the functions beneath need not; a call with wrong ones is a mistake of the caller's
 * and raises. Callers give portions, so that no call takes long.
 */
#include "binding.h"

#include <string.h>

#include "numbers.h"

#define MOST_BUFFERS 5

/* Buffers that are held together. */
struct buffers {
    Py_buffer of[MOST_BUFFERS];
    size_t taken;
};

static int take_buffer(struct buffers *held, PyObject *object, int flags)
{
    if (PyObject_GetBuffer(object, &held->of[held->taken], flags) < 0)
        return 0;
    held->taken++;
    return 1;
}

static void release(struct buffers *held)
{
    while (held->taken)
        PyBuffer_Release(&held->of[--held->taken]);
}

static int check(int fits, const char *name)
{
    if (!fits)
        PyErr_Format(PyExc_ValueError, "%s: the sizes of the buffers, or the types, don't fit", name);
    return fits;
}

/* Tables that are written to must be aligned: they are arrays of ours. */
static int holds(const Py_buffer *table, size_t count, size_t width)
{
    return (size_t)table->len == count * width && (uintptr_t)table->buf % width == 0;
}

static int type_of(PyObject *object, enum numbers_float *out)
{
    size_t type;
    if (!binding_position(object, NUMBERS_FLOATS - 1, &type))
        return 0;
    *out = (enum numbers_float)type;
    return 1;
}

static PyObject *py_count_values(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    struct buffers held = {.taken = 0};
    size_t width;
    int fits = 0;
    (void)module;
    if (!binding_arguments("count_values", count, 3, 3) || !binding_position(args[1], 2, &width))
        return NULL;
    if (take_buffer(&held, args[0], PyBUF_SIMPLE) && take_buffer(&held, args[2], PyBUF_WRITABLE)) {
        const size_t size = (size_t)held.of[0].len;
        fits = check(width > 0 && size % width == 0 && size / width <= UINT32_MAX
                         && holds(&held.of[1], width == 1 ? 512 : 131072, sizeof(uint32_t)),
                     "count_values");
        if (fits) {
            Py_BEGIN_ALLOW_THREADS
            numbers_count(held.of[0].buf, size / width, width, held.of[1].buf);
            Py_END_ALLOW_THREADS
        }
    }
    release(&held);
    return fits ? Py_NewRef(Py_None) : NULL;
}

static PyObject *py_sum_floats(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    struct buffers held = {.taken = 0};
    struct numbers_spread found;
    PyObject *result = NULL;
    (void)module;
    if (!binding_arguments("sum_floats", count, 2, 3))
        return NULL;
    int portable = binding_portable(args, count, 2);
    if (portable < 0)
        return NULL;
    if (take_buffer(&held, args[0], PyBUF_SIMPLE) && take_buffer(&held, args[1], PyBUF_WRITABLE)
        && check(held.of[0].len % 4 == 0 && holds(&held.of[1], NUMBERS_BINS * NUMBERS_WORDS, sizeof(uint64_t)),
                 "sum_floats")) {
        Py_BEGIN_ALLOW_THREADS
        numbers_sum(held.of[0].buf, (size_t)held.of[0].len / 4, held.of[1].buf, portable, &found);
        Py_END_ALLOW_THREADS
        result = Py_BuildValue("KKKKKdd", (unsigned long long)found.nan, (unsigned long long)found.positive_inf,
                               (unsigned long long)found.negative_inf, (unsigned long long)found.zeros,
                               (unsigned long long)found.negative, (double)found.low, (double)found.high);
    }
    release(&held);
    return result;
}

static PyObject *py_histogram(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    struct buffers held = {.taken = 0};
    enum numbers_float type;
    int fits = 0;
    (void)module;
    if (!binding_arguments("histogram", count, 5, 6) || !type_of(args[1], &type))
        return NULL;
    double factor = PyFloat_AsDouble(args[3]);
    int portable = PyErr_Occurred() ? -1 : binding_portable(args, count, 5);
    if (portable < 0)
        return NULL;
    if (take_buffer(&held, args[0], PyBUF_SIMPLE) && take_buffer(&held, args[2], PyBUF_SIMPLE)
        && take_buffer(&held, args[4], PyBUF_WRITABLE)) {
        const size_t size = (size_t)held.of[0].len, width = numbers_width(type);
        const size_t edges = (size_t)held.of[1].len / sizeof(double);
        fits = check(type >= NUMBERS_FLOAT32 && size % width == 0 && edges > 1 && edges < INT32_MAX
                         && holds(&held.of[1], edges, sizeof(double))
                         && holds(&held.of[2], 4 * (edges - 1), sizeof(uint64_t)),
                     "histogram");
        if (fits) {
            Py_BEGIN_ALLOW_THREADS
            numbers_histogram(held.of[0].buf, size / width, type, held.of[1].buf, edges - 1, factor, portable,
                              held.of[2].buf);
            Py_END_ALLOW_THREADS
        }
    }
    release(&held);
    return fits ? Py_NewRef(Py_None) : NULL;
}

/* Whether one type is cast to the other here. */
static int casts(enum numbers_float from, enum numbers_float to)
{
    return from != to && (from == NUMBERS_FLOAT64 ? to == NUMBERS_FLOAT32 : to != NUMBERS_FLOAT64);
}

static PyObject *py_cast_floats(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    struct buffers held = {.taken = 0};
    enum numbers_float from, to;
    PyObject *result = NULL;
    (void)module;
    if (!binding_arguments("cast_floats", count, 4, 5) || !type_of(args[1], &from) || !type_of(args[3], &to))
        return NULL;
    int portable = binding_portable(args, count, 4), status;
    double error;
    if (portable < 0)
        return NULL;
    if (take_buffer(&held, args[0], PyBUF_SIMPLE) && take_buffer(&held, args[2], PyBUF_WRITABLE)) {
        const size_t width = numbers_width(from), n = (size_t)held.of[0].len / width;
        if (check(casts(from, to) && (size_t)held.of[0].len % width == 0
                      && (size_t)held.of[1].len == n * numbers_width(to),
                  "cast_floats")) {
            Py_BEGIN_ALLOW_THREADS
            status = numbers_cast(held.of[1].buf, held.of[0].buf, n, from, to, portable, &error);
            Py_END_ALLOW_THREADS
            result = Py_BuildValue("di", status ? 0.0 : error, status);
        }
    }
    release(&held);
    return result;
}

/* Whether zeros lie where float32 still finds the nearest integer. */
static int are_near(const int32_t *zeros, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (zeros[i] < -NUMBERS_MOST_STEPS || zeros[i] > NUMBERS_MOST_STEPS)
            return 0;
    return 1;
}

static PyObject *py_quantize_floats(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    struct buffers held = {.taken = 0};
    struct numbers_affine how = {.zeros = NULL};
    struct numbers_cost cost;
    enum numbers_float type;
    PyObject *result = NULL;
    size_t mask;
    (void)module;
    if (!binding_arguments("quantize_floats", count, 10, 11) || !type_of(args[1], &type)
        || !binding_position(args[5], PY_SSIZE_T_MAX, &how.run) || !binding_position(args[8], 255, &mask))
        return NULL;
    const long least = PyLong_AsLong(args[6]), most = PyErr_Occurred() ? 0 : PyLong_AsLong(args[7]);
    int portable = PyErr_Occurred() ? -1 : binding_portable(args, count, 10);
    if (portable < 0)
        return NULL;
    const int has_zeros = args[4] != Py_None;
    if (take_buffer(&held, args[0], PyBUF_SIMPLE) && take_buffer(&held, args[2], PyBUF_WRITABLE)
        && take_buffer(&held, args[3], PyBUF_SIMPLE) && take_buffer(&held, args[9], PyBUF_WRITABLE)
        && (!has_zeros || take_buffer(&held, args[4], PyBUF_SIMPLE))) {
        const size_t width = numbers_width(type), n = (size_t)held.of[0].len / width;
        const size_t runs = how.run ? n / how.run : 0;
        if (check(type != NUMBERS_FLOAT64 && (size_t)held.of[0].len % width == 0 && (size_t)held.of[1].len == n
                      && how.run && n % how.run == 0 && holds(&held.of[2], runs, sizeof(float))
                      && holds(&held.of[3], 2 * NUMBERS_LANES, sizeof(double))
                      && (!has_zeros || (holds(&held.of[4], runs, sizeof(int32_t)) && are_near(held.of[4].buf, runs)))
                      && -NUMBERS_MOST_STEPS <= least && least <= most && most <= NUMBERS_MOST_STEPS,
                  "quantize_floats")) {
            how.scales = held.of[2].buf;
            how.zeros = has_zeros ? held.of[4].buf : NULL;
            how.least = (int)least, how.most = (int)most, how.mask = (uint8_t)mask;
            Py_BEGIN_ALLOW_THREADS
            numbers_quantize(held.of[1].buf, held.of[0].buf, n, type, &how, portable, held.of[3].buf, &cost);
            Py_END_ALLOW_THREADS
            result = Py_BuildValue("dddi", cost.worst, cost.signal, cost.noise, cost.beyond);
        }
    }
    release(&held);
    return result;
}

static PyObject *py_extremes(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    struct buffers held = {.taken = 0};
    enum numbers_float type;
    size_t run;
    int fits = 0, finite = 0;
    (void)module;
    if (!binding_arguments("extremes", count, 5, 6) || !type_of(args[1], &type)
        || !binding_position(args[2], PY_SSIZE_T_MAX, &run))
        return NULL;
    int portable = binding_portable(args, count, 5);
    if (portable < 0)
        return NULL;
    if (take_buffer(&held, args[0], PyBUF_SIMPLE) && take_buffer(&held, args[3], PyBUF_WRITABLE)
        && take_buffer(&held, args[4], PyBUF_WRITABLE)) {
        const size_t width = numbers_width(type), n = (size_t)held.of[0].len / width;
        const size_t runs = run ? n / run : 0;
        fits = check(type != NUMBERS_FLOAT64 && (size_t)held.of[0].len % width == 0 && run && n % run == 0
                         && holds(&held.of[1], runs, sizeof(float)) && holds(&held.of[2], runs, sizeof(float)),
                     "extremes");
        if (fits) {
            Py_BEGIN_ALLOW_THREADS
            finite = numbers_extremes(held.of[0].buf, runs, run, type, portable, held.of[1].buf, held.of[2].buf);
            Py_END_ALLOW_THREADS
        }
    }
    release(&held);
    return fits ? PyBool_FromLong(finite) : NULL;
}

static PyObject *py_compare_floats(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    struct buffers held = {.taken = 0};
    struct numbers_distance found;
    enum numbers_float type;
    PyObject *result = NULL;
    (void)module;
    if (!binding_arguments("compare_floats", count, 3, 4) || !type_of(args[2], &type))
        return NULL;
    int portable = binding_portable(args, count, 3);
    if (portable < 0)
        return NULL;
    if (take_buffer(&held, args[0], PyBUF_SIMPLE) && take_buffer(&held, args[1], PyBUF_SIMPLE)) {
        const size_t width = numbers_width(type), size = (size_t)held.of[0].len;
        if (check(size % width == 0 && held.of[0].len == held.of[1].len, "compare_floats")) {
            Py_BEGIN_ALLOW_THREADS
            numbers_compare(held.of[0].buf, held.of[1].buf, size / width, type, portable, &found);
            Py_END_ALLOW_THREADS
            result = Py_BuildValue("KKKKddddd", (unsigned long long)found.differing, (unsigned long long)found.nan_a,
                                   (unsigned long long)found.nan_b, (unsigned long long)found.nan_apart, found.largest,
                                   found.relative, found.dot, found.square_a, found.square_b);
        }
    }
    release(&held);
    return result;
}

PyMethodDef number_methods[] = {
    {"count_values", FAST(count_values), "count_values(values, width, counts): counts is uint32[2][256 or 65536]"},
    {"sum_floats", FAST(sum_floats), "sum_floats(values, bins) -> (nan, inf, -inf, zeros, negative, low, high)"},
    {"histogram", FAST(histogram), "histogram(values, type, edges, factor, counts): counts is uint64[4][bins]"},
    {"cast_floats", FAST(cast_floats), "cast_floats(values, type, out, type) -> (the largest error, status)"},
    {"quantize_floats", FAST(quantize_floats),
     "quantize_floats(values, type, out, scales, zeros, run, least, most, mask, sums) -> (worst, signal, noise, beyond)"},
    {"extremes", FAST(extremes), "extremes(values, type, run, low, high) -> whether all are finite; float32 for each run"},
    {"compare_floats", FAST(compare_floats),
     "compare_floats(a, b, type) -> (differing, nan_a, nan_b, nan_apart, largest, relative, dot, square_a, square_b)"},
    {NULL, NULL, 0, NULL},
};
