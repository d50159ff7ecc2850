#include "bytes.h"

/* CRC-8, polynomial 07, of eight bytes at once: table k continues a sum by k more zero bytes.
 * Written once, when the module is loaded, before anything reads it. */
uint8_t rowtide_crc8_tables[8][256];

void rowtide_crc8_fill(void) {
    for (int byte = 0; byte < 256; byte++) {
        unsigned sum = (unsigned)byte;
        for (int bit = 0; bit < 8; bit++)
            sum = (sum << 1 ^ (sum & 0x80 ? 0x07 : 0)) & 0xff;
        rowtide_crc8_tables[0][byte] = (uint8_t)sum;
    }
    for (int more = 1; more < 8; more++)
        for (int byte = 0; byte < 256; byte++)
            rowtide_crc8_tables[more][byte] =
                rowtide_crc8_tables[0][rowtide_crc8_tables[more - 1][byte]];
}

uint8_t rowtide_crc8(const uint8_t *text, size_t size, uint8_t state) {
    for (; size >= 8; text += 8, size -= 8)
        state = rowtide_crc8_tables[7][text[0] ^ state] ^ rowtide_crc8_tables[6][text[1]]
            ^ rowtide_crc8_tables[5][text[2]] ^ rowtide_crc8_tables[4][text[3]]
            ^ rowtide_crc8_tables[3][text[4]] ^ rowtide_crc8_tables[2][text[5]]
            ^ rowtide_crc8_tables[1][text[6]] ^ rowtide_crc8_tables[0][text[7]];
    while (size--)
        state = rowtide_crc8_tables[0][state ^ *text++];
    return state;
}

/* True if the bytes are UTF-8 as Python decodes it: no surrogates, nothing longer than need be. */
int rowtide_is_text(const uint8_t *text, size_t size) {
    const uint8_t *end = text + size;
    while (text < end) {
        if (end - text >= 8 && !(load64(text) & 0x8080808080808080u)) {
            text += 8;
            continue;
        }
        uint8_t first = *text++;
        if (first < 0x80)
            continue;
        int following = first >= 0xf0 ? 3 : first >= 0xe0 ? 2 : 1;
        if (first < 0xc2 || first > 0xf4 || end - text < following)
            return 0;
        uint8_t second = *text;
        if ((first == 0xe0 && second < 0xa0) || (first == 0xed && second > 0x9f)
            || (first == 0xf0 && second < 0x90) || (first == 0xf4 && second > 0x8f))
            return 0;
        for (; following; following--)
            if ((*text++ & 0xc0) != 0x80)
                return 0;
    }
    return 1;
}

/* True if the value is exactly one variant that a cell, or with `keyed` a key column, may have. */
static int is_variant(const uint8_t *value, size_t size, int keyed) {
    switch (value[0]) {
    case V_STRING:
        return size >= 5 && load32(value + 1) == size - 5 && rowtide_is_text(value + 5, size - 5);
    case V_BLOB:
        return size >= 5 && load32(value + 1) == size - 5;
    case V_INTEGER:
    case V_DOUBLE:
        return size == 9;
    case V_BOOLEAN:
        return size == 2 && value[1] <= 1;
    case V_INF_MIN:
    case V_INF_MAX:
    case V_AUTO_INCREMENT:
        return keyed && size == 1;
    default:
        return 0;
    }
}

/* True if a cell of this operation has what it needs, and nothing else. */
static int is_whole(const WireCell *cell, int has_op) {
    if (!has_op)
        return cell->value_bytes > 0;
    if (cell->op == DELETE_ALL)
        return !cell->value_bytes && !cell->has_version;
    if (cell->op == DELETE_ONE)
        return !cell->value_bytes && cell->has_version;
    return cell->op == INCREMENT && cell->value_bytes && cell->value[0] == V_INTEGER
        && !cell->has_version;
}

/* Read a cell's parts, none of them checked but against the end of the bytes. */
static int read_parts(Reader *reader, WireCell *cell, int *has_op) {
    if (left(reader) < 6 || !at_cell(reader))
        return 0;
    cell->name_bytes = load32(reader->at + 2);
    reader->at += 6;
    if (left(reader) < cell->name_bytes)
        return 0;
    cell->name = reader->at;
    reader->at += cell->name_bytes;
    cell->value = NULL;
    cell->value_bytes = 0;
    if (left(reader) >= 5 && reader->at[0] == T_VALUE) {
        cell->value_bytes = load32(reader->at + 1);
        reader->at += 5;
        if (!cell->value_bytes || left(reader) < cell->value_bytes)
            return 0;
        cell->value = reader->at;
        reader->at += cell->value_bytes;
    }
    cell->op = PUT;
    *has_op = left(reader) >= 2 && reader->at[0] == T_OP;
    if (*has_op) {
        cell->op = reader->at[1];
        reader->at += 2;
    }
    cell->version = 0;
    cell->has_version = left(reader) >= 9 && reader->at[0] == T_VERSION;
    if (cell->has_version) {
        cell->version = (int64_t)load64(reader->at + 1);
        reader->at += 9;
    }
    if (left(reader) < 2 || reader->at[0] != T_CELL_CHECKSUM)
        return 0;
    cell->crc = reader->at[1];
    reader->at += 2;
    return 1;
}

