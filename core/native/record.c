/* Keys and cells in the log's records, in Avro; core/records/avro.py, and changes of a stream. */
#include "kernels.h"
#include "logged.h"

enum { NAME_BYTES_MAX = 8191, KEY_COLUMNS_MAX = 32 };

/* What a cell takes in the log, at most: its parts, two numbers of five bytes for lengths, one of
 * ten for a version, and four bytes. */
size_t rowtide_logged_bytes_max(const WireCell *cell) {
    return cell->name_bytes + cell->value_bytes + 10 + 10 + 10 + 4;
}

/* Write a cell; NULL where the log has no such value. */
uint8_t *rowtide_write_logged(uint8_t *out, const WireCell *cell) {
    out += rowtide_write_long(out, (int64_t)cell->name_bytes);
    out = copy(out, cell->name, cell->name_bytes);
    *out++ = (uint8_t)(cell->op << 1);
    const uint8_t *value = cell->value;
    if (!cell->value_bytes) {
        *out++ = B_NULL;
    } else if (value[0] == V_INTEGER && cell->value_bytes == 9) {
        *out++ = B_LONG;
        out += rowtide_write_long(out, (int64_t)load64(value + 1));
    } else if (value[0] == V_DOUBLE && cell->value_bytes == 9) {
        *out++ = B_DOUBLE;
        out = copy(out, value + 1, 8);
    } else if (value[0] == V_BOOLEAN && cell->value_bytes == 2) {
        *out++ = B_BOOLEAN;
        *out++ = value[1];
    } else if ((value[0] == V_STRING || value[0] == V_BLOB) && cell->value_bytes >= 5) {
        *out++ = value[0] == V_STRING ? B_STRING : B_BYTES;
        out += rowtide_write_long(out, (int64_t)cell->value_bytes - 5);
        out = copy(out, value + 5, cell->value_bytes - 5);
    } else {
        return NULL;
    }
    if (cell->has_version) {
        *out++ = 2;
        out += rowtide_write_long(out, cell->version);
    } else {
        *out++ = 0;
    }
    *out++ = cell->crc;
    return out;
}

PyObject *rowtide_logged_cells(PyObject *module, PyObject *given) {
    (void)module;
    Py_ssize_t count;
    WireCell *cells = rowtide_cells_of(given, &count);
    if (cells == NULL && count < 0)
        RETURN_UNUSUAL;
    if (cells == NULL)
        return NULL;
    size_t room = 10 + 1;
    int sound = count > 0;
    for (Py_ssize_t i = 0; i < count; i++) {
        room += rowtide_logged_bytes_max(cells + i);
        sound = sound && cells[i].name_bytes <= NAME_BYTES_MAX && cells[i].op <= INCREMENT
            && cells[i].version >= 0;
    }
    uint8_t small[4096], *scratch = room <= sizeof small ? small : PyMem_Malloc(room);
    PyObject *array = NULL;
    if (scratch == NULL) {
        PyErr_NoMemory();
    } else {
        uint8_t *out = scratch + rowtide_write_long(scratch, count);
        for (Py_ssize_t i = 0; sound && i < count; i++) {
            out = rowtide_write_logged(out, cells + i);
            sound = out != NULL;
        }
        if (sound) {
            *out++ = 0;
            array = PyBytes_FromStringAndSize((const char *)scratch, out - scratch);
        } else {
            array = Py_NewRef(Py_None);
        }
    }
    if (scratch != small)
        PyMem_Free(scratch);
    PyMem_Free(cells);
    return array;
}

/* Append what was made to a list; its reference is taken. */
static int append(PyObject *list, PyObject *made) {
    if (made == NULL)
        return -1;
    int failed = PyList_Append(list, made) < 0;
    Py_DECREF(made);
    return failed ? -1 : 1;
}

