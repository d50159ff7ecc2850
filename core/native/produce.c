/* Record batches as Kafka takes them, of its format 2: entries become one batch by one call;
 * stream/log/kafka/batch_bytes.py. */
#include "kernels.h"

enum { HEAD_BYTES = 61, CHECKED_AT = 21, LENGTH_AT = 8, CHECKSUM_AT = 17, FORMAT = 2,
       NUMBER_BYTES_MAX = 10, RECORDS_MAX = 1 << 20 };

/* CRC-32C, polynomial 1EDC6F41, of eight bytes at once: table k continues a sum by k more zero bytes.
 * Written once, when the module is loaded. */
static uint32_t tables[8][256];

void rowtide_crc32c_fill(void) {
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t sum = byte;
        for (int bit = 0; bit < 8; bit++)
            sum = sum >> 1 ^ (sum & 1 ? 0x82f63b78u : 0);
        tables[0][byte] = sum;
    }
    for (int more = 1; more < 8; more++)
        for (int byte = 0; byte < 256; byte++)
            tables[more][byte] = tables[0][tables[more - 1][byte] & 0xff]
                ^ tables[more - 1][byte] >> 8;
}

static uint32_t crc32c(const uint8_t *text, size_t size) {
    uint32_t sum = 0xffffffffu;
    for (; size >= 8; text += 8, size -= 8) {
        uint32_t low = load32(text) ^ sum, high = load32(text + 4);
        sum = tables[7][low & 0xff] ^ tables[6][low >> 8 & 0xff] ^ tables[5][low >> 16 & 0xff]
            ^ tables[4][low >> 24] ^ tables[3][high & 0xff] ^ tables[2][high >> 8 & 0xff]
            ^ tables[1][high >> 16 & 0xff] ^ tables[0][high >> 24];
    }
    while (size--)
        sum = tables[0][(sum ^ *text++) & 0xff] ^ sum >> 8;
    return ~sum;
}

/* Write a number with its highest byte first. */
static uint8_t *write_big(uint8_t *out, uint64_t number, int bytes) {
    for (int shift = 8 * (bytes - 1); shift >= 0; shift -= 8)
        *out++ = (uint8_t)(number >> shift);
    return out;
}

/* How many bytes `rowtide_write_long` takes. */
static size_t long_bytes(int64_t number) {
    uint64_t bits = (uint64_t)number << 1 ^ (number < 0 ? UINT64_MAX : 0);
    size_t size = 1;
    for (; bits > 127; bits >>= 7)
        size++;
    return size;
}

/* A key or a value; one that is Py_None has no bytes, and is written as such. */
static int text_of(PyObject *given, Reader *text, int64_t *size) {
    if (given == Py_None) {
        *text = (Reader){NULL, NULL};
        *size = -1;
        return 1;
    }
    if (!reader_of(given, text))
        return 0;
    *size = (int64_t)left(text);
    return 1;
}

/* One record: its key and value, and how many bytes follow its length. */
typedef struct {
    Reader key;
    Reader value;
    int64_t key_bytes;
    int64_t value_bytes;
    size_t size;
} Record;

/* True if an entry has headers, which are left to Python. */
static int has_headers(PyObject *entry) {
    if (PyTuple_Size(entry) < 3)
        return 0;
    PyObject *headers = PyTuple_GetItem(entry, 2);
    return !PyList_CheckExact(headers) || PyList_Size(headers) > 0;
}

/* Look at an entry: a tuple of key, value, and perhaps headers. Return 0 where it is unusual. */
static int open_entry(PyObject *entry, Py_ssize_t at, Record *record) {
    if (!PyTuple_CheckExact(entry) || PyTuple_Size(entry) < 2 || PyTuple_Size(entry) > 3
        || has_headers(entry)
        || !text_of(PyTuple_GetItem(entry, 0), &record->key, &record->key_bytes)
        || !text_of(PyTuple_GetItem(entry, 1), &record->value, &record->value_bytes))
        return 0;
    /* Attributes, the time's and the offset's difference, key, value, the number of headers. */
    record->size = 1 + 1 + long_bytes(at) + long_bytes(record->key_bytes) + left(&record->key)
        + long_bytes(record->value_bytes) + left(&record->value) + 1;
    return 1;
}

static uint8_t *write_record(uint8_t *out, const Record *record, Py_ssize_t at) {
    out += rowtide_write_long(out, (int64_t)record->size);
    *out++ = 0;
    *out++ = 0;
    out += rowtide_write_long(out, at);
    out += rowtide_write_long(out, record->key_bytes);
    out = copy(out, record->key.at, left(&record->key));
    out += rowtide_write_long(out, record->value_bytes);
    out = copy(out, record->value.at, left(&record->value));
    *out++ = 0;
    return out;
}

