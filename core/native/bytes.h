/* What all kernels share: numbers, text and checksums in bytes of which nothing is trusted.
 *
 * A reader is a pointer and an end. Whatever a length says is compared with what is left before
 * anything is read or allocated. A function that returns int returns 1 for "as expected" and 0 for
 * anything else, after which the kernel returns None and the Python function beside it decides.
 */
#ifndef ROWTIDE_BYTES_H
#define ROWTIDE_BYTES_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

/* The type byte of a variant; core/values/variant.py. */
enum { V_INTEGER = 0, V_DOUBLE = 1, V_BOOLEAN = 2, V_STRING = 3, V_BLOB = 7,
       V_INF_MIN = 9, V_INF_MAX = 10, V_AUTO_INCREMENT = 11 };

/* Operations of a cell; core/values/cell.py. */
enum { PUT = 0, DELETE_ALL = 1, DELETE_ONE = 3, INCREMENT = 4 };

/* Tags; core/protocol/plainbuffer.py. */
enum { T_KEY = 1, T_CELLS = 2, T_CELL = 3, T_NAME = 4, T_VALUE = 5, T_OP = 6, T_VERSION = 7,
       T_REMOVED = 8, T_ROW_CHECKSUM = 9, T_CELL_CHECKSUM = 10, T_EXTENSION = 11, T_SEQUENCE = 12,
       T_EPOCH = 13, T_STAMP = 14, T_INDEX = 15 };

typedef struct {
    const uint8_t *at;
    const uint8_t *end;
} Reader;

/* One cell, as slices of the bytes that it was read from. `value` is a whole variant, empty for a
 * delete; `text_bytes` of it are its data where that has a length of its own. */
typedef struct {
    const uint8_t *name;
    const uint8_t *value;
    size_t name_bytes;
    size_t value_bytes;
    int64_t version;
    int has_version;
    uint8_t op;
    uint8_t crc;
} WireCell;

extern uint8_t rowtide_crc8_tables[8][256];
void rowtide_crc8_fill(void);
uint8_t rowtide_crc8(const uint8_t *text, size_t size, uint8_t state);

static inline uint8_t crc8_step(uint8_t state) { return rowtide_crc8_tables[0][state]; }

int rowtide_is_text(const uint8_t *text, size_t size);
int rowtide_read_cell(Reader *reader, WireCell *cell, int keyed);
int rowtide_skim_cell(Reader *reader, WireCell *cell);
int rowtide_skim_column(Reader *reader, WireCell *column);
size_t rowtide_write_long(uint8_t *out, int64_t number);
int rowtide_read_long(Reader *reader, int64_t *number);
PyObject *rowtide_new_cell(PyTypeObject *type, const WireCell *cell, PyObject **version,
                           int64_t *version_ms);
int rowtide_is_cell_type(PyObject *type);

static inline size_t left(const Reader *reader) { return (size_t)(reader->end - reader->at); }

static inline uint32_t load32(const uint8_t *at) {
    return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

static inline uint64_t load64(const uint8_t *at) {
    return (uint64_t)load32(at) | (uint64_t)load32(at + 4) << 32;
}

static inline uint8_t *store16(uint8_t *out, unsigned number) {
    out[0] = (uint8_t)number;
    out[1] = (uint8_t)(number >> 8);
    return out + 2;
}

static inline uint8_t *store32(uint8_t *out, uint32_t number) {
    out[0] = (uint8_t)number;
    out[1] = (uint8_t)(number >> 8);
    out[2] = (uint8_t)(number >> 16);
    out[3] = (uint8_t)(number >> 24);
    return out + 4;
}

static inline uint8_t *store64(uint8_t *out, uint64_t number) {
    return store32(store32(out, (uint32_t)number), (uint32_t)(number >> 32));
}

static inline uint8_t *copy(uint8_t *out, const uint8_t *from, size_t size) {
    if (size)
        memcpy(out, from, size);
    return out + size;
}

/* True if the next bytes are the tags of a cell and its name. */
static inline int at_cell(const Reader *reader) {
    return left(reader) >= 2 && reader->at[0] == T_CELL && reader->at[1] == T_NAME;
}

/* Bytes of a variant before its data. */
static inline size_t value_head_bytes(uint8_t kind) {
    return kind == V_STRING || kind == V_BLOB ? 5 : 1;
}

#define RETURN_UNUSUAL return Py_NewRef(Py_None)

#endif
