/* Log records: an envelope, and the body of a change; core/records/record.py. */
#include "kernels.h"

enum { OWNER_BYTES = 8, NUMBER_BYTES_MAX = 10, HEAD_BYTES_MAX = 64 };

/* What the records of one writer share. */
typedef struct {
    Reader head;
    Reader owner;
    int64_t claim;
} Author;

static int is_author(const Author *author) {
    return left(&author->owner) == OWNER_BYTES && left(&author->head) <= HEAD_BYTES_MAX;
}

/* Return a whole record for an offset, or NULL with an exception. */
static PyObject *write_record(const Author *author, int64_t at, int64_t stamp, int64_t group,
                              Reader body) {
    uint8_t envelope[HEAD_BYTES_MAX + OWNER_BYTES + 4 * NUMBER_BYTES_MAX];
    uint8_t *out = copy(envelope, author->head.at, left(&author->head));
    out += rowtide_write_long(out, at);
    out += rowtide_write_long(out, author->claim);
    out = copy(out, author->owner.at, OWNER_BYTES);
    out += rowtide_write_long(out, stamp);
    out += rowtide_write_long(out, group);
    size_t envelope_bytes = (size_t)(out - envelope);
    PyObject *record = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(envelope_bytes + left(&body)));
    if (record == NULL)
        return NULL;
    uint8_t *begin = (uint8_t *)PyBytes_AsString(record);
    copy(copy(begin, envelope, envelope_bytes), body.at, left(&body));
    return record;
}

PyObject *rowtide_write_record(PyObject *module, PyObject *const *args, Py_ssize_t given) {
    (void)module;
    Author author;
    Reader body;
    if (given != 7)
        return rowtide_wrong_arguments("write_record", 7);
    int64_t at = PyLong_AsLongLong(args[1]), stamp = PyLong_AsLongLong(args[4]);
    int64_t group = PyLong_AsLongLong(args[5]);
    author.claim = PyLong_AsLongLong(args[2]);
    if (PyErr_Occurred())
        return NULL;
    if (!reader_of(args[0], &author.head) || !reader_of(args[3], &author.owner)
        || !reader_of(args[6], &body) || !is_author(&author))
        RETURN_UNUSUAL;
    return write_record(&author, at, stamp, group, body);
}

/* An evaluated change: the items that its record has; core/shard/evaluated.py. */
enum { E_STAMP = 1, E_LOG_KEY = 2, E_BODY = 3, E_GROUP = 6, E_ITEMS = 7 };

/* Return (log key, record) of an evaluated change, Py_None where it is unusual, or NULL with an
 * exception. */
static PyObject *write_pair(PyObject *change, const Author *author, int64_t at) {
    Reader body;
    if (!PyTuple_Check(change) || PyTuple_Size(change) != E_ITEMS
        || !reader_of(PyTuple_GetItem(change, E_BODY), &body))
        RETURN_UNUSUAL;
    int64_t stamp = PyLong_AsLongLong(PyTuple_GetItem(change, E_STAMP));
    int64_t group = PyLong_AsLongLong(PyTuple_GetItem(change, E_GROUP));
    if (PyErr_Occurred()) {
        PyErr_Clear(); /* No number, or one that is too large. */
        RETURN_UNUSUAL;
    }
    PyObject *record = write_record(author, at, stamp, group, body);
    PyObject *pair = record == NULL ? NULL : PyTuple_New(2);
    if (pair == NULL) {
        Py_XDECREF(record);
        return NULL;
    }
    PyTuple_SetItem(pair, 0, Py_NewRef(PyTuple_GetItem(change, E_LOG_KEY)));
    PyTuple_SetItem(pair, 1, record);
    return pair;
}

PyObject *rowtide_write_records(PyObject *module, PyObject *const *args, Py_ssize_t given) {
    (void)module;
    Author author;
    if (given != 5)
        return rowtide_wrong_arguments("write_records", 5);
    int64_t at = PyLong_AsLongLong(args[1]);
    author.claim = PyLong_AsLongLong(args[2]);
    if (PyErr_Occurred())
        return NULL;
    if (!reader_of(args[0], &author.head) || !reader_of(args[3], &author.owner)
        || !is_author(&author) || !PyList_CheckExact(args[4]) || at < 0 || at > INT64_MAX / 2)
        RETURN_UNUSUAL;
    Py_ssize_t count = PyList_Size(args[4]);
    PyObject *pairs = PyList_New(count);
    for (Py_ssize_t i = 0; pairs != NULL && i < count; i++) {
        PyObject *pair = write_pair(PyList_GetItem(args[4], i), &author, at + i);
        if (pair == Py_None) {
            Py_DECREF(pairs);
            return pair;
        }
        if (pair == NULL || PyList_SetItem(pairs, i, pair) < 0)
            Py_CLEAR(pairs);
    }
    return pairs;
}
