/* Digests of short texts: MD5, SHA-1, SHA-256, HMAC of the two SHAs, and Base64;
 * core/protocol/signature.py. No branch and no index depends on what is hashed, so the time taken
 * depends on lengths alone. States and blocks made of a key are overwritten before a function
 * returns; the key itself stays in memory as a Python object. */
#include "digest.h"

enum { SHA1_WORDS = 5, SHA256_WORDS = 8, MD5_WORDS = 4 };

static inline uint32_t turn_left(uint32_t word, int bits) {
    return word << bits | word >> (32 - bits);
}

static inline uint32_t turn_right(uint32_t word, int bits) {
    return word >> bits | word << (32 - bits);
}

static inline uint32_t load32_high(const uint8_t *at) {
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | (uint32_t)at[3];
}

static inline void store32_high(uint8_t *out, uint32_t word) {
    out[0] = (uint8_t)(word >> 24);
    out[1] = (uint8_t)(word >> 16);
    out[2] = (uint8_t)(word >> 8);
    out[3] = (uint8_t)word;
}

/* Overwrite bytes that nothing reads again; the compiler must believe that something does. */
void rowtide_wipe(void *bytes, size_t size) {
    memset(bytes, 0, size);
    __asm__ __volatile__("" : : "r"(bytes) : "memory");
}

#define MD5_STEP(mix, a, b, c, d, word, constant, bits) \
    a = b + turn_left(a + (mix) + load32(block + 4 * (word)) + constant, bits)
#define MD5_F(x, y, z) (z ^ (x & (y ^ z)))
#define MD5_H(x, y, z) (x ^ y ^ z)
#define MD5_I(x, y, z) (y ^ (x | ~z))

static void md5_block(uint32_t *state, const uint8_t *block) {
    static const uint32_t sines[64] = {
        0xd76aa478, 0xe8c7b756, 0x242070db, 0xc1bdceee, 0xf57c0faf, 0x4787c62a, 0xa8304613,
        0xfd469501, 0x698098d8, 0x8b44f7af, 0xffff5bb1, 0x895cd7be, 0x6b901122, 0xfd987193,
        0xa679438e, 0x49b40821, 0xf61e2562, 0xc040b340, 0x265e5a51, 0xe9b6c7aa, 0xd62f105d,
        0x02441453, 0xd8a1e681, 0xe7d3fbc8, 0x21e1cde6, 0xc33707d6, 0xf4d50d87, 0x455a14ed,
        0xa9e3e905, 0xfcefa3f8, 0x676f02d9, 0x8d2a4c8a, 0xfffa3942, 0x8771f681, 0x6d9d6122,
        0xfde5380c, 0xa4beea44, 0x4bdecfa9, 0xf6bb4b60, 0xbebfbc70, 0x289b7ec6, 0xeaa127fa,
        0xd4ef3085, 0x04881d05, 0xd9d4d039, 0xe6db99e5, 0x1fa27cf8, 0xc4ac5665, 0xf4292244,
        0x432aff97, 0xab9423a7, 0xfc93a039, 0x655b59c3, 0x8f0ccc92, 0xffeff47d, 0x85845dd1,
        0x6fa87e4f, 0xfe2ce6e0, 0xa3014314, 0x4e0811a1, 0xf7537e82, 0xbd3af235, 0x2ad7d2bb,
        0xeb86d391};
    uint32_t a = state[0], b = state[1], c = state[2], d = state[3];
    for (int i = 0; i < 16; i += 4) {
        MD5_STEP(MD5_F(b, c, d), a, b, c, d, i, sines[i], 7);
        MD5_STEP(MD5_F(a, b, c), d, a, b, c, i + 1, sines[i + 1], 12);
        MD5_STEP(MD5_F(d, a, b), c, d, a, b, i + 2, sines[i + 2], 17);
        MD5_STEP(MD5_F(c, d, a), b, c, d, a, i + 3, sines[i + 3], 22);
    }
    for (int i = 16; i < 32; i += 4) {
        MD5_STEP(MD5_F(d, b, c), a, b, c, d, (5 * i + 1) & 15, sines[i], 5);
        MD5_STEP(MD5_F(c, a, b), d, a, b, c, (5 * i + 6) & 15, sines[i + 1], 9);
        MD5_STEP(MD5_F(b, d, a), c, d, a, b, (5 * i + 11) & 15, sines[i + 2], 14);
        MD5_STEP(MD5_F(a, c, d), b, c, d, a, (5 * i + 16) & 15, sines[i + 3], 20);
    }
    for (int i = 32; i < 48; i += 4) {
        MD5_STEP(MD5_H(b, c, d), a, b, c, d, (3 * i + 5) & 15, sines[i], 4);
        MD5_STEP(MD5_H(a, b, c), d, a, b, c, (3 * i + 8) & 15, sines[i + 1], 11);
        MD5_STEP(MD5_H(d, a, b), c, d, a, b, (3 * i + 11) & 15, sines[i + 2], 16);
        MD5_STEP(MD5_H(c, d, a), b, c, d, a, (3 * i + 14) & 15, sines[i + 3], 23);
    }
    for (int i = 48; i < 64; i += 4) {
        MD5_STEP(MD5_I(b, c, d), a, b, c, d, (7 * i) & 15, sines[i], 6);
        MD5_STEP(MD5_I(a, b, c), d, a, b, c, (7 * i + 7) & 15, sines[i + 1], 10);
        MD5_STEP(MD5_I(d, a, b), c, d, a, b, (7 * i + 14) & 15, sines[i + 2], 15);
        MD5_STEP(MD5_I(c, d, a), b, c, d, a, (7 * i + 21) & 15, sines[i + 3], 21);
    }
    state[0] += a;
    state[1] += b;
    state[2] += c;
    state[3] += d;
}

