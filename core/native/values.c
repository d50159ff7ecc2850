/* What changes did to rows: the values of some columns before and after them;
 * dashboards/runtime/row_values.py. */
#include "kernels.h"
#include "logged.h"

enum { COLUMNS_MAX = 1024, FEW = 16 };

/* A column that is wanted, and what a record tells of it. Of the key it is the value at
 * `key_place`, which is negative for all other columns. Of these the record says what they were
 * before (`before`, or `is_absent`), what was written, and seldom what they are `after` it. */
typedef struct {
    Reader name;
    Py_ssize_t key_place;
    LoggedValue key;
    LoggedCell before, written, after;
    int has_before, is_absent, has_written, has_after;
} Column;

/* The columns of all records, and what the present one says of the row. */
typedef struct {
    Column *columns;
    Py_ssize_t count;
    int branch;
    int existed;
} Wanted;

static int is_same(const Column *column, const uint8_t *name, size_t name_bytes) {
    return column->key_place < 0 && left(&column->name) == name_bytes
        && memcmp(column->name.at, name, name_bytes) == 0;
}

/* Return the column of this name, NULL where it is not wanted. Columns come in one order in most
 * records: the one after `*last` is tried first. */
static Column *find_column(const Wanted *wanted, Py_ssize_t *last, const uint8_t *name,
                           size_t name_bytes) {
    for (Py_ssize_t i = 0; i < wanted->count; i++) {
        Py_ssize_t place = (*last + 1 + i) % wanted->count;
        if (is_same(wanted->columns + place, name, name_bytes)) {
            *last = place;
            return wanted->columns + place;
        }
    }
    return NULL;
}

/* Values of numbers point into themselves. */
static void copy_value(LoggedValue *to, const LoggedValue *from) {
    *to = *from;
    if (from->data == from->number)
        to->data = to->number;
}

static void copy_cell(LoggedCell *to, const LoggedCell *from) {
    *to = *from;
    copy_value(&to->value, &from->value);
}

/* Functions that read return 0 where a record is unusual. */
static int read_key(Reader *reader, const Wanted *wanted) {
    int64_t count;
    if (!rowtide_read_count(reader, &count))
        return 0;
    for (Py_ssize_t i = 0; i < wanted->count; i++)
        if (wanted->columns[i].key_place >= count)
            return 0;
    for (int64_t at = 0; at < count; at++) {
        LoggedValue value;
        if (!rowtide_read_key_value(reader, &value))
            return 0;
        for (Py_ssize_t i = 0; i < wanted->count; i++)
            if (wanted->columns[i].key_place == at)
                copy_value(&wanted->columns[i].key, &value);
    }
    return rowtide_read_end(reader, count);
}

/* A column is written once: what several versions make of it is not decided here. */
static int take_written(Column *column, const LoggedCell *cell) {
    if (column->has_written || cell->op == INCREMENT || (cell->op == PUT && cell->value.is_null)
        || (cell->op == DELETE_ONE && !cell->has_version))
        return 0;
    column->has_written = 1;
    copy_cell(&column->written, cell);
    return 1;
}

static int take_before(Column *column, const LoggedCell *cell) {
    if (column->has_before || cell->op != PUT || cell->value.is_null)
        return 0;
    column->has_before = 1;
    copy_cell(&column->before, cell);
    return 1;
}

static int take_after(Column *column, const LoggedCell *cell) {
    if (column->has_after || (cell->op == PUT && cell->value.is_null))
        return 0;
    column->has_after = 1;
    copy_cell(&column->after, cell);
    return 1;
}

typedef int Take(Column *column, const LoggedCell *cell);

static int read_cells(Reader *reader, const Wanted *wanted, Take *take) {
    int64_t count;
    Py_ssize_t last = -1;
    if (!rowtide_read_count(reader, &count))
        return 0;
    for (int64_t i = 0; i < count; i++) {
        LoggedCell cell;
        if (!rowtide_read_logged(reader, &cell))
            return 0;
        Column *column = find_column(wanted, &last, cell.name, cell.name_bytes);
        if (column != NULL && !take(column, &cell))
            return 0;
    }
    return rowtide_read_end(reader, count);
}