static PyObject *cell_of(PyTypeObject *type, const LoggedCell *cell, PyObject **version,
                         int64_t *version_ms) {
    WireCell made = {.name = cell->name, .name_bytes = cell->name_bytes, .op = cell->op,
                     .crc = cell->crc, .version = cell->version,
                     .has_version = cell->has_version};
    uint8_t small[256], *value = small;
    made.value_bytes = rowtide_variant_bytes(&cell->value);
    if (made.value_bytes > sizeof small)
        value = PyMem_Malloc(made.value_bytes);
    if (value == NULL)
        return PyErr_NoMemory();
    rowtide_write_variant(value, &cell->value);
    made.value = value;
    PyObject *tuple = rowtide_new_cell(type, &made, version, version_ms);
    if (value != small)
        PyMem_Free(value);
    return tuple;
}

/* Append a key's values to a list: 1 where that is done, 0 unusual, -1 with an exception. */
static int append_key(Reader *reader, PyObject *key) {
    int64_t count;
    if (!rowtide_read_count(reader, &count))
        return 0;
    for (int64_t i = 0; i < count; i++) {
        LoggedValue value;
        if (!rowtide_read_key_value(reader, &value))
            return 0;
        if (append(key, rowtide_variant_of(&value)) < 0)
            return -1;
    }
    return rowtide_read_end(reader, count);
}

static int append_cells(Reader *reader, PyObject *cells, PyTypeObject *type) {
    int64_t count, version_ms = 0;
    PyObject *version = NULL;
    int told = rowtide_read_count(reader, &count);
    for (int64_t i = 0; told > 0 && i < count; i++) {
        LoggedCell cell;
        told = rowtide_read_logged(reader, &cell);
        if (told)
            told = append(cells, cell_of(type, &cell, &version, &version_ms));
    }
    Py_XDECREF(version);
    return told > 0 ? rowtide_read_end(reader, count) : told;
}

/* True if nothing is left of a record but that it has no cells of before and, `indexed`, none of
 * indexes. */
static int ends_change(const Reader *reader, int indexed) {
    static const uint8_t nothing[2] = {0, 0};
    size_t size = indexed ? 2 : 1;
    return left(reader) == size && memcmp(reader->at, nothing, size) == 0;
}

/* Begin to read a record's body. */
static int open_change(PyObject *const *args, Reader *reader, int *branch) {
    Py_ssize_t at = PyLong_AsSsize_t(args[1]);
    if (PyErr_Occurred())
        return -1;
    if (!reader_of(args[0], reader) || at < 0 || (size_t)at >= left(reader))
        return 0;
    reader->at += at;
    *branch = *reader->at++;
    return 1;
}

PyObject *rowtide_read_envelope(PyObject *module, PyObject *given) {
    (void)module;
    enum { HEAD_BYTES = 10, OWNER_BYTES = 8, LAST_GROUP = 3 };
    Reader reader;
    int64_t at, claim, stamp;
    if (!reader_of(given, &reader) || left(&reader) < HEAD_BYTES)
        RETURN_UNUSUAL;
    const uint8_t *begin = reader.at, *owner;
    reader.at += HEAD_BYTES;
    if (!rowtide_read_long(&reader, &at) || !rowtide_read_long(&reader, &claim)
        || left(&reader) < OWNER_BYTES)
        RETURN_UNUSUAL;
    owner = reader.at;
    reader.at += OWNER_BYTES;
    if (!rowtide_read_long(&reader, &stamp) || !left(&reader))
        RETURN_UNUSUAL;
    unsigned group = *reader.at++;
    if (group & 1 || group >> 1 > LAST_GROUP)
        RETURN_UNUSUAL;
    return Py_BuildValue("((LLy#Li)n)", (long long)at, (long long)claim, (const char *)owner,
                         (Py_ssize_t)OWNER_BYTES, (long long)stamp, (int)(group >> 1),
                         (Py_ssize_t)(reader.at - begin));
}