/* One step of SHA-1. The words stay where they are, and the next step names them otherwise. */
#define SHA1_STEP(mix, a, b, c, d, e, constant, word) \
    do { \
        e += turn_left(a, 5) + mix(b, c, d) + constant + (word); \
        b = turn_left(b, 30); \
    } while (0)
#define SHA1_F(x, y, z) (z ^ (x & (y ^ z)))
#define SHA1_G(x, y, z) (x ^ y ^ z)
#define SHA1_H(x, y, z) ((x & y) | (z & (x | y)))
#define SHA1_STEPS(mix, from, constant) \
    for (int i = from; i < from + 20; i += 5) { \
        SHA1_STEP(mix, a, b, c, d, e, constant, sha1_word(words, i)); \
        SHA1_STEP(mix, e, a, b, c, d, constant, sha1_word(words, i + 1)); \
        SHA1_STEP(mix, d, e, a, b, c, constant, sha1_word(words, i + 2)); \
        SHA1_STEP(mix, c, d, e, a, b, constant, sha1_word(words, i + 3)); \
        SHA1_STEP(mix, b, c, d, e, a, constant, sha1_word(words, i + 4)); \
    }

/* Return a word of the schedule. The last 16 are kept: a loop that makes all of them is turned into
 * vectors by GCC 12, and then takes longer than all the rest. */
static inline uint32_t sha1_word(uint32_t *words, int i) {
    if (i < 16)
        return words[i];
    uint32_t word = words[(i + 13) & 15] ^ words[(i + 8) & 15] ^ words[(i + 2) & 15];
    return words[i & 15] = turn_left(word ^ words[i & 15], 1);
}

static void sha1_block(uint32_t *state, const uint8_t *block) {
    uint32_t words[16];
    for (int i = 0; i < 16; i++)
        words[i] = load32_high(block + 4 * i);
    uint32_t a = state[0], b = state[1], c = state[2], d = state[3], e = state[4];
    SHA1_STEPS(SHA1_F, 0, 0x5a827999)
    SHA1_STEPS(SHA1_G, 20, 0x6ed9eba1)
    SHA1_STEPS(SHA1_H, 40, 0x8f1bbcdc)
    SHA1_STEPS(SHA1_G, 60, 0xca62c1d6)
    state[0] += a;
    state[1] += b;
    state[2] += c;
    state[3] += d;
    state[4] += e;
}

