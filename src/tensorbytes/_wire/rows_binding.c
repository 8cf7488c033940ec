/* Rows of columns: the part of the shim that makes Python objects, since there is one for every value of a row.
 * Objects need the GIL, so it is kept; callers ask for few rows at a time. rows_reference.py has the same in Python. */
#include "binding.h"

#include <stdint.h>
#include <string.h>

/* Offset i; they may stand anywhere in memory. */
static int64_t offset_at(const Py_buffer *offsets, Py_ssize_t i)
{
    int64_t offset;
    memcpy(&offset, (const char *)offsets->buf + i * (Py_ssize_t)sizeof offset, sizeof offset);
    return offset;
}

/* A list of all strings; NULL with an exception set if an offset does not fit, or a text is not UTF-8. */
static PyObject *list_strings(const Py_buffer *offsets, const Py_buffer *data, int is_text)
{
    Py_ssize_t n = offsets->len / (Py_ssize_t)sizeof(int64_t) - 1;
    if (n < 0 || offsets->len % (Py_ssize_t)sizeof(int64_t)) {
        PyErr_SetString(PyExc_ValueError, "strings_list: the offsets are not one int64 more than there are strings");
        return NULL;
    }
    PyObject *list = PyList_New(n);
    int64_t start = offset_at(offsets, 0);
    for (Py_ssize_t i = 0; list && i < n; i++) {
        int64_t end = offset_at(offsets, i + 1);
        PyObject *item = NULL;
        if (start < 0 || end < start || end > data->len)
            PyErr_Format(PyExc_ValueError, "strings_list: string %zd does not lie in the data", i);
        else if (is_text)
            item = PyUnicode_DecodeUTF8((const char *)data->buf + start, (Py_ssize_t)(end - start), NULL);
        else
            item = PyBytes_FromStringAndSize((const char *)data->buf + start, (Py_ssize_t)(end - start));
        if (!item || PyList_SetItem(list, i, item) < 0) {
            Py_DECREF(list);
            return NULL;
        }
        start = end;
    }
    return list;
}

static PyObject *py_strings_list(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    Py_buffer offsets, data;
    (void)module;
    if (!binding_arguments("strings_list", count, 3, 3))
        return NULL;
    int is_text = PyObject_IsTrue(args[2]);
    if (is_text < 0 || PyObject_GetBuffer(args[0], &offsets, PyBUF_SIMPLE) < 0)
        return NULL;
    if (PyObject_GetBuffer(args[1], &data, PyBUF_SIMPLE) < 0) {
        PyBuffer_Release(&offsets);
        return NULL;
    }
    PyObject *list = list_strings(&offsets, &data, is_text);
    PyBuffer_Release(&data);
    PyBuffer_Release(&offsets);
    return list;
}

/* A dict of the keys, to copy: that is faster than to insert them again for each row. */
static PyObject *make_template(PyObject *keys)
{
    PyObject *template = PyDict_New();
    for (Py_ssize_t k = 0; template && k < PyTuple_Size(keys); k++)
        if (PyDict_SetItem(template, PyTuple_GetItem(keys, k), Py_None) < 0)
            Py_CLEAR(template);
    return template;
}

static int fill_row(PyObject *row, PyObject *keys, PyObject *columns, Py_ssize_t i)
{
    for (Py_ssize_t k = 0; k < PyTuple_Size(keys); k++) {
        PyObject *item = PySequence_GetItem(PyTuple_GetItem(columns, k), i);
        int set = item ? PyDict_SetItem(row, PyTuple_GetItem(keys, k), item) : -1;
        Py_XDECREF(item);
        if (set < 0)
            return 0;
    }
    return 1;
}

/* Whether every column has this many items; sets an exception if not. */
static int check_columns(PyObject *keys, PyObject *columns, size_t stop)
{
    if (!PyTuple_Check(keys) || !PyTuple_Check(columns)) {
        PyErr_SetString(PyExc_TypeError, "row_dicts: keys and columns are tuples");
        return 0;
    }
    if (PyTuple_Size(keys) != PyTuple_Size(columns)) {
        PyErr_SetString(PyExc_ValueError, "row_dicts: there is not one key for each column");
        return 0;
    }
    for (Py_ssize_t k = 0; k < PyTuple_Size(columns); k++) {
        Py_ssize_t size = PySequence_Size(PyTuple_GetItem(columns, k));
        if (size < 0)
            return 0;
        if ((size_t)size < stop) {
            PyErr_Format(PyExc_IndexError, "row_dicts: column %zd ends before row %zu", k, stop);
            return 0;
        }
    }
    return 1;
}

static PyObject *py_row_dicts(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    size_t start, stop;
    (void)module;
    if (!binding_arguments("row_dicts", count, 4, 4) || !binding_position(args[3], PY_SSIZE_T_MAX, &stop)
        || !binding_position(args[2], (Py_ssize_t)stop, &start) || !check_columns(args[0], args[1], stop))
        return NULL;
    PyObject *template = make_template(args[0]);
    PyObject *rows = template ? PyList_New((Py_ssize_t)(stop - start)) : NULL;
    for (size_t i = start; rows && i < stop; i++) {
        PyObject *row = PyDict_Copy(template);
        if (!row || !fill_row(row, args[0], args[1], (Py_ssize_t)i)) {
            Py_XDECREF(row);
            Py_CLEAR(rows);
        } else if (PyList_SetItem(rows, (Py_ssize_t)(i - start), row) < 0) {
            Py_CLEAR(rows);
        }
    }
    Py_XDECREF(template);
    return rows;
}

PyMethodDef row_methods[] = {
    {"strings_list", FAST(strings_list), "strings_list(offsets, data, is_text) -> [bytes or str, ...]"},
    {"row_dicts", FAST(row_dicts), "row_dicts(keys, columns, start, stop) -> [{key: column[i], ...}, ...]"},
    {NULL, NULL, 0, NULL},
};
