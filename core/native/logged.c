/* Reads values and cells from the log's records. */
#include "logged.h"

/* Read bytes that a length stands before. */
int rowtide_read_slice(Reader *reader, const uint8_t **text, size_t *size) {
    int64_t length;
    if (!rowtide_read_long(reader, &length) || length < 0 || (uint64_t)length > left(reader))
        return 0;
    *text = reader->at;
    *size = (size_t)length;
    reader->at += length;
    return 1;
}

static void take_number(LoggedValue *value, int64_t number) {
    store64(value->number, (uint64_t)number);
    value->kind = V_INTEGER;
    value->data = value->number;
    value->data_bytes = 8;
}

/* Read what stands behind a branch. Texts are UTF-8. */
static int read_value(Reader *reader, uint8_t branch, LoggedValue *value) {
    int64_t number;
    value->is_null = branch == B_NULL;
    value->data = NULL;
    value->data_bytes = 0;
    value->kind = 0;
    switch (branch) {
    case B_NULL:
        return 1;
    case B_LONG:
        if (!rowtide_read_long(reader, &number))
            return 0;
        take_number(value, number);
        return 1;
    case B_DOUBLE:
    case B_BOOLEAN:
        value->kind = branch == B_DOUBLE ? V_DOUBLE : V_BOOLEAN;
        value->data_bytes = branch == B_DOUBLE ? 8 : 1;
        if (left(reader) < value->data_bytes)
            return 0;
        value->data = reader->at;
        reader->at += value->data_bytes;
        return branch == B_DOUBLE || value->data[0] <= 1;
    case B_STRING:
    case B_BYTES:
        value->kind = branch == B_STRING ? V_STRING : V_BLOB;
        if (!rowtide_read_slice(reader, &value->data, &value->data_bytes)
            || value->data_bytes > UINT32_MAX - 5)
            return 0;
        return branch == B_BYTES || rowtide_is_text(value->data, value->data_bytes);
    default:
        return 0;
    }
}

/* Branches of a value by those of a key's column. */
int rowtide_read_key_value(Reader *reader, LoggedValue *value) {
    if (!left(reader))
        return 0;
    uint8_t branch = *reader->at++;
    if (branch != B_KEY_LONG && branch != B_KEY_STRING && branch != B_KEY_BYTES)
        return 0;
    static const uint8_t as_value[] = {B_LONG, B_STRING, B_BYTES};
    return read_value(reader, as_value[branch >> 1], value);
}

size_t rowtide_variant_bytes(const LoggedValue *value) {
    return value->is_null ? 0 : value_head_bytes(value->kind) + value->data_bytes;
}

uint8_t *rowtide_write_variant(uint8_t *out, const LoggedValue *value) {
    if (value->is_null)
        return out;
    *out++ = value->kind;
    if (value_head_bytes(value->kind) == 5)
        out = store32(out, (uint32_t)value->data_bytes);
    return copy(out, value->data, value->data_bytes);
}

int rowtide_read_logged(Reader *reader, LoggedCell *cell) {
    if (!rowtide_read_slice(reader, &cell->name, &cell->name_bytes)
        || cell->name_bytes > UINT32_MAX - 1 || !rowtide_is_text(cell->name, cell->name_bytes)
        || left(reader) < 2)
        return 0;
    uint8_t op = *reader->at++, branch = *reader->at++;
    if (op != PUT << 1 && op != DELETE_ALL << 1 && op != DELETE_ONE << 1 && op != INCREMENT << 1)
        return 0;
    cell->op = op >> 1;
    if (!read_value(reader, branch, &cell->value) || !left(reader))
        return 0;
    branch = *reader->at++;
    cell->has_version = branch == 2;
    cell->version = 0;
    if (branch != 0 && (branch != 2 || !rowtide_read_long(reader, &cell->version)))
        return 0;
    if (!left(reader))
        return 0;
    cell->crc = *reader->at++;
    return 1;
}

/* Read how many items an array has: in one block, which its writer here makes. Its end, a zero, is
 * read by `rowtide_read_end`. */
int rowtide_read_count(Reader *reader, int64_t *count) {
    return rowtide_read_long(reader, count) && *count >= 0;
}

int rowtide_read_end(Reader *reader, int64_t count) {
    return !count || (left(reader) && *reader->at++ == 0);
}

int rowtide_read_existed(Reader *reader, int *existed) {
    if (!left(reader) || *reader->at > 1)
        return 0;
    *existed = *reader->at++;
    return 1;
}

PyObject *rowtide_variant_of(const LoggedValue *value) {
    PyObject *made = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)rowtide_variant_bytes(value));
    if (made != NULL)
        rowtide_write_variant((uint8_t *)PyBytes_AsString(made), value);
    return made;
}