/* The entries of a list or a tuple. */
typedef struct {
    PyObject *items;
    Py_ssize_t count;
    int listed;
} Entries;

static int entries_of(PyObject *given, Entries *entries) {
    entries->items = given;
    entries->listed = PyList_CheckExact(given);
    if (!entries->listed && !PyTuple_CheckExact(given))
        return 0;
    entries->count = entries->listed ? PyList_Size(given) : PyTuple_Size(given);
    return entries->count > 0 && entries->count <= RECORDS_MAX;
}

static PyObject *entry_at(const Entries *entries, Py_ssize_t at) {
    return entries->listed ? PyList_GetItem(entries->items, at)
                           : PyTuple_GetItem(entries->items, at);
}

/* Return how many bytes the batch takes; 0 where an entry is unusual, or where there are more bytes
 * than `bytes_max`. */
static size_t batch_bytes(const Entries *entries, size_t bytes_max) {
    size_t size = HEAD_BYTES;
    for (Py_ssize_t i = 0; i < entries->count; i++) {
        Record record;
        if (!open_entry(entry_at(entries, i), i, &record))
            return 0;
        size += long_bytes((int64_t)record.size) + record.size;
        if (size > bytes_max)
            return 0;
    }
    return size;
}

/* What a batch says of its writer. */
typedef struct {
    int64_t attributes;
    int64_t time_ms;
    int64_t producer_id;
    int64_t epoch;
    int64_t sequence;
} Writer;

static void write_head(uint8_t *begin, size_t size, Py_ssize_t count, const Writer *writer) {
    uint8_t *out = write_big(begin, 0, 8); /* The broker gives the offset. */
    out = write_big(out, size - LENGTH_AT - 4, 4);
    out = write_big(out, UINT64_MAX, 4); /* The leader's epoch, which the broker sets. */
    *out++ = FORMAT;
    out += 4;
    out = write_big(out, (uint64_t)writer->attributes, 2);
    out = write_big(out, (uint64_t)count - 1, 4);
    out = write_big(out, (uint64_t)writer->time_ms, 8);
    out = write_big(out, (uint64_t)writer->time_ms, 8);
    out = write_big(out, (uint64_t)writer->producer_id, 8);
    out = write_big(out, (uint64_t)writer->epoch, 2);
    out = write_big(out, (uint64_t)writer->sequence, 4);
    write_big(out, (uint64_t)count, 4);
    write_big(begin + CHECKSUM_AT, crc32c(begin + CHECKED_AT, size - CHECKED_AT), 4);
}

/* True if each number fits where it is written. */
static int is_sound(const Writer *writer) {
    return writer->attributes >= 0 && writer->attributes <= INT16_MAX && writer->epoch >= -1
        && writer->epoch <= INT16_MAX && writer->sequence >= -1 && writer->sequence <= INT32_MAX
        && writer->producer_id >= -1 && writer->time_ms >= 0;
}

PyObject *rowtide_record_batch(PyObject *module, PyObject *const *args, Py_ssize_t given) {
    (void)module;
    Entries entries;
    if (given != 7)
        return rowtide_wrong_arguments("record_batch", 7);
    Writer writer = {PyLong_AsLongLong(args[1]), PyLong_AsLongLong(args[2]),
                     PyLong_AsLongLong(args[3]), PyLong_AsLongLong(args[4]),
                     PyLong_AsLongLong(args[5])};
    Py_ssize_t bytes_max = PyLong_AsSsize_t(args[6]);
    if (PyErr_Occurred())
        return NULL;
    if (!entries_of(args[0], &entries) || !is_sound(&writer) || bytes_max < 0
        || bytes_max > INT32_MAX)
        RETURN_UNUSUAL;
    size_t size = batch_bytes(&entries, (size_t)bytes_max);
    if (!size)
        RETURN_UNUSUAL;
    PyObject *batch = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)size);
    if (batch == NULL)
        return NULL;
    uint8_t *begin = (uint8_t *)PyBytes_AsString(batch), *out = begin + HEAD_BYTES;
    for (Py_ssize_t i = 0; i < entries.count; i++) {
        Record record;
        /* Nothing of Python ran since all of them were seen, so each is as it was. */
        if (!open_entry(entry_at(&entries, i), i, &record))
            break;
        out = write_record(out, &record, i);
    }
    write_head(begin, size, entries.count, &writer);
    return batch;
}
