/* A client's request and its answer, whole: what was learned of its heads, its signature and its
 * body are compared by one call, and head, checksum and signature of an answer are written by one
 * more; core/protocol/signed_form.py, stream/http/answer.py. */
#include "digest.h"

/* Where a head differs from those before; core/protocol/signed_form.py. */
enum { S_END, S_PATH, S_VALUE, S_DATE, S_MD5, S_SIGNATURE, S_LENGTH };
enum { SLOTS_MAX = 64, NO_SLOT = 255, SKEW_S_MAX = 15 * 60, LENGTH_DIGITS_MAX = 9 };

/* One request: its slots in order, and those of which there is one. */
typedef struct {
    Reader slots[SLOTS_MAX];
    size_t count;
    Reader path;
    Reader date;
    Reader md5;
    Reader signature;
    size_t length;
} Head;

/* Take the next step of a form: a number, and bytes that stand as they are. */
static int next_step(Reader *form, uint8_t *number, Reader *literal) {
    if (left(form) < 3)
        return 0;
    *number = form->at[0];
    size_t size = (size_t)form->at[1] | (size_t)form->at[2] << 8;
    form->at += 3;
    if (left(form) < size)
        return 0;
    literal->at = form->at;
    literal->end = form->at += size;
    return 1;
}

static int is_letter(uint8_t byte) { return (uint8_t)((byte | 32) - 'a') < 26; }

static int is_digit(uint8_t byte) { return (uint8_t)(byte - '0') < 10; }

static int take_path(Reader *message, Reader *path) {
    path->at = message->at;
    if (!left(message) || *message->at++ != '/')
        return 0;
    while (left(message) && is_letter(*message->at))
        message->at++;
    path->end = message->at;
    return left(path) > 1;
}

/* Take a header's value up to the line's end. A blank at either end is left to the parser, which
 * drops it, as are all bytes below the blank, and 127. */
static int take_value(Reader *message, Reader *value) {
    value->at = message->at;
    while (left(message) && *message->at >= ' ' && *message->at != 127)
        message->at++;
    value->end = message->at;
    return !left(value) || (value->at[0] != ' ' && value->end[-1] != ' ');
}

static int take_length(Reader *message, size_t *length) {
    const uint8_t *begin = message->at;
    *length = 0;
    while (left(message) && is_digit(*message->at))
        *length = *length * 10 + (size_t)(*message->at++ - '0');
    return message->at > begin && message->at - begin <= LENGTH_DIGITS_MAX;
}

static int take_slot(Reader *message, uint8_t kind, Head *head) {
    Reader *slot = &head->slots[head->count++];
    slot->at = message->at;
    int sound = kind == S_PATH ? take_path(message, slot)
        : kind == S_LENGTH     ? take_length(message, &head->length)
                               : kind <= S_SIGNATURE && take_value(message, slot);
    slot->end = message->at;
    if (kind == S_PATH)
        head->path = *slot;
    else if (kind == S_DATE)
        head->date = *slot;
    else if (kind == S_MD5)
        head->md5 = *slot;
    else if (kind == S_SIGNATURE)
        head->signature = *slot;
    return sound;
}

/* Read a head of this form. Return 0 where it has another one. */
static int take_head(Reader *message, Reader form, Head *head) {
    uint8_t kind;
    Reader literal;
    while (next_step(&form, &kind, &literal)) {
        if (left(message) < left(&literal)
            || memcmp(message->at, literal.at, left(&literal)) != 0)
            return 0;
        message->at += left(&literal);
        if (kind == S_END)
            return !left(&form);
        if (head->count == SLOTS_MAX || !take_slot(message, kind, head))
            return 0;
    }
    return 0;
}

/* Read a number of so many digits. */
static int digits(const uint8_t *at, int count) {
    int number = 0;
    for (int i = 0; i < count; i++)
        number = number * 10 + (at[i] - '0');
    return number;
}