/* One step of SHA-256, as above. */
#define SHA256_STEP(a, b, c, d, e, f, g, h, at) \
    do { \
        h += (turn_right(e, 6) ^ turn_right(e, 11) ^ turn_right(e, 25)) + (g ^ (e & (f ^ g))) \
            + roots[at] + words[at]; \
        d += h; \
        h += (turn_right(a, 2) ^ turn_right(a, 13) ^ turn_right(a, 22)) \
            + ((a & b) | (c & (a | b))); \
    } while (0)

static void sha256_block(uint32_t *state, const uint8_t *block) {
    static const uint32_t roots[64] = {
        0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4,
        0xab1c5ed5, 0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe,
        0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f,
        0x4a7484aa, 0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7,
        0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967, 0x27b70a85, 0x2e1b2138, 0x4d2c6dfc,
        0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1, 0xa81a664b,
        0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116,
        0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
        0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7,
        0xc67178f2};
    uint32_t words[64];
    for (int i = 0; i < 16; i++)
        words[i] = load32_high(block + 4 * i);
    for (int i = 16; i < 64; i++) {
        uint32_t early = words[i - 15], late = words[i - 2];
        words[i] = words[i - 16] + words[i - 7]
            + (turn_right(early, 7) ^ turn_right(early, 18) ^ early >> 3)
            + (turn_right(late, 17) ^ turn_right(late, 19) ^ late >> 10);
    }
    uint32_t a = state[0], b = state[1], c = state[2], d = state[3];
    uint32_t e = state[4], f = state[5], g = state[6], h = state[7];
    for (int i = 0; i < 64; i += 8) {
        SHA256_STEP(a, b, c, d, e, f, g, h, i);
        SHA256_STEP(h, a, b, c, d, e, f, g, i + 1);
        SHA256_STEP(g, h, a, b, c, d, e, f, i + 2);
        SHA256_STEP(f, g, h, a, b, c, d, e, i + 3);
        SHA256_STEP(e, f, g, h, a, b, c, d, i + 4);
        SHA256_STEP(d, e, f, g, h, a, b, c, i + 5);
        SHA256_STEP(c, d, e, f, g, h, a, b, i + 6);
        SHA256_STEP(b, c, d, e, f, g, h, a, i + 7);
    }
    const uint32_t mixed[8] = {a, b, c, d, e, f, g, h};
    for (int i = 0; i < 8; i++)
        state[i] += mixed[i];
}

static size_t words_of(DigestKind kind) {
    return kind == SHA1 ? SHA1_WORDS : kind == SHA256 ? SHA256_WORDS : MD5_WORDS;
}

size_t rowtide_digest_bytes(DigestKind kind) { return 4 * words_of(kind); }