/* What a record has of original columns: the cells before, whether the row existed, the names of
 * columns without a cell, the cells after. */
typedef struct {
    PyObject *before;
    PyObject *absent;
    PyObject *after;
    int existed;
} Kept;

/* Append names to a list, as `append_key`. */
static int append_names(Reader *reader, PyObject *names) {
    int64_t count;
    if (!rowtide_read_count(reader, &count))
        return 0;
    for (int64_t i = 0; i < count; i++) {
        const uint8_t *name;
        size_t size;
        if (!rowtide_read_slice(reader, &name, &size) || !rowtide_is_text(name, size))
            return 0;
        if (append(names, PyBytes_FromStringAndSize((const char *)name, (Py_ssize_t)size)) < 0)
            return -1;
    }
    return rowtide_read_end(reader, count);
}

/* Read original columns, up to the changes of indexes: 1 where that is done, 0 unusual, -1 with an
 * exception. */
static int read_kept(Reader *reader, Kept *kept, PyTypeObject *type) {
    kept->before = PyList_New(0);
    kept->absent = PyList_New(0);
    kept->after = PyList_New(0);
    if (kept->before == NULL || kept->absent == NULL || kept->after == NULL)
        return -1;
    int told = rowtide_read_existed(reader, &kept->existed);
    if (told > 0)
        told = append_cells(reader, kept->before, type);
    if (told > 0)
        told = append_names(reader, kept->absent);
    return told > 0 ? append_cells(reader, kept->after, type) : told;
}

/* Return a change with original columns; `reader` is behind its branch. */
static PyObject *read_kept_change(Reader reader, int branch, PyTypeObject *type) {
    Kept kept = {0};
    PyObject *key = PyList_New(0), *cells = PyList_New(0);
    int told = key == NULL || cells == NULL ? -1 : append_key(&reader, key);
    if (told > 0 && branch != B_KEPT_DELETE)
        told = append_cells(&reader, cells, type);
    if (told > 0)
        told = read_kept(&reader, &kept, type);
    PyObject *made = NULL;
    if (told > 0 && left(&reader) == 1 && !*reader.at) /* No indexes. */
        made = Py_BuildValue("(OOONOO)", key, cells, kept.before,
                             PyBool_FromLong(kept.existed), kept.absent, kept.after);
    else if (told >= 0)
        made = Py_NewRef(Py_None);
    Py_XDECREF(key);
    Py_XDECREF(cells);
    Py_XDECREF(kept.before);
    Py_XDECREF(kept.absent);
    Py_XDECREF(kept.after);
    return made;
}

PyObject *rowtide_read_change(PyObject *module, PyObject *const *args, Py_ssize_t given) {
    (void)module;
    Reader reader;
    int branch;
    if (given != 4)
        return rowtide_wrong_arguments("read_change", 4);
    int indexed = PyObject_IsTrue(args[2]);
    int told = indexed < 0 ? -1 : open_change(args, &reader, &branch);
    if (told < 0)
        return NULL;
    if (told && is_kept_branch(branch) && rowtide_is_cell_type(args[3]))
        return read_kept_change(reader, branch, (PyTypeObject *)args[3]);
    if (!told || (branch != B_PUT && branch != B_UPDATE) || !rowtide_is_cell_type(args[3]))
        RETURN_UNUSUAL;
    PyObject *key = PyList_New(0), *cells = PyList_New(0);
    told = key == NULL || cells == NULL ? -1 : append_key(&reader, key);
    if (told > 0)
        told = append_cells(&reader, cells, (PyTypeObject *)args[3]);
    if (told > 0 && ends_change(&reader, indexed))
        return Py_BuildValue("(NN)", key, cells);
    Py_XDECREF(key);
    Py_XDECREF(cells);
    if (told < 0)
        return NULL;
    RETURN_UNUSUAL;
}

/* Write the columns of a key, whose names are a tuple's, as they are sent. `out` NULL: count them
 * alone. Return 0 where one is unusual. */