/* Read the second since 1970 of a date as core/protocol/authentication.py:parse_date does. */
static int read_date(Reader date, int64_t *second) {
    static const char form[] = "0000-00-00T00:00:00";
    static const uint8_t days[12] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    const size_t form_bytes = sizeof form - 1;
    if (left(&date) <= form_bytes)
        return 0;
    for (size_t i = 0; i < form_bytes; i++)
        if (form[i] == '0' ? !is_digit(date.at[i]) : date.at[i] != form[i])
            return 0;
    int year = digits(date.at, 4), month = digits(date.at + 5, 2), day = digits(date.at + 8, 2);
    int hour = digits(date.at + 11, 2), minute = digits(date.at + 14, 2);
    int whole = digits(date.at + 17, 2);
    int leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    if (year < 1 || month < 1 || month > 12 || day < 1
        || day > days[month - 1] + (month == 2 && leap) || hour > 23 || minute > 59 || whole > 59)
        return 0;
    const uint8_t *rest = date.at + form_bytes;
    if (*rest == '.') {
        const uint8_t *fraction = ++rest;
        while (rest < date.end && is_digit(*rest))
            rest++;
        if (rest == fraction || rest - fraction > 9)
            return 0;
    }
    if (rest + 1 != date.end || *rest != 'Z')
        return 0;
    /* Days since 1970-01-01, with years that begin in March. */
    int64_t shifted = month > 2 ? year : year - 1;
    int64_t in_year = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1;
    int64_t since = shifted * 365 + shifted / 4 - shifted / 100 + shifted / 400 + in_year - 719468;
    *second = ((since * 24 + hour) * 60 + minute) * 60 + whole;
    return 1;
}

/* True if the signature is that of the text of this form, by these states of the key. */
static int is_signed(Reader form, const Head *head, const Reader *states) {
    uint8_t number;
    Reader literal;
    DigestKind kind;
    Digest digest;
    uint8_t expected[HMAC_TEXT_BYTES_MAX];
    if (!rowtide_states_kind(states, &kind))
        return 0;
    rowtide_hmac_begin(&digest, kind, states->at);
    while (left(&form)) {
        if (!next_step(&form, &number, &literal) || (number != NO_SLOT && number >= head->count))
            return 0;
        rowtide_digest_add(&digest, literal.at, left(&literal));
        if (number != NO_SLOT)
            rowtide_digest_add(&digest, head->slots[number].at, left(&head->slots[number]));
    }
    uint8_t *end = rowtide_hmac_end(&digest, states->at, expected);
    int equal = rowtide_equal_secretly(expected, (size_t)(end - expected), head->signature.at,
                                       left(&head->signature));
    rowtide_wipe(expected, sizeof expected);
    return equal;
}

/* True if the body has the MD5 of the head. */
static int is_intact(const Reader *body, const Head *head) {
    uint8_t expected[MD5_TEXT_BYTES];
    if (left(body) > DIGEST_TEXT_BYTES_MAX || left(&head->md5) != sizeof expected)
        return 0;
    rowtide_md5_text(expected, body->at, left(body));
    return memcmp(expected, head->md5.at, sizeof expected) == 0;
}

PyObject *rowtide_read_signed(PyObject *module, PyObject *const *args, Py_ssize_t given) {
    (void)module;
    Reader message, head_form, text_form, states;
    if (given != 7)
        return rowtide_wrong_arguments("read_signed", 7);
    int64_t now_s = PyLong_AsLongLong(args[4]), sent_s;
    Py_ssize_t head_bytes_max = PyLong_AsSsize_t(args[5]);
    Py_ssize_t body_bytes_max = PyLong_AsSsize_t(args[6]);
    if (PyErr_Occurred())
        return NULL;
    if (!reader_of(args[0], &message) || !reader_of(args[1], &head_form)
        || !reader_of(args[2], &text_form) || !reader_of(args[3], &states) || head_bytes_max < 0
        || body_bytes_max < 0 || now_s < 0 || now_s > INT64_MAX / 2)
        RETURN_UNUSUAL;
    const uint8_t *begin = message.at;
    Head head = {.count = 0};
    if (!take_head(&message, head_form, &head) || message.at - begin > head_bytes_max
        || left(&message) != head.length || head.length > (size_t)body_bytes_max
        || !left(&head.path) || !read_date(head.date, &sent_s) || now_s - sent_s > SKEW_S_MAX
        || sent_s - now_s > SKEW_S_MAX || !is_signed(text_form, &head, &states)
        || !is_intact(&message, &head))
        RETURN_UNUSUAL;
    return Py_BuildValue("(y#y#y#)", (const char *)head.path.at, (Py_ssize_t)left(&head.path),
                         (const char *)begin, (Py_ssize_t)(message.at - begin),
                         (const char *)message.at, (Py_ssize_t)left(&message));
}

