/* Digests, for the kernels that check what was sent and sign what is answered. */
#ifndef ROWTIDE_DIGEST_H
#define ROWTIDE_DIGEST_H

#include "kernels.h"

enum { DIGEST_BLOCK_BYTES = 64, DIGEST_BYTES_MAX = 32, DIGEST_TEXT_BYTES_MAX = 65536 };

/* Lengths as Base64. */
enum { MD5_TEXT_BYTES = 24, HMAC_TEXT_BYTES_MAX = 44 };

typedef enum { MD5, SHA1, SHA256 } DigestKind;

typedef struct {
    uint32_t state[8];
    uint8_t block[DIGEST_BLOCK_BYTES];
    size_t size; /* Bytes taken so far. */
    DigestKind kind;
} Digest;

size_t rowtide_digest_bytes(DigestKind kind);
void rowtide_digest_begin(Digest *digest, DigestKind kind);
void rowtide_digest_add(Digest *digest, const uint8_t *text, size_t size);
void rowtide_digest_end(Digest *digest, uint8_t *out);
int rowtide_states_kind(const Reader *states, DigestKind *kind);
void rowtide_hmac_begin(Digest *digest, DigestKind kind, const uint8_t *states);
uint8_t *rowtide_hmac_end(Digest *digest, const uint8_t *states, uint8_t *out);
uint8_t *rowtide_base64(uint8_t *out, const uint8_t *bytes, size_t size);
uint8_t *rowtide_md5_text(uint8_t *out, const uint8_t *text, size_t size);
int rowtide_equal_secretly(const uint8_t *a, size_t a_bytes, const uint8_t *b, size_t b_bytes);
void rowtide_wipe(void *bytes, size_t size);

#endif
