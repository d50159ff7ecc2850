/* The module `rowtide.core.native._kernels`. Every kernel is a function of its arguments: it keeps
 * nothing, and holds the interpreter's lock throughout. An interpreter with a lock
 * of its own can't load it; nothing here needs that. */
#include "kernels.h"

/* What core/native/__init__.py expects; raised with any change of arguments, results or bytes. */
enum { INTERFACE = 10 };

#ifndef ROWTIDE_SOURCES
#define ROWTIDE_SOURCES ""
#endif

PyObject *rowtide_wrong_arguments(const char *kernel, int count) {
    return PyErr_Format(PyExc_TypeError, "%s takes %d arguments", kernel, count);
}

#define FAST(name) {#name, (PyCFunction)(void (*)(void))rowtide_##name, METH_FASTCALL, NULL}

static PyMethodDef kernels[] = {
    FAST(key_row),
    FAST(read_key_columns),
    FAST(read_cells),
    FAST(parse_cells),
    {"cells_piece", rowtide_cells_piece, METH_O, NULL},
    FAST(read_plain),
    FAST(row_keys),
    FAST(stored_write),
    FAST(stored_chunk),
    {"logged_cells", rowtide_logged_cells, METH_O, NULL},
    {"read_envelope", rowtide_read_envelope, METH_O, NULL},
    FAST(read_change),
    FAST(stream_row),
    FAST(whole_rows),
    {"row_fields", rowtide_row_fields, METH_O, NULL},
    FAST(read_rows),
    FAST(read_write),
    FAST(stored_writes),
    FAST(keep_columns),
    FAST(write_record),
    {"content_md5", rowtide_content_md5, METH_O, NULL},
    FAST(hmac_states),
    FAST(hmac_text),
    FAST(read_signed),
    FAST(write_answer),
    FAST(read_get),
    FAST(whole_answer),
    FAST(record_batch),
    FAST(write_records),
    FAST(row_values),
    {NULL, NULL, 0, NULL},
};

static int fill(PyObject *module) {
    rowtide_crc8_fill();
    rowtide_crc32c_fill();
    if (PyModule_AddIntConstant(module, "INTERFACE", INTERFACE) < 0)
        return -1;
    return PyModule_AddStringConstant(module, "SOURCES", ROWTIDE_SOURCES);
}

static PyModuleDef_Slot slots[] = {{Py_mod_exec, (void *)fill}, {0, NULL}};

static PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_kernels", NULL, 0, kernels, slots, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__kernels(void) {
    return PyModuleDef_Init(&definition);
}
