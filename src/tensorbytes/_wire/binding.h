/* What the files of the limited-API shim share. */
#ifndef TENSORBYTES_BINDING_H
#define TENSORBYTES_BINDING_H

#define PY_SSIZE_T_CLEAN
#include <pyconfig.h>
#ifndef Py_GIL_DISABLED /* free-threaded CPython has no limited API */
#define Py_LIMITED_API 0x030b0000
#endif
#include <Python.h>

#define FAST(name) (PyCFunction)(void (*)(void))py_##name, METH_FASTCALL

/* Whether a call has the right number of arguments; sets TypeError if not. */
int binding_arguments(const char *name, Py_ssize_t got, Py_ssize_t least, Py_ssize_t most);

/* An integer argument that must lie in [0, most]; sets IndexError if it does not. */
int binding_position(PyObject *object, Py_ssize_t most, size_t *out);

/* The argument at `place`, if it is there: whether to do without what only some machines have; -1 with an exception set. */
int binding_portable(PyObject *const *args, Py_ssize_t count, Py_ssize_t place);

/* The functions over Examples, in example_binding.c. */
extern PyMethodDef example_methods[];

/* The codecs, in codec_binding.c. */
extern PyMethodDef codec_methods[];

/* Columns of tables, in columns_binding.c. */
extern PyMethodDef column_methods[];

/* Records by their places, in gather_binding.c. */
extern PyMethodDef gather_methods[];

/* Rows of columns, in rows_binding.c. */
extern PyMethodDef row_methods[];

/* Objects of the native frame, in objects_binding.c. */
extern PyMethodDef object_methods[];
/* Figures over numbers, in numbers_binding.c. */
extern PyMethodDef number_methods[];

#endif
