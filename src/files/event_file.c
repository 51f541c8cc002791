// SPDX-License-Identifier: Apache-2.0
// A message within a message is preceded by its length, which is counted first: each part
// is put once without room and once into it.
#include <ulpscope/x/event_file.h>

#include <assert.h>
#include <string.h>

#include "base/crc32c.h"

enum { HEAD = 12, TAIL = 4 };
enum { VARINT = 0, FIXED64 = 1, BYTES = 2, FIXED32 = 5 };

typedef struct writer {
    unsigned char *out; /* NULL: counts alone */
    size_t n, size;
} writer;

static void put(writer *w, const void *bytes, size_t n)
{
    if (w->out != NULL && w->n + n <= w->size) memcpy(w->out + w->n, bytes, n);
    w->n += n;
}

static void put_little(writer *w, uint64_t value, int n)
{
    for (int i = 0; i < n; i++, value >>= 8) {
        const unsigned char byte = (unsigned char)(value & 0xff);
        put(w, &byte, 1);
    }
}

static void put_varint(writer *w, uint64_t value)
{
    for (; value >= 0x80; value >>= 7)
        put_little(w, (value & 0x7f) | 0x80, 1);
    put_little(w, value, 1);
}

static void put_tag(writer *w, unsigned field, unsigned kind)
{
    put_varint(w, field << 3 | kind);
}

static void put_bytes(writer *w, unsigned field, const char *bytes, size_t n)
{
    put_tag(w, field, BYTES);
    put_varint(w, n);
    put(w, bytes, n);
}

static void put_value(writer *w, const usc_scalar *scalar)
{
    const float value = (float)scalar->value;
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    put_bytes(w, 1, scalar->name, strlen(scalar->name));
    put_tag(w, 2, FIXED32);
    put_little(w, bits, 4);
}

static void put_summary(writer *w, const usc_scalar *scalars, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        writer count = {0};
        put_value(&count, &scalars[i]);
        put_tag(w, 1, BYTES);
        put_varint(w, count.n);
        put_value(w, &scalars[i]);
    }
}

static void put_event(writer *w, double wall, int64_t step, const usc_scalar *scalars,
                      size_t n)
{
    static const char version[] = "brain.Event:2";
    uint64_t bits;
    memcpy(&bits, &wall, sizeof bits);
    put_tag(w, 1, FIXED64);
    put_little(w, bits, 8);
    if (n == 0) {
        put_bytes(w, 3, version, sizeof version - 1);
        return;
    }
    writer count = {0};
    put_tag(w, 2, VARINT);
    put_varint(w, (uint64_t)step);
    put_summary(&count, scalars, n);
    put_tag(w, 5, BYTES);
    put_varint(w, count.n);
    put_summary(w, scalars, n);
}

size_t usc_event_record(double wall, int64_t step, const usc_scalar *scalars, size_t n,
                        void *out, size_t size)
{
    assert((scalars != NULL || n == 0) && (out != NULL || size == 0));
    writer count = {0};
    put_event(&count, wall, step, scalars, n);
    const size_t whole = HEAD + count.n + TAIL;
    if (size < whole) return whole;
    unsigned char *at = out;
    writer head = {.out = at, .size = HEAD};
    put_little(&head, count.n, 8);
    put_little(&head, usc_crc32c_masked(at, 8), 4);
    writer body = {.out = at + HEAD, .size = count.n};
    put_event(&body, wall, step, scalars, n);
    writer tail = {.out = at + HEAD + count.n, .size = TAIL};
    put_little(&tail, usc_crc32c_masked(at + HEAD, count.n), 4);
    return whole;
}
