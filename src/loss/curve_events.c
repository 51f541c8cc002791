// SPDX-License-Identifier: Apache-2.0
// TensorBoard's event files: records with a length, a masked CRC of it, the bytes, and a
// masked CRC of them (TFRecord); each is an Event as a protocol buffer, of which a few
// fields are read: step (2), summary (5) > value (1) > tag (1), simple_value (2), and of
// a tensor (8) its dtype (1), bytes (4), floats (5) or doubles (6).
#include <string.h>

#include "base/crc32c.h"
#include "base/little.h"
#include "loss/curve.h"

enum { HEAD = 12, TAIL = 4 };
enum { VARINT = 0, FIXED64 = 1, BYTES = 2, FIXED32 = 5 };
enum { DT_FLOAT = 1, DT_DOUBLE = 2 };

static bool crc_fits(const char *bytes, size_t n, const char *masked)
{
    return usc_crc32c_masked(bytes, n) == (uint32_t)usc_little(masked, 4);
}

/* ---- protocol buffers ---- */

typedef struct field {
    uint64_t number, value; /* value: of VARINT, FIXED64, FIXED32 */
    int kind;
    const char *bytes;
    size_t n;
} field;

static bool take_varint(const char **at, const char *end, uint64_t *out)
{
    *out = 0;
    for (int shift = 0; *at < end && shift < 64; shift += 7) {
        const unsigned char byte = (unsigned char)*(*at)++;
        *out |= (uint64_t)(byte & 127) << shift;
        if (byte < 128) return true;
    }
    return false;
}

/* The next field of a message; false at its end and where it is no message. */
static bool take_field(const char **at, const char *end, field *f)
{
    uint64_t key;
    *f = (field){0};
    if (!take_varint(at, end, &key)) return false;
    f->number = key >> 3;
    f->kind = (int)(key & 7);
    if (f->kind == VARINT) return take_varint(at, end, &f->value);
    uint64_t n = f->kind == FIXED64 ? 8 : 4;
    if (f->kind == BYTES && !take_varint(at, end, &n)) return false;
    if (f->kind != BYTES && f->kind != FIXED64 && f->kind != FIXED32) return false;
    if (n > (uint64_t)(end - *at)) return false;
    f->bytes = *at;
    f->n = (size_t)n;
    if (f->kind != BYTES) f->value = usc_little(*at, (int)n);
    *at += n;
    return true;
}

static double as_float(uint64_t bits)
{
    const uint32_t low = (uint32_t)bits;
    float value;
    memcpy(&value, &low, sizeof value);
    return (double)value;
}

static double as_double(uint64_t bits)
{
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* A tensor of one number. */
static bool tensor_value(const char *at, size_t n, double *out)
{
    const char *end = at + n;
    uint64_t dtype = 0;
    bool found = false;
    for (field f; take_field(&at, end, &f);) {
        const bool wide = f.number == 6 || (f.number == 4 && dtype == DT_DOUBLE);
        const size_t size = wide ? 8 : 4;
        if (f.number == 1) dtype = f.value;
        if (f.number < 4 || f.number > 6 || (f.number == 4 && dtype > DT_DOUBLE))
            continue;
        if (f.kind == VARINT || f.n != size) continue;
        const uint64_t bits = usc_little(f.bytes, (int)size);
        *out = wide ? as_double(bits) : as_float(bits);
        found = true;
    }
    return found;
}

typedef struct scalar {
    const char *tag;
    size_t n;
    bool has_value;
    double value;
} scalar;

static scalar take_scalar(const char *at, size_t n)
{
    scalar s = {.tag = ""};
    const char *end = at + n;
    for (field f; take_field(&at, end, &f);) {
        if (f.number == 1 && f.kind == BYTES) {
            s.tag = f.bytes;
            s.n = f.n;
        } else if (f.number == 2 && f.kind == FIXED32) {
            s.value = as_float(f.value);
            s.has_value = true;
        } else if (f.number == 8 && f.kind == BYTES) {
            s.has_value = tensor_value(f.bytes, f.n, &s.value) || s.has_value;
        }
    }
    return s;
}

static void take_event(usc_curve_maker *m, const char *at, size_t n, bool offer)
{
    const char *const start = at, *const end = at + n;
    int64_t step = 0; /* what a protocol buffer leaves out is 0 */
    for (field f; take_field(&at, end, &f);)
        if (f.number == 2 && f.kind == VARINT) step = (int64_t)f.value;
    at = start;
    for (field f; take_field(&at, end, &f);) {
        if (f.number != 5 || f.kind != BYTES) continue;
        const char *value_at = f.bytes, *value_end = f.bytes + f.n;
        for (field v; take_field(&value_at, value_end, &v);) {
            if (v.number != 1 || v.kind != BYTES) continue;
            const scalar s = take_scalar(v.bytes, v.n);
            if (!s.has_value) continue;
            if (offer)
                usc_curve_offer(m, s.tag, s.n, s.value);
            else if (usc_curve_is_key(m, s.tag, s.n))
                usc_curve_add(m, step >= 0 ? step : USC_NO_STEP, s.value);
        }
    }
}

/* ---- records ---- */

bool usc_curve_is_events(const char *data, size_t size)
{
    return size >= HEAD && crc_fits(data, 8, data + 8);
}

/* Goes over the records; the notes are those of the pass that offers. */
static void each_record(usc_curve_maker *m, const char *data, size_t size, bool offer)
{
    long long n = 0, n_damaged = 0;
    const char *at = data, *const end = data + size;
    const char *why = NULL;
    while (at < end && why == NULL) {
        const size_t left = (size_t)(end - at);
        if (left < HEAD) {
            why = "it was cut off, or is still being written";
        } else if (!crc_fits(at, 8, at + 8)) {
            why = "what follows is damaged";
        } else {
            const uint64_t length = usc_little(at, 8);
            if (length > left - HEAD || left - HEAD - length < TAIL) {
                why = "it was cut off, or is still being written";
                continue;
            }
            const char *bytes = at + HEAD;
            const bool sound = crc_fits(bytes, (size_t)length, bytes + length);
            if (sound) take_event(m, bytes, (size_t)length, offer);
            n_damaged += !sound;
            n++;
            at = bytes + length + TAIL;
        }
    }
    if (!offer) return;
    if (why != NULL)
        usc_curve_note(m, "the event file ends behind %lld records: %s", n, why);
    if (n_damaged > 0)
        usc_curve_note(m, "%lld records are damaged (CRC) and left out", n_damaged);
}

void usc_curve_events(usc_curve_maker *m, const char *data, size_t size)
{
    m->form = "event file";
    usc_curve_axis(m, "step", 4);
    each_record(m, data, size, true);
    usc_curve_choose(m);
    each_record(m, data, size, false);
}
