// SPDX-License-Identifier: Apache-2.0
// Bits come from the lowest of each byte on; a code comes from its highest bit on. Codes
// of one length are consecutive numbers, so that a code is found by counting, length by
// length.
#include "files/inflate.h"

#include <stdlib.h>
#include <string.h>

#include "base/little.h"

enum { LONGEST_CODE = 15, LITERALS = 288, DISTANCES = 30, END = 256 };

typedef struct stream {
    const uint8_t *at, *end;
    uint32_t bits;
    int n_bits;
    bool bad; /* it ended, or has what is no code */
    uint8_t *out;
    size_t n, size, most; /* most: what the room may grow to; 0: not at all */
} stream;

typedef struct codes {
    uint16_t count[LONGEST_CODE + 1]; /* of each length */
    uint16_t symbol[LITERALS];        /* by length, then by number */
} codes;

static unsigned take_bits(stream *s, int n)
{
    while (s->n_bits < n) {
        if (s->at == s->end) {
            s->bad = true;
            return 0;
        }
        s->bits |= (uint32_t)*s->at++ << s->n_bits;
        s->n_bits += 8;
    }
    const unsigned value = s->bits & ((1u << n) - 1);
    s->bits >>= n;
    s->n_bits -= n;
    return value;
}

/* False: more codes than there are numbers of that length. */
static bool make_codes(codes *c, const uint8_t *length, int n)
{
    uint16_t first[LONGEST_CODE + 2] = {0};
    int left = 1;
    memset(c->count, 0, sizeof c->count);
    for (int i = 0; i < n; i++)
        c->count[length[i]]++;
    c->count[0] = 0;
    for (int l = 1; l <= LONGEST_CODE; l++) {
        left = 2 * left - c->count[l];
        if (left < 0) return false;
        first[l + 1] = (uint16_t)(first[l] + c->count[l]);
    }
    for (int i = 0; i < n; i++)
        if (length[i] != 0) c->symbol[first[length[i]]++] = (uint16_t)i;
    return true;
}

static unsigned take_symbol(stream *s, const codes *c)
{
    unsigned code = 0, first = 0, index = 0;
    for (int l = 1; l <= LONGEST_CODE && !s->bad; l++) {
        code = code << 1 | take_bits(s, 1);
        const unsigned count = c->count[l];
        if (code - first < count) return c->symbol[index + code - first];
        index += count;
        first = (first + count) << 1;
    }
    s->bad = true;
    return END;
}

/* Whether there is room for n more bytes, made where it may be. */
static bool has_room(stream *s, size_t n)
{
    if (n <= s->size - s->n) return true;
    if (s->n >= s->most || n > s->most - s->n) return false;
    size_t size = s->size < s->most / 2 ? 2 * s->size : s->most;
    if (size < s->n + n) size = s->n + n;
    uint8_t *out = realloc(s->out, size);
    if (out == NULL) return false;
    s->out = out;
    s->size = size;
    return true;
}

static void copy_back(stream *s, size_t distance, size_t n)
{
    if (distance > s->n || !has_room(s, n)) {
        s->bad = true;
        return;
    }
    for (size_t i = 0; i < n; i++, s->n++) /* they may overlap: byte by byte */
        s->out[s->n] = s->out[s->n - distance];
}

static void take_block(stream *s, const codes *literals, const codes *distances)
{
    static const uint16_t length_base[] = {3,  4,  5,  6,   7,   8,   9,   10,  11, 13,
                                           15, 17, 19, 23,  27,  31,  35,  43,  51, 59,
                                           67, 83, 99, 115, 131, 163, 195, 227, 258};
    static const uint8_t length_bits[] = {0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2,
                                          2, 3, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5, 0};
    while (!s->bad) {
        const unsigned symbol = take_symbol(s, literals);
        if (s->bad || symbol == END) return;
        if (symbol < END) {
            s->bad = !has_room(s, 1);
            if (!s->bad) s->out[s->n++] = (uint8_t)symbol;
            continue;
        }
        const unsigned l = symbol - END - 1;
        if (l >= sizeof length_bits) {
            s->bad = true;
            return;
        }
        const size_t n = length_base[l] + (size_t)take_bits(s, length_bits[l]);
        const unsigned d = take_symbol(s, distances);
        if (s->bad || d >= DISTANCES) {
            s->bad = true;
            return;
        }
        const int more = d < 2 ? 0 : (int)d / 2 - 1;
        const size_t base = d < 2 ? d + 1 : ((size_t)(2 + d % 2) << more) + 1;
        copy_back(s, base + take_bits(s, more), n);
    }
}

static void take_stored(stream *s)
{
    s->bits = 0; /* what is left of the byte; whole bytes were not taken ahead */
    s->n_bits = 0;
    if (s->end - s->at < 4) {
        s->bad = true;
        return;
    }
    const size_t n = (size_t)s->at[0] | (size_t)s->at[1] << 8;
    const size_t check = (size_t)s->at[2] | (size_t)s->at[3] << 8;
    s->at += 4;
    if ((n ^ check) != 0xffff || n > (size_t)(s->end - s->at) || !has_room(s, n)) {
        s->bad = true;
        return;
    }
    if (n > 0) memcpy(s->out + s->n, s->at, n);
    s->at += n;
    s->n += n;
}

static void take_fixed(stream *s)
{
    uint8_t length[LITERALS + DISTANCES];
    codes literals, distances;
    for (int i = 0; i < LITERALS; i++)
        length[i] = i < 144 ? 8 : i < 256 ? 9 : i < 280 ? 7 : 8;
    memset(length + LITERALS, 5, DISTANCES);
    (void)make_codes(&literals, length, LITERALS);
    (void)make_codes(&distances, length + LITERALS, DISTANCES);
    take_block(s, &literals, &distances);
}