/* Read a cell that anyone may have sent: name, value, form and checksum are right. A key's column
 * (`keyed`) is a value without operation and version. */
int rowtide_read_cell(Reader *reader, WireCell *cell, int keyed) {
    int has_op;
    if (!read_parts(reader, cell, &has_op) || !rowtide_is_text(cell->name, cell->name_bytes))
        return 0;
    if (cell->value_bytes && !is_variant(cell->value, cell->value_bytes, keyed))
        return 0;
    if (!is_whole(cell, has_op) || (keyed && (has_op || cell->has_version)))
        return 0;
    uint8_t crc = rowtide_crc8(cell->name, cell->name_bytes, 0);
    if (cell->value_bytes)
        crc = rowtide_crc8(cell->value, cell->value_bytes, crc);
    if (cell->has_version)
        crc = rowtide_crc8(reader->at - 10, 8, crc);
    if (has_op)
        crc = crc8_step(crc ^ cell->op);
    return crc == cell->crc;
}

/* Read a cell that this project wrote: only its form is checked. */
int rowtide_skim_cell(Reader *reader, WireCell *cell) {
    int has_op;
    return read_parts(reader, cell, &has_op) && is_whole(cell, has_op);
}

/* Read a key's column that this project wrote: it has a value, and no operation or version. */
int rowtide_skim_column(Reader *reader, WireCell *column) {
    int has_op;
    return read_parts(reader, column, &has_op) && column->value_bytes > 0 && !has_op
        && !column->has_version;
}

/* Write a number as Avro does, ten bytes at most; return how many. */
size_t rowtide_write_long(uint8_t *out, int64_t number) {
    uint64_t bits = (uint64_t)number << 1 ^ (number < 0 ? UINT64_MAX : 0);
    size_t size = 0;
    for (; bits > 127; bits >>= 7)
        out[size++] = (uint8_t)(bits | 128);
    out[size++] = (uint8_t)bits;
    return size;
}

int rowtide_read_long(Reader *reader, int64_t *number) {
    uint64_t bits = 0;
    for (int shift = 0; shift < 70 && reader->at < reader->end; shift += 7) {
        uint8_t byte = *reader->at++;
        if (shift == 63 && byte > 1)
            return 0; /* More than 64 bits. */
        bits |= (uint64_t)(byte & 127) << shift;
        if (byte < 128) {
            *number = (int64_t)(bits >> 1 ^ (0 - (bits & 1)));
            return 1;
        }
    }
    return 0;
}

/* True if objects of the type are tuples, so that their five items may be set. */
int rowtide_is_cell_type(PyObject *type) {
    return PyType_Check(type) && PyType_IsSubtype((PyTypeObject *)type, &PyTuple_Type);
}

/* Return a new tuple of `type`, or NULL with an exception. `version` is the object of the version
 * before, `version_ms`, which cells of one row mostly share; it starts as NULL. */
PyObject *rowtide_new_cell(PyTypeObject *type, const WireCell *cell, PyObject **version,
                           int64_t *version_ms) {
    PyObject *made = PyType_GenericAlloc(type, 5);
    if (made == NULL)
        return NULL;
    PyObject *stamp = Py_None;
    if (cell->has_version) {
        if (*version == NULL || *version_ms != cell->version) {
            Py_XDECREF(*version);
            *version = PyLong_FromLongLong(cell->version);
            *version_ms = cell->version;
        }
        stamp = *version;
    }
    PyObject *parts[5] = {
        PyBytes_FromStringAndSize((const char *)cell->name, (Py_ssize_t)cell->name_bytes),
        PyLong_FromLong(cell->op),
        PyBytes_FromStringAndSize((const char *)cell->value, (Py_ssize_t)cell->value_bytes),
        Py_XNewRef(stamp),
        PyLong_FromLong(cell->crc),
    };
    int failed = 0;
    for (int i = 0; i < 5; i++) {
        failed |= parts[i] == NULL;
        /* Takes the reference, also where it fails, which it does not: the tuple is new. */
        if (parts[i] != NULL && PyTuple_SetItem(made, i, parts[i]) < 0)
            failed = 1;
    }
    if (failed) {
        Py_DECREF(made);
        return NULL;
    }
    return made;
}