static int write_key(Reader *reader, PyObject *names, uint8_t **out, size_t *size,
                     uint8_t *state) {
    int64_t count;
    if (!rowtide_read_count(reader, &count) || count != PyTuple_Size(names) || !count
        || count > KEY_COLUMNS_MAX)
        return 0;
    *state = 0;
    for (Py_ssize_t i = 0; i < count; i++) {
        LoggedValue value;
        Reader name;
        if (!rowtide_read_key_value(reader, &value) || !reader_of(PyTuple_GetItem(names, i), &name)
            || left(&name) >= UINT32_MAX)
            return 0;
        size_t name_bytes = left(&name), value_bytes = rowtide_variant_bytes(&value);
        *size += 6 + name_bytes + 5 + value_bytes + 2;
        if (*out == NULL)
            continue;
        uint8_t *at = *out;
        *at++ = T_CELL;
        *at++ = T_NAME;
        at = copy(store32(at, (uint32_t)name_bytes), name.at, name_bytes);
        *at++ = T_VALUE;
        at = store32(at, (uint32_t)value_bytes);
        uint8_t *end = rowtide_write_variant(at, &value);
        uint8_t crc = rowtide_crc8(at, value_bytes, rowtide_crc8(name.at, name_bytes, 0));
        *state = crc8_step(*state ^ crc);
        *end++ = T_CELL_CHECKSUM;
        *end++ = crc;
        *out = end;
    }
    return rowtide_read_end(reader, count);
}

/* Write the cells as they are sent, or count them alone. */
static int write_cells(Reader *reader, uint8_t **out, size_t *size, uint8_t *state,
                       int64_t *count) {
    if (!rowtide_read_count(reader, count))
        return 0;
    for (int64_t i = 0; i < *count; i++) {
        LoggedCell cell;
        if (!rowtide_read_logged(reader, &cell) || (cell.op == PUT && cell.value.is_null))
            return 0;
        size_t value_bytes = rowtide_variant_bytes(&cell.value);
        WireCell shape = {.name_bytes = cell.name_bytes, .value_bytes = value_bytes,
                          .op = cell.op, .has_version = cell.has_version};
        *size += rowtide_cell_bytes(&shape);
        if (*out == NULL)
            continue;
        uint8_t *at = *out;
        *at++ = T_CELL;
        *at++ = T_NAME;
        at = copy(store32(at, (uint32_t)cell.name_bytes), cell.name, cell.name_bytes);
        if (value_bytes) {
            *at++ = T_VALUE;
            at = rowtide_write_variant(store32(at, (uint32_t)value_bytes), &cell.value);
        }
        if (cell.op != PUT) {
            *at++ = T_OP;
            *at++ = cell.op;
        }
        if (cell.has_version) {
            *at++ = T_VERSION;
            at = store64(at, (uint64_t)cell.version);
        }
        *at++ = T_CELL_CHECKSUM;
        *at++ = cell.crc;
        *state = crc8_step(*state ^ cell.crc);
        *out = at;
    }
    return rowtide_read_end(reader, *count);
}

/* Write all of a stream's row, or count it alone: header, key, cells, place in the shard. Cells stand
 * behind the key, or at `cells`; a row may be `bare` of them. `key` moves behind what was read, unless
 * that was at `cells`, which then moves. */
