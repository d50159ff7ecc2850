/* Stored rows that answer a read as they are; core/rows/read.py. */
#include "kernels.h"

enum { CHUNK_HEADER_BYTES = 32 };

/* What a read wants of rows, and what of it is left. */
typedef struct {
    int64_t version_min;
    int64_t versions_max;
    int64_t bytes;
    int64_t rows;
} Wanted;

/* Look at a row's first chunk. True if all of it answers, and it still fits. */
static int answers(const Reader *chunk, const Wanted *wanted, size_t *counted) {
    const uint8_t *head = chunk->at;
    if (left(chunk) < CHUNK_HEADER_BYTES || head[0] != 1 || head[1] || head[2] || head[3])
        return 0;
    size_t key_bytes = (size_t)(head[4] | head[5] << 8);
    /* Without a key it is a later piece of a row, which is not looked at by itself. */
    if (!key_bytes || (int64_t)load64(head + 14) < wanted->version_min
        || (int64_t)load32(head + 22) > wanted->versions_max)
        return 0;
    *counted = key_bytes + load32(head + 26);
    return (int64_t)(left(chunk) - CHUNK_HEADER_BYTES) <= wanted->bytes;
}

PyObject *rowtide_whole_rows(PyObject *module, PyObject *const *args, Py_ssize_t given) {
    (void)module;
    if (given != 6)
        return rowtide_wrong_arguments("whole_rows", 6);
    Py_ssize_t at = PyLong_AsSsize_t(args[1]);
    Wanted wanted = {PyLong_AsLongLong(args[2]), PyLong_AsLongLong(args[3]),
                     PyLong_AsLongLong(args[4]), PyLong_AsLongLong(args[5])};
    if (PyErr_Occurred())
        return NULL;
    if (!PyList_CheckExact(args[0]) || at < 0)
        RETURN_UNUSUAL;
    PyObject *wires = PyList_New(0);
    long long bytes = 0, counted = 0;
    for (; wires != NULL && at < PyList_Size(args[0]) && wanted.rows > 0; at++, wanted.rows--) {
        PyObject *pair = PyList_GetItem(args[0], at);
        Reader chunk;
        size_t size;
        if (!PyTuple_Check(pair) || PyTuple_Size(pair) != 2
            || !reader_of(PyTuple_GetItem(pair, 1), &chunk) || !answers(&chunk, &wanted, &size))
            break;
        chunk.at += CHUNK_HEADER_BYTES;
        PyObject *wire = PyBytes_FromStringAndSize((const char *)chunk.at,
                                                   (Py_ssize_t)left(&chunk));
        if (wire == NULL || PyList_Append(wires, wire) < 0)
            Py_CLEAR(wires);
        Py_XDECREF(wire);
        bytes += (long long)left(&chunk);
        wanted.bytes -= (int64_t)left(&chunk);
        counted += (long long)size;
    }
    return wires == NULL ? NULL : Py_BuildValue("(NLL)", wires, bytes, counted);
}