/* Read the names of columns that had no cell. Each other column had one. */
static int read_absent(Reader *reader, const Wanted *wanted) {
    int64_t count;
    Py_ssize_t last = -1;
    if (!rowtide_read_count(reader, &count))
        return 0;
    for (int64_t i = 0; i < count; i++) {
        const uint8_t *name;
        size_t size;
        if (!rowtide_read_slice(reader, &name, &size) || !rowtide_is_text(name, size))
            return 0;
        Column *column = find_column(wanted, &last, name, size);
        if (column != NULL)
            column->is_absent++;
    }
    for (Py_ssize_t i = 0; i < wanted->count; i++) {
        const Column *column = wanted->columns + i;
        if (column->key_place < 0 && column->has_before + column->is_absent != 1)
            return 0;
    }
    return rowtide_read_end(reader, count);
}

/* Read a change with original columns, which changes no index. */
static int read_record(Reader record, Py_ssize_t at, Reader head, Wanted *wanted) {
    if (left(&record) < left(&head) || memcmp(record.at, head.at, left(&head)) != 0 || at < 0
        || (size_t)at >= left(&record))
        return 0;
    record.at += at;
    wanted->branch = *record.at++;
    if (!is_kept_branch(wanted->branch))
        return 0;
    for (Py_ssize_t i = 0; i < wanted->count; i++) {
        Column *column = wanted->columns + i;
        column->has_before = column->is_absent = column->has_written = column->has_after = 0;
    }
    return read_key(&record, wanted)
        && (wanted->branch == B_KEPT_DELETE || read_cells(&record, wanted, take_written))
        && rowtide_read_existed(&record, &wanted->existed)
        && read_cells(&record, wanted, take_before) && read_absent(&record, wanted)
        && read_cells(&record, wanted, take_after) && left(&record) == 1 && !*record.at;
}

/* Return the value of a column after the change, NULL where it has none; core/records/kept.py. */
static const LoggedValue *find_after(const Column *column, int whole) {
    const LoggedCell *held = !whole && column->has_before ? &column->before : NULL;
    const LoggedCell *written = &column->written;
    if (column->has_after)
        return column->after.op == PUT ? &column->after.value : NULL;
    if (column->has_written && written->op == PUT) {
        if (held == NULL || held->version <= written->version)
            held = written;
    } else if (column->has_written && held != NULL) {
        int is_version = held->has_version && held->version == written->version;
        if (written->op == DELETE_ALL || is_version)
            held = NULL;
    }
    return held == NULL ? NULL : &held->value;
}

/* Return the value of a column in the row after the change, or before it. */
static const LoggedValue *find_value(const Wanted *wanted, Py_ssize_t i, int is_after) {
    const Column *column = wanted->columns + i;
    if (column->key_place >= 0)
        return &column->key;
    if (is_after)
        return find_after(column, wanted->branch == B_KEPT_PUT);
    return column->has_before ? &column->before.value : NULL;
}

/* True if the change wrote none of the columns. */
static int is_unchanged(const Wanted *wanted) {
    for (Py_ssize_t i = 0; i < wanted->count; i++)
        if (find_value(wanted, i, 1) != find_value(wanted, i, 0))
            return 0;
    return 1;
}

/* Return a row as a tuple, NULL with an exception. Values of a row `before`, which may be NULL, are
 * used again. */
static PyObject *make_row(const Wanted *wanted, int is_after, PyObject *before) {
    if (before != NULL && is_unchanged(wanted))
        return Py_NewRef(before);
    PyObject *row = PyTuple_New(wanted->count);
    for (Py_ssize_t i = 0; row != NULL && i < wanted->count; i++) {
        const LoggedValue *value = find_value(wanted, i, is_after);
        PyObject *made;
        if (value == NULL)
            made = Py_NewRef(Py_None);
        else if (before != NULL && value == find_value(wanted, i, 0))
            made = Py_XNewRef(PyTuple_GetItem(before, i));
        else
            made = rowtide_variant_of(value);
        /* Takes the reference. */
        if (made == NULL || PyTuple_SetItem(row, i, made) < 0)
            Py_CLEAR(row);
    }
    return row;
}

