/* Stored rows that answer a read as they are; core/rows/read.py, stream/api/plain_read.py. */
#include "kernels.h"

enum { CHUNK_HEADER_BYTES = 32, UNIT_BYTES = 4096 };

/* Tags of GetRowRequest and of its answer; a row's header in PlainBuffer. */
enum { F_PRIMARY_KEY = 0x12, F_MAX_VERSIONS = 0x28, F_CACHE_BLOCKS = 0x30, F_CONSUMED = 0x0a,
       F_UNIT = 0x0a, F_READ = 0x08, F_WRITE = 0x10, F_ANSWERED_ROW = 0x12 };

static const uint8_t ROW_HEADER[4] = {0x75, 0, 0, 0};

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

/* Read what follows the table's name: a key, the newest versions, and for some clients a flag that
 * means nothing here. Return 0 where there is anything else. */
static int read_wanted(Reader *message, Reader *key, size_t *versions) {
    if (!left(message) || *message->at++ != F_PRIMARY_KEY || !rowtide_read_content(message, key)
        || !left(message) || *message->at++ != F_MAX_VERSIONS
        || !rowtide_read_varint(message, versions) || *versions < 1 || *versions > INT32_MAX)
        return 0;
    if (left(message) == 2 && message->at[0] == F_CACHE_BLOCKS && message->at[1] <= 1)
        message->at += 2;
    return !left(message);
}

PyObject *rowtide_read_get(PyObject *module, PyObject *const *args, Py_ssize_t given) {
    (void)module;
    Reader message, key, piece;
    size_t versions;
    uint8_t state;
    if (given != 5)
        return rowtide_wrong_arguments("read_get", 5);
    Py_ssize_t at = PyLong_AsSsize_t(args[1]);
    unsigned long table = PyLong_AsUnsignedLong(args[2]);
    size_t value_bytes_max = PyLong_AsSize_t(args[4]);
    if (PyErr_Occurred())
        return NULL;
    if (!reader_of(args[0], &message) || at < 0 || (size_t)at > left(&message)
        || !PyTuple_CheckExact(args[3]))
        RETURN_UNUSUAL;
    message.at += at;
    if (!read_wanted(&message, &key, &versions)
        || rowtide_open_row(&key, &piece.at, &state, NULL) <= 0)
        RETURN_UNUSUAL;
    piece.end = key.at;
    PyObject *chunk_key, *encoded;
    if (!rowtide_ends_row(&key, crc8_step(state))
        || !rowtide_fits_key(piece, args[3], value_bytes_max))
        RETURN_UNUSUAL;
    int made = rowtide_keys_of(table, piece, &chunk_key, &encoded);
    if (made < 0)
        return NULL;
    return made ? Py_BuildValue("(NNn)", chunk_key, encoded, (Py_ssize_t)versions)
                : Py_NewRef(Py_None);
}

/* Write a number as protobuf does, ten bytes at most. */
static uint8_t *write_varint(uint8_t *out, uint64_t number) {
    for (; number > 127; number >>= 7)
        *out++ = (uint8_t)(number | 128);
    *out++ = (uint8_t)number;
    return out;
}

PyObject *rowtide_whole_answer(PyObject *module, PyObject *const *args, Py_ssize_t given) {
    (void)module;
    Reader chunk;
    size_t size;
    if (given != 4)
        return rowtide_wrong_arguments("whole_answer", 4);
    Wanted wanted = {PyLong_AsLongLong(args[1]), PyLong_AsLongLong(args[2]), INT64_MAX, 1};
    int64_t overhead = PyLong_AsLongLong(args[3]);
    if (PyErr_Occurred())
        return NULL;
    if (!reader_of(args[0], &chunk) || overhead < 0 || !answers(&chunk, &wanted, &size))
        RETURN_UNUSUAL;
    chunk.at += CHUNK_HEADER_BYTES;
    int64_t counted = (int64_t)size - overhead;
    uint64_t units = counted > UNIT_BYTES ? ((uint64_t)counted + UNIT_BYTES - 1) / UNIT_BYTES : 1;
    uint8_t used[16], head[48];
    uint8_t *end = used;
    *end++ = F_READ;
    end = write_varint(end, units);
    *end++ = F_WRITE;
    *end++ = 0;
    size_t used_bytes = (size_t)(end - used);
    uint8_t *out = head;
    *out++ = F_CONSUMED;
    *out++ = (uint8_t)(used_bytes + 2);
    *out++ = F_UNIT;
    *out++ = (uint8_t)used_bytes;
    out = copy(out, used, used_bytes);
    *out++ = F_ANSWERED_ROW;
    out = write_varint(out, left(&chunk) + sizeof ROW_HEADER);
    out = copy(out, ROW_HEADER, sizeof ROW_HEADER);
    size_t head_bytes = (size_t)(out - head);
    PyObject *answer = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(head_bytes + left(&chunk)));
    if (answer == NULL)
        return NULL;
    uint8_t *begin = (uint8_t *)PyBytes_AsString(answer);
    copy(copy(begin, head, head_bytes), chunk.at, left(&chunk));
    return Py_BuildValue("(NK)", answer, (unsigned long long)units);
}