void rowtide_digest_begin(Digest *digest, DigestKind kind) {
    static const uint32_t first[5] = {0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476, 0xc3d2e1f0};
    static const uint32_t first256[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                         0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    digest->kind = kind;
    digest->size = 0;
    memcpy(digest->state, kind == SHA256 ? first256 : first, rowtide_digest_bytes(kind));
}

static void take_block(Digest *digest, const uint8_t *block) {
    if (digest->kind == SHA1)
        sha1_block(digest->state, block);
    else if (digest->kind == SHA256)
        sha256_block(digest->state, block);
    else
        md5_block(digest->state, block);
}

void rowtide_digest_add(Digest *digest, const uint8_t *text, size_t size) {
    size_t used = digest->size % DIGEST_BLOCK_BYTES;
    digest->size += size;
    if (used) {
        size_t taken = DIGEST_BLOCK_BYTES - used < size ? DIGEST_BLOCK_BYTES - used : size;
        copy(digest->block + used, text, taken);
        if (used + taken < DIGEST_BLOCK_BYTES)
            return;
        take_block(digest, digest->block);
        text += taken;
        size -= taken;
    }
    for (; size >= DIGEST_BLOCK_BYTES; text += DIGEST_BLOCK_BYTES, size -= DIGEST_BLOCK_BYTES)
        take_block(digest, text);
    copy(digest->block, text, size);
}

/* Write the digest, of `rowtide_digest_bytes`, and overwrite its state. */
void rowtide_digest_end(Digest *digest, uint8_t *out) {
    uint64_t bits = (uint64_t)digest->size * 8;
    size_t used = digest->size % DIGEST_BLOCK_BYTES;
    digest->block[used++] = 0x80;
    if (used > DIGEST_BLOCK_BYTES - 8) {
        memset(digest->block + used, 0, DIGEST_BLOCK_BYTES - used);
        take_block(digest, digest->block);
        used = 0;
    }
    memset(digest->block + used, 0, DIGEST_BLOCK_BYTES - 8 - used);
    if (digest->kind == MD5) {
        store64(digest->block + DIGEST_BLOCK_BYTES - 8, bits);
    } else {
        store32_high(digest->block + DIGEST_BLOCK_BYTES - 8, (uint32_t)(bits >> 32));
        store32_high(digest->block + DIGEST_BLOCK_BYTES - 4, (uint32_t)bits);
    }
    take_block(digest, digest->block);
    for (size_t i = 0; i < words_of(digest->kind); i++) {
        if (digest->kind == MD5)
            store32(out + 4 * i, digest->state[i]);
        else
            store32_high(out + 4 * i, digest->state[i]);
    }
    rowtide_wipe(digest, sizeof *digest);
}

/* Tell by their length which digest saved states are of. */
int rowtide_states_kind(const Reader *states, DigestKind *kind) {
    *kind = left(states) == 2 * 4 * SHA1_WORDS ? SHA1 : SHA256;
    return left(states) == 2 * rowtide_digest_bytes(*kind);
}

/* Go on from a state behind one block: HMAC's inner (0) or outer (1) one. */
static void resume(Digest *digest, DigestKind kind, const uint8_t *states, int outer) {
    const uint8_t *at = states + (outer ? rowtide_digest_bytes(kind) : 0);
    digest->kind = kind;
    digest->size = DIGEST_BLOCK_BYTES;
    for (size_t i = 0; i < words_of(kind); i++)
        digest->state[i] = load32_high(at + 4 * i);
}

void rowtide_hmac_begin(Digest *digest, DigestKind kind, const uint8_t *states) {
    resume(digest, kind, states, 0);
}

/* Write the HMAC as Base64, without a line's end; return its end. */
uint8_t *rowtide_hmac_end(Digest *digest, const uint8_t *states, uint8_t *out) {
    uint8_t inner[DIGEST_BYTES_MAX];
    DigestKind kind = digest->kind;
    size_t size = rowtide_digest_bytes(kind);
    rowtide_digest_end(digest, inner);
    resume(digest, kind, states, 1);
    rowtide_digest_add(digest, inner, size);
    rowtide_digest_end(digest, inner);
    out = rowtide_base64(out, inner, size);
    rowtide_wipe(inner, sizeof inner);
    return out;
}

/* The character of six bits, by arithmetic: a table's index could be told from the time. */
static uint8_t base64_character(unsigned six) {
    unsigned character = six + 'A';
    character += ((25 - six) >> 8 & 0xff) & 6;        /* a-z follow Z by six more. */
    character -= ((51 - six) >> 8 & 0xff) & 75;       /* 0-9 */
    character -= ((61 - six) >> 8 & 0xff) & 15;       /* + */
    character += ((62 - six) >> 8 & 0xff) & 3;        /* / */
    return (uint8_t)character;
}

/* Write bytes as Base64; return its end, 4 bytes for each 3 begun. */
uint8_t *rowtide_base64(uint8_t *out, const uint8_t *bytes, size_t size) {
    for (size_t at = 0; at < size; at += 3) {
        size_t more = size - at;
        unsigned bits = (unsigned)bytes[at] << 16;
        bits |= more > 1 ? (unsigned)bytes[at + 1] << 8 : 0;
        bits |= more > 2 ? (unsigned)bytes[at + 2] : 0;
        *out++ = base64_character(bits >> 18);
        *out++ = base64_character(bits >> 12 & 63);
        *out++ = more > 1 ? base64_character(bits >> 6 & 63) : '=';
        *out++ = more > 2 ? base64_character(bits & 63) : '=';
    }
    return out;
}

/* Write a text's MD5 as Base64, of MD5_TEXT_BYTES. */
uint8_t *rowtide_md5_text(uint8_t *out, const uint8_t *text, size_t size) {
    Digest digest;
    uint8_t sum[DIGEST_BYTES_MAX];
    rowtide_digest_begin(&digest, MD5);
    rowtide_digest_add(&digest, text, size);
    rowtide_digest_end(&digest, sum);
    return rowtide_base64(out, sum, rowtide_digest_bytes(MD5));
}

/* True if both texts are equal; the time depends on the lengths alone. */
int rowtide_equal_secretly(const uint8_t *a, size_t a_bytes, const uint8_t *b, size_t b_bytes) {
    volatile uint8_t differing = 0;
    if (a_bytes != b_bytes)
        return 0;
    for (size_t i = 0; i < a_bytes; i++)
        differing |= a[i] ^ b[i];
    return differing == 0;
}

PyObject *rowtide_content_md5(PyObject *module, PyObject *given) {
    (void)module;
    Reader text;
    uint8_t out[MD5_TEXT_BYTES];
    /* OpenSSL hashes long texts faster. */
    if (!reader_of(given, &text) || left(&text) > DIGEST_TEXT_BYTES_MAX)
        RETURN_UNUSUAL;
    rowtide_md5_text(out, text.at, left(&text));
    return PyBytes_FromStringAndSize((const char *)out, sizeof out);
}

PyObject *rowtide_hmac_states(PyObject *module, PyObject *const *args, Py_ssize_t given) {
    (void)module;
    Reader key;
    if (given != 2)
        return rowtide_wrong_arguments("hmac_states", 2);
    int wide = PyObject_IsTrue(args[1]);
    if (wide < 0)
        return NULL;
    if (!reader_of(args[0], &key) || left(&key) > DIGEST_TEXT_BYTES_MAX)
        RETURN_UNUSUAL;
    DigestKind kind = wide ? SHA256 : SHA1;
    size_t size = rowtide_digest_bytes(kind);
    uint8_t block[DIGEST_BLOCK_BYTES] = {0}, states[2 * DIGEST_BYTES_MAX];
    Digest digest;
    if (left(&key) > sizeof block) {
        rowtide_digest_begin(&digest, kind);
        rowtide_digest_add(&digest, key.at, left(&key));
        rowtide_digest_end(&digest, block);
    } else {
        copy(block, key.at, left(&key));
    }
    for (int outer = 0; outer < 2; outer++) {
        for (size_t i = 0; i < sizeof block; i++)
            block[i] ^= outer ? 0x36 ^ 0x5c : 0x36;
        rowtide_digest_begin(&digest, kind);
        rowtide_digest_add(&digest, block, sizeof block);
        for (size_t i = 0; i < size / 4; i++)
            store32_high(states + outer * size + 4 * i, digest.state[i]);
    }
    PyObject *made = PyBytes_FromStringAndSize((const char *)states, (Py_ssize_t)(2 * size));
    rowtide_wipe(block, sizeof block);
    rowtide_wipe(states, sizeof states);
    rowtide_wipe(&digest, sizeof digest);
    return made;
}

PyObject *rowtide_hmac_text(PyObject *module, PyObject *const *args, Py_ssize_t given) {
    (void)module;
    Reader states, text;
    DigestKind kind;
    Digest digest;
    uint8_t out[HMAC_TEXT_BYTES_MAX];
    if (given != 2)
        return rowtide_wrong_arguments("hmac_text", 2);
    if (!reader_of(args[0], &states) || !reader_of(args[1], &text)
        || !rowtide_states_kind(&states, &kind) || left(&text) > DIGEST_TEXT_BYTES_MAX)
        RETURN_UNUSUAL;
    rowtide_hmac_begin(&digest, kind, states.at);
    rowtide_digest_add(&digest, text.at, left(&text));
    uint8_t *end = rowtide_hmac_end(&digest, states.at, out);
    return PyBytes_FromStringAndSize((const char *)out, end - out);
}
