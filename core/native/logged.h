/* Values and cells as the log's records have them, in Avro; core/records/avro.py. They are slices
 * of the bytes that they were read from. */
#ifndef ROWTIDE_LOGGED_H
#define ROWTIDE_LOGGED_H

#include "bytes.h"

/* Branches of a value's union, doubled as Avro's zigzag has them, and of a key column's. */
enum { B_NULL = 0, B_LONG = 2, B_DOUBLE = 4, B_BOOLEAN = 6, B_STRING = 8, B_BYTES = 10 };
enum { B_KEY_LONG = 0, B_KEY_STRING = 2, B_KEY_BYTES = 4 };
/* Branches of a record's body. */
enum { B_PUT = 2, B_UPDATE = 4, B_DELETE = 6 };
/* Branches of the same changes with original columns. */
enum { B_KEPT_PUT = 26, B_KEPT_UPDATE = 28, B_KEPT_DELETE = 30 };

/* A value in the log: a variant of `kind`, of which `data` has all but a number's eight bytes. */
typedef struct {
    uint8_t kind;
    uint8_t number[8];
    const uint8_t *data;
    size_t data_bytes;
    int is_null;
} LoggedValue;

typedef struct {
    const uint8_t *name;
    size_t name_bytes;
    LoggedValue value;
    int64_t version;
    int has_version;
    uint8_t op;
    uint8_t crc;
} LoggedCell;

int rowtide_read_slice(Reader *reader, const uint8_t **text, size_t *size);
int rowtide_read_key_value(Reader *reader, LoggedValue *value);
int rowtide_read_logged(Reader *reader, LoggedCell *cell);
int rowtide_read_existed(Reader *reader, int *existed);
int rowtide_read_count(Reader *reader, int64_t *count);
int rowtide_read_end(Reader *reader, int64_t count);
size_t rowtide_variant_bytes(const LoggedValue *value);
uint8_t *rowtide_write_variant(uint8_t *out, const LoggedValue *value);
PyObject *rowtide_variant_of(const LoggedValue *value);

static inline int is_kept_branch(int branch) {
    return branch == B_KEPT_PUT || branch == B_KEPT_UPDATE || branch == B_KEPT_DELETE;
}

#endif