/* Lengths of the codes, which are codes themselves, with runs. */
static bool take_lengths(stream *s, const codes *c, uint8_t *length, int n)
{
    for (int i = 0; i < n;) {
        const unsigned symbol = take_symbol(s, c);
        if (s->bad) return false;
        if (symbol < 16) {
            length[i++] = (uint8_t)symbol;
            continue;
        }
        if (symbol == 16 && i == 0) return false;
        const uint8_t value = symbol == 16 ? length[i - 1] : 0;
        int run = symbol == 16   ? 3 + (int)take_bits(s, 2)
                  : symbol == 17 ? 3 + (int)take_bits(s, 3)
                                 : 11 + (int)take_bits(s, 7);
        if (s->bad || run > n - i) return false;
        for (; run > 0; run--)
            length[i++] = value;
    }
    return true;
}

static void take_own(stream *s)
{
    static const uint8_t order[] = {16, 17, 18, 0, 8,  7, 9,  6, 10, 5,
                                    11, 4,  12, 3, 13, 2, 14, 1, 15};
    uint8_t length[LITERALS + 32] = {0};
    codes c, distances;
    const int n_literals = 257 + (int)take_bits(s, 5),
              n_distances = 1 + (int)take_bits(s, 5), n = 4 + (int)take_bits(s, 4);
    for (int i = 0; i < n; i++)
        length[order[i]] = (uint8_t)take_bits(s, 3);
    if (s->bad || n_literals > LITERALS || !make_codes(&c, length, 19)) {
        s->bad = true;
        return;
    }
    memset(length, 0, sizeof length);
    if (!take_lengths(s, &c, length, n_literals + n_distances) ||
        !make_codes(&distances, length + n_literals, n_distances) ||
        !make_codes(&c, length, n_literals)) {
        s->bad = true;
        return;
    }
    take_block(s, &c, &distances);
}

/* All blocks up to the last one. */
static void take_blocks(stream *s)
{
    for (bool last = false; !last && !s->bad;) {
        last = take_bits(s, 1) == 1;
        const unsigned kind = take_bits(s, 2);
        s->bad |= kind == 3;
        if (s->bad) return;
        if (kind == 0)
            take_stored(s);
        else if (kind == 1)
            take_fixed(s);
        else
            take_own(s);
    }
}

bool usc_inflate(const uint8_t *bytes, size_t n, uint8_t *out, size_t size)
{
    stream s = {.at = bytes, .end = bytes + n, .out = out, .size = size};
    take_blocks(&s);
    return !s.bad && s.n == size;
}

/* ---- gzip ---- */

/* Past a text that a zero ends. */
static void skip_text(stream *s)
{
    const uint8_t *zero = memchr(s->at, 0, (size_t)(s->end - s->at));
    s->bad |= zero == NULL;
    s->at = zero != NULL ? zero + 1 : s->end;
}

static void skip(stream *s, size_t n)
{
    const size_t left = (size_t)(s->end - s->at);
    s->bad |= n > left;
    s->at += n > left ? left : n;
}

static void skip_header(stream *s)
{
    enum { HEADER = 10, CRC = 2, EXTRA = 4, NAME = 8, COMMENT = 16 };
    const uint8_t *head = s->at;
    s->bad |=
        s->end - s->at < HEADER || head[0] != 0x1f || head[1] != 0x8b || head[2] != 8;
    if (s->bad) return;
    const unsigned flags = head[3];
    skip(s, HEADER);
    if (flags & EXTRA && s->end - s->at >= 2) skip(s, 2 + (size_t)usc_little(s->at, 2));
    if (flags & NAME) skip_text(s);
    if (flags & COMMENT) skip_text(s);
    if (flags & CRC) skip(s, 2);
}

static void take_member(stream *s)
{
    const size_t before = s->n;
    skip_header(s);
    s->bits = 0;
    s->n_bits = 0;
    if (!s->bad) take_blocks(s);
    s->bad |= s->end - s->at < 8;
    if (s->bad) return;
    const size_t n = s->n - before;
    s->bad = usc_little(s->at + 4, 4) != (uint32_t)n ||
             usc_little(s->at, 4) != usc_crc32(n > 0 ? s->out + before : s->at, n);
    skip(s, 8);
}

bool usc_gunzip(const uint8_t *bytes, size_t n, size_t most, uint8_t **out, size_t *size)
{
    stream s = {.at = bytes, .end = bytes + n, .most = most};
    do
        take_member(&s);
    while (!s.bad && s.end - s.at >= 2 && s.at[0] == 0x1f && s.at[1] == 0x8b);
    if (s.bad) free(s.out);
    *out = s.bad ? NULL : s.out;
    *size = s.bad ? 0 : s.n;
    return !s.bad;
}

uint32_t usc_crc32(const uint8_t *bytes, size_t n)
{
    uint32_t table[256], crc = UINT32_MAX;
    for (uint32_t i = 0; i < 256; i++) {
        table[i] = i;
        for (int bit = 0; bit < 8; bit++)
            table[i] = table[i] >> 1 ^ (table[i] & 1 ? UINT32_C(0xedb88320) : 0);
    }
    for (size_t i = 0; i < n; i++)
        crc = crc >> 8 ^ table[(crc ^ bytes[i]) & 255];
    return ~crc;
}