static int write_row(Reader *key, Reader *cells, int bare, PyObject *names, int64_t stamp,
                     uint8_t *out, size_t *size) {
    uint8_t state = 0;
    int64_t count = 0;
    *size = 4 + 1;
    if (out != NULL)
        out = copy(out, (const uint8_t[]){0x75, 0, 0, 0, T_KEY}, 5);
    if (!write_key(key, names, &out, size, &state))
        return 0;
    if (cells == NULL)
        cells = key;
    if (!bare) {
        Reader ahead = *cells;
        if (rowtide_read_count(&ahead, &count) && count) {
            *size += 1;
            if (out != NULL)
                *out++ = T_CELLS;
        }
        if (!write_cells(cells, &out, size, &state, &count))
            return 0;
    }
    *size += 5 + 24 + 2;
    if (out != NULL) {
        *out++ = T_EXTENSION;
        out = store32(out, 24);
        *out++ = T_SEQUENCE;
        out = store32(out, 19);
        *out++ = T_EPOCH;
        out = store32(out, 0);
        *out++ = T_STAMP;
        out = store64(out, (uint64_t)stamp);
        *out++ = T_INDEX;
        out = store32(out, 0);
        *out++ = T_ROW_CHECKSUM;
        *out++ = crc8_step(state);
    }
    return 1;
}

/* Return a stream's row whose size is known, Py_None where it is unusual. */
static PyObject *make_row(Reader key, Reader *cells, int bare, PyObject *names, int64_t stamp,
                          size_t size) {
    PyObject *row = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)size);
    if (row == NULL)
        return NULL;
    if (write_row(&key, cells, bare, names, stamp, (uint8_t *)PyBytes_AsString(row), &size))
        return row;
    Py_DECREF(row);
    RETURN_UNUSUAL;
}

/* Return the rows after and before, whether it existed, and the names of columns without a cell
 * before; `key` is behind the branch. Cells after that the record has are unusual. */
static PyObject *make_kept_rows(Reader key, int bare, PyObject *names, int64_t stamp) {
    Reader rest = key, again = key;
    size_t size, before_size;
    int existed;
    if (!write_row(&rest, NULL, bare, names, stamp, NULL, &size)
        || !rowtide_read_existed(&rest, &existed))
        RETURN_UNUSUAL;
    Reader before = rest;
    if (!write_row(&again, &rest, 0, names, stamp, NULL, &before_size))
        RETURN_UNUSUAL;
    PyObject *absent = PyList_New(0);
    int told = absent == NULL ? -1 : append_names(&rest, absent);
    if (told > 0)
        told = left(&rest) == 2 && !rest.at[0] && !rest.at[1]; /* Nothing after, no indexes. */
    PyObject *row = told > 0 ? make_row(key, NULL, bare, names, stamp, size) : NULL;
    PyObject *old = row != NULL ? make_row(key, &before, 0, names, stamp, before_size) : NULL;
    PyObject *made = NULL;
    if (!told)
        made = Py_NewRef(Py_None);
    else if (old != NULL)
        made = Py_BuildValue("(OONO)", row, old, PyBool_FromLong(existed), absent);
    Py_XDECREF(row);
    Py_XDECREF(old);
    Py_XDECREF(absent);
    return made;
}

PyObject *rowtide_stream_row(PyObject *module, PyObject *const *args, Py_ssize_t given) {
    (void)module;
    Reader reader;
    int branch;
    size_t size;
    if (given != 5)
        return rowtide_wrong_arguments("stream_row", 5);
    int indexed = PyObject_IsTrue(args[2]);
    int64_t stamp = PyLong_AsLongLong(args[3]);
    if (indexed < 0 || PyErr_Occurred())
        return NULL;
    int told = open_change(args, &reader, &branch);
    if (told < 0)
        return NULL;
    if (told && is_kept_branch(branch) && PyTuple_CheckExact(args[4]))
        return make_kept_rows(reader, branch == B_KEPT_DELETE, args[4], stamp);
    Reader rest = reader;
    int bare = branch == B_DELETE;
    if (!told || (branch != B_PUT && branch != B_UPDATE && branch != B_DELETE)
        || !PyTuple_CheckExact(args[4])
        || !write_row(&rest, NULL, bare, args[4], stamp, NULL, &size)
        || !ends_change(&rest, indexed))
        RETURN_UNUSUAL;
    return make_row(reader, NULL, bare, args[4], stamp, size);
}