/* Return the rows before and after a change, None for a row that is not there. If the change wrote
 * none of the columns, both are one object. */
static PyObject *make_effect(const Wanted *wanted) {
    PyObject *before = wanted->existed ? make_row(wanted, 0, NULL) : Py_NewRef(Py_None);
    if (before == NULL)
        return NULL;
    PyObject *after = wanted->branch == B_KEPT_DELETE ? Py_NewRef(Py_None)
        : make_row(wanted, 1, wanted->existed ? before : NULL);
    if (after == NULL) {
        Py_DECREF(before);
        return NULL;
    }
    return Py_BuildValue("(NN)", before, after);
}

/* Read the columns that are wanted: (name, place in the key or -1). */
static int read_columns(PyObject *given, Wanted *wanted) {
    for (Py_ssize_t i = 0; i < wanted->count; i++) {
        PyObject *pair = PyTuple_GetItem(given, i), *place;
        if (!PyTuple_CheckExact(pair) || PyTuple_Size(pair) != 2
            || !reader_of(PyTuple_GetItem(pair, 0), &wanted->columns[i].name))
            return 0;
        place = PyTuple_GetItem(pair, 1);
        if (!PyLong_CheckExact(place))
            return 0;
        wanted->columns[i].key_place = PyLong_AsSsize_t(place);
        if (PyErr_Occurred())
            return -1;
    }
    return 1;
}

/* Return what a record (bytes, where its body begins) did, None where it is unusual. */
static PyObject *read_effect(PyObject *given, Reader head, Wanted *wanted) {
    Reader record;
    if (!PyTuple_CheckExact(given) || PyTuple_Size(given) != 2
        || !reader_of(PyTuple_GetItem(given, 0), &record)
        || !PyLong_CheckExact(PyTuple_GetItem(given, 1)))
        RETURN_UNUSUAL;
    Py_ssize_t at = PyLong_AsSsize_t(PyTuple_GetItem(given, 1));
    if (PyErr_Occurred())
        return NULL;
    if (!read_record(record, at, head, wanted))
        RETURN_UNUSUAL;
    return make_effect(wanted);
}

static PyObject *read_effects(PyObject *records, Reader head, Wanted *wanted) {
    PyObject *effects = PyList_New(0);
    for (Py_ssize_t i = 0; effects != NULL && i < PyList_Size(records); i++) {
        PyObject *effect = read_effect(PyList_GetItem(records, i), head, wanted);
        if (effect == NULL || PyList_Append(effects, effect) < 0)
            Py_CLEAR(effects);
        Py_XDECREF(effect);
    }
    return effects;
}

PyObject *rowtide_row_values(PyObject *module, PyObject *const *args, Py_ssize_t given) {
    (void)module;
    Reader head;
    if (given != 3)
        return rowtide_wrong_arguments("row_values", 3);
    if (!PyList_CheckExact(args[0]) || !reader_of(args[1], &head) || !PyTuple_CheckExact(args[2])
        || PyTuple_Size(args[2]) > COLUMNS_MAX)
        RETURN_UNUSUAL;
    Column few[FEW];
    Wanted wanted = {.columns = few, .count = PyTuple_Size(args[2])};
    if (wanted.count > FEW)
        wanted.columns = PyMem_Malloc((size_t)wanted.count * sizeof *wanted.columns);
    if (wanted.columns == NULL)
        return PyErr_NoMemory();
    int usual = read_columns(args[2], &wanted);
    PyObject *effects = NULL;
    if (usual > 0)
        effects = read_effects(args[0], head, &wanted);
    else if (!usual)
        effects = Py_NewRef(Py_None);
    if (wanted.columns != few)
        PyMem_Free(wanted.columns);
    return effects;
}
