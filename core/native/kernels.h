/* The kernels, and what those of one file use of another. Arguments and results are described in
 * core/native/__init__.py. */
#ifndef ROWTIDE_KERNELS_H
#define ROWTIDE_KERNELS_H

#include "bytes.h"

typedef PyObject *Fast(PyObject *module, PyObject *const *args, Py_ssize_t count);

Fast rowtide_key_row, rowtide_read_key_columns, rowtide_read_cells, rowtide_parse_cells,
    rowtide_read_plain, rowtide_row_keys, rowtide_stored_write, rowtide_read_change, rowtide_stream_row,
    rowtide_whole_rows, rowtide_stored_chunk, rowtide_read_rows, rowtide_stored_writes,
    rowtide_write_record, rowtide_hmac_states, rowtide_hmac_text, rowtide_read_signed,
    rowtide_write_answer, rowtide_read_get, rowtide_whole_answer, rowtide_read_write,
    rowtide_keep_columns, rowtide_record_batch, rowtide_write_records, rowtide_row_values;
PyObject *rowtide_cells_piece(PyObject *module, PyObject *given);
PyObject *rowtide_logged_cells(PyObject *module, PyObject *given);
PyObject *rowtide_read_envelope(PyObject *module, PyObject *given);
PyObject *rowtide_row_fields(PyObject *module, PyObject *given);
PyObject *rowtide_content_md5(PyObject *module, PyObject *given);

/* A plain write: the row's key from its tag on, and cells in the order of their names. Each is a put
 * without a version, which all get this one; in an update also an increment or a column's delete. */
typedef struct {
    Reader piece;
    Reader wire;
    uint8_t key_state;
    size_t count;
    int64_t version;
    int64_t stamp;
} Write;

PyObject *rowtide_read_key(Reader *reader, const uint8_t **piece, uint8_t *state);
int rowtide_open_row(Reader *reader, const uint8_t **piece, uint8_t *state, PyObject *columns);
int rowtide_ends_row(Reader *reader, uint8_t state);
WireCell *rowtide_cells_of(PyObject *given, Py_ssize_t *count);
uint8_t *rowtide_write_cell(uint8_t *out, const WireCell *cell);
size_t rowtide_cell_bytes(const WireCell *cell);
size_t rowtide_logged_bytes_max(const WireCell *cell);
uint8_t *rowtide_write_logged(uint8_t *out, const WireCell *cell);
int rowtide_read_varint(Reader *reader, size_t *number);
int rowtide_read_content(Reader *reader, Reader *content);
int rowtide_fits_key(Reader piece, PyObject *columns, size_t value_bytes_max);
PyObject *rowtide_read_plain_cells(Reader *reader, Reader key, uint8_t key_state,
                                   size_t value_bytes_max, int changes, size_t *count,
                                   size_t *data_bytes);
int rowtide_compare_names(const uint8_t *a, size_t a_bytes, const uint8_t *b, size_t b_bytes);
int rowtide_keys_of(unsigned long table, Reader piece, PyObject **chunk_key, PyObject **encoded);
PyObject *rowtide_store(const Write *write, int whole, PyObject *first, int64_t versions_max,
                        size_t chunk_bytes_max);
PyObject *rowtide_store_removal(const Write *write);
int rowtide_open_stored(PyObject *first, const Reader *piece, Reader *stored);
int rowtide_has_changes(const Write *write);
PyObject *rowtide_store_changes(const Write *write, PyObject *first, int64_t version_min,
                                int64_t versions_max, size_t chunk_bytes_max);
void rowtide_crc32c_fill(void);
PyObject *rowtide_wrong_arguments(const char *kernel, int count);

/* Read the bytes of an object; 0 where it is something else. */
static inline int reader_of(PyObject *given, Reader *reader) {
    char *text;
    Py_ssize_t size;
    if (!PyBytes_CheckExact(given) || PyBytes_AsStringAndSize(given, &text, &size) < 0)
        return 0;
    reader->at = (const uint8_t *)text;
    reader->end = reader->at + size;
    return 1;
}

/* Append a cell to a list. Return 0 with an exception where that fails. */
static inline int append_cell(PyObject *cells, PyTypeObject *type, const WireCell *cell,
                              PyObject **version, int64_t *version_ms) {
    PyObject *made = rowtide_new_cell(type, cell, version, version_ms);
    if (made == NULL)
        return 0;
    int failed = PyList_Append(cells, made) < 0;
    Py_DECREF(made);
    return !failed;
}

#endif