/* What an answer's parts are, in the order of the arguments. */
enum { A_STATUS, A_BODY, A_DATE, A_REQUEST_ID, A_PATH, A_SIGNER, A_STATES, A_PARTS };
/* Of a part besides the body, and of all that is written beside the parts. */
enum { PART_BYTES_MAX = 512, FIXED_BYTES_MAX = 256 };

static uint8_t *write_text(uint8_t *out, const char *text) {
    return copy(out, (const uint8_t *)text, strlen(text));
}

/* Write a length in digits, 20 at most. */
static uint8_t *write_number(uint8_t *out, size_t number) {
    uint8_t reversed[20];
    int count = 0;
    do {
        reversed[count++] = (uint8_t)('0' + number % 10);
        number /= 10;
    } while (number);
    while (count)
        *out++ = reversed[--count];
    return out;
}

/* Write the lines that are signed; the last has no end. */
static uint8_t *write_signed_lines(uint8_t *out, const Reader *parts) {
    out = write_text(out, "x-ots-contentmd5:");
    out = rowtide_md5_text(out, parts[A_BODY].at, left(&parts[A_BODY]));
    out = write_text(out, "\r\nx-ots-contenttype:protocol buffer\r\nx-ots-date:");
    out = copy(out, parts[A_DATE].at, left(&parts[A_DATE]));
    out = write_text(out, "\r\nx-ots-requestid:");
    return copy(out, parts[A_REQUEST_ID].at, left(&parts[A_REQUEST_ID]));
}

/* Write the signature of lines: they are signed with a newline between them, and the path last. */
static uint8_t *write_signature(uint8_t *out, const Reader *parts, DigestKind kind, Reader lines) {
    static const uint8_t newline = '\n';
    Digest digest;
    rowtide_hmac_begin(&digest, kind, parts[A_STATES].at);
    while (left(&lines)) {
        const uint8_t *end = memchr(lines.at, '\r', left(&lines));
        size_t size = end == NULL ? left(&lines) : (size_t)(end - lines.at);
        rowtide_digest_add(&digest, lines.at, size);
        rowtide_digest_add(&digest, &newline, 1);
        lines.at += end == NULL ? size : size + 2;
    }
    rowtide_digest_add(&digest, parts[A_PATH].at, left(&parts[A_PATH]));
    return rowtide_hmac_end(&digest, parts[A_STATES].at, out);
}

/* Take an answer's parts. Return 0 where one is unusual. */
static int take_parts(PyObject *const *args, Reader *parts, DigestKind *kind) {
    for (int i = 0; i < A_PARTS; i++)
        if (!reader_of(args[i], &parts[i])
            || left(&parts[i]) > (i == A_BODY ? DIGEST_TEXT_BYTES_MAX : PART_BYTES_MAX))
            return 0;
    /* What is signed is taken apart at the lines' ends. */
    return !memchr(parts[A_DATE].at, '\r', left(&parts[A_DATE]))
        && !memchr(parts[A_REQUEST_ID].at, '\r', left(&parts[A_REQUEST_ID]))
        && rowtide_states_kind(&parts[A_STATES], kind);
}

PyObject *rowtide_write_answer(PyObject *module, PyObject *const *args, Py_ssize_t given) {
    (void)module;
    Reader parts[A_PARTS];
    DigestKind kind;
    if (given != A_PARTS)
        return rowtide_wrong_arguments("write_answer", A_PARTS);
    if (!take_parts(args, parts, &kind))
        RETURN_UNUSUAL;
    uint8_t head[FIXED_BYTES_MAX + A_PARTS * PART_BYTES_MAX];
    uint8_t *out = copy(head, parts[A_STATUS].at, left(&parts[A_STATUS]));
    out = write_text(write_number(out, left(&parts[A_BODY])), "\r\n");
    Reader lines = {out, NULL};
    lines.end = out = write_signed_lines(out, parts);
    out = write_text(out, "\r\n");
    out = copy(out, parts[A_SIGNER].at, left(&parts[A_SIGNER]));
    out = write_text(write_signature(out, parts, kind, lines), "\r\n\r\n");
    size_t head_bytes = (size_t)(out - head);
    PyObject *answer = PyBytes_FromStringAndSize(NULL,
                                                 (Py_ssize_t)(head_bytes + left(&parts[A_BODY])));
    if (answer == NULL)
        return NULL;
    uint8_t *begin = (uint8_t *)PyBytes_AsString(answer);
    copy(copy(begin, head, head_bytes), parts[A_BODY].at, left(&parts[A_BODY]));
    return answer;
}
