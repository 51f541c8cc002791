// SPDX-License-Identifier: Apache-2.0
// TensorProto of ONNX, as test data and dumps have it (.pb): the wire format of protocol
// buffers, of which it takes varints, fixed numbers and bytes. The numbers stand in
// raw_data, or in a list of their own kind.
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "files/tensor_set.h"

enum { VARINT, FIXED64, BYTES, FIXED32 = 5 };
enum {
    DIMS = 1,
    TYPE,
    FLOATS = 4,
    INT32S,
    STRINGS,
    INT64S,
    NAME,
    RAW,
    DOUBLES,
    UINT64S,
    PLACE = 14
};
enum { NAME_SIZE = 512 };

/* By their number in ONNX. */
static const struct {
    const char *name; /* as torch calls it; NULL: not one of numbers that are read */
    int size, list;   /* bytes; the field that lists them */
} types[] = {
    {NULL, 0, 0},
    {"float32", 4, FLOATS},
    {"uint8", 1, INT32S},
    {"int8", 1, INT32S},
    {"uint16", 2, INT32S},
    {"int16", 2, INT32S},
    {"int32", 4, INT32S},
    {"int64", 8, INT64S},
    {NULL, 0, 0}, /* strings */
    {"bool", 1, INT32S},
    {"float16", 2, INT32S},
    {"float64", 8, DOUBLES},
    {"uint32", 4, UINT64S},
    {"uint64", 8, UINT64S},
    {NULL, 0, 0}, /* complex */
    {NULL, 0, 0},
    {"bfloat16", 2, INT32S},
    {"float8_e4m3fn", 1, INT32S},
    {"float8_e4m3fnuz", 1, INT32S},
    {"float8_e5m2", 1, INT32S},
    {"float8_e5m2fnuz", 1, INT32S},
};

typedef struct field {
    uint64_t number, value; /* value: of a varint or a fixed number */
    int kind;
    const uint8_t *bytes;
    size_t n;
} field;

static bool take_varint(const uint8_t **at, const uint8_t *end, uint64_t *out)
{
    *out = 0;
    for (int shift = 0; shift < 64; shift += 7) {
        if (*at == end) return false;
        const uint8_t byte = *(*at)++;
        *out |= (uint64_t)(byte & 127) << shift;
        if (byte < 128) return true;
    }
    return false;
}

static bool take_field(const uint8_t **at, const uint8_t *end, field *f)
{
    uint64_t key, n = 0;
    *f = (field){0};
    if (!take_varint(at, end, &key)) return false;
    f->number = key >> 3;
    f->kind = (int)(key & 7);
    if (f->kind == VARINT) return take_varint(at, end, &f->value);
    if (f->kind == BYTES && !take_varint(at, end, &n)) return false;
    if (f->kind == FIXED64 || f->kind == FIXED32) n = f->kind == FIXED64 ? 8 : 4;
    if ((f->kind != BYTES && n == 0) || n > (uint64_t)(end - *at)) return false;
    f->bytes = *at;
    f->n = (size_t)n;
    *at += n;
    return true;
}

/* Whether a field is one that a tensor may have. */
static bool fits(const field *f)
{
    const bool is_list = f->number == DIMS ||
                         (f->number >= FLOATS && f->number <= INT64S) ||
                         f->number == DOUBLES || f->number == UINT64S;
    if (f->number == TYPE || f->number == PLACE) return f->kind == VARINT;
    if (is_list) return f->number != STRINGS || f->kind == BYTES;
    return f->number >= 3 && f->number <= 16 && f->kind == BYTES;
}

bool usc_is_onnx_tensor(const uint8_t *bytes, size_t n)
{
    const uint8_t *at = bytes, *const end = bytes + n;
    bool typed = false;
    while (at < end) {
        field f;
        if (!take_field(&at, end, &f) || !fits(&f)) return false;
        if (f.number == TYPE) typed = f.value > 0 && f.value < 64;
    }
    return typed;
}

typedef struct proto {
    const char *path;
    usc_tensor tensor;
    uint64_t type, place;
    char name[NAME_SIZE];
    const uint8_t *raw;
    size_t n_raw;
    bool has_raw;
    int64_t n; /* elements */
    usc_error *err;
} proto;

static usc_status wrong(const proto *p, const char *what)
{
    return usc_error_set(p->err, USC_E_CORRUPT, -1, "%s: a tensor of ONNX, but %s",
                         p->path, what);
}

static usc_status take_dim(proto *p, uint64_t value)
{
    usc_tensor *t = &p->tensor;
    if (t->ndim == USC_MAX_DIMS)
        return usc_error_set(p->err, USC_E_SHAPE, t->ndim, "%s: more than %d axes",
                             p->path, USC_MAX_DIMS);
    if (value > INT64_MAX) return wrong(p, "its shape has a negative size");
    t->sizes[t->ndim++] = (int64_t)value;
    return USC_OK;
}

static usc_status take_dims(proto *p, const field *f)
{
    if (f->kind == VARINT) return take_dim(p, f->value);
    usc_status st = USC_OK;
    for (const uint8_t *at = f->bytes, *end = at + f->n; st == USC_OK && at < end;) {
        uint64_t value;
        if (!take_varint(&at, end, &value)) return wrong(p, "its shape is cut off");
        st = take_dim(p, value);
    }
    return st;
}

static usc_status take_head(proto *p, const uint8_t *bytes, size_t n)
{
    usc_status st = USC_OK;
    for (const uint8_t *at = bytes, *end = at + n; st == USC_OK && at < end;) {
        field f;
        if (!take_field(&at, end, &f)) return wrong(p, "it is cut off");
        if (f.number == DIMS) st = take_dims(p, &f);
        if (f.number == TYPE) p->type = f.value;
        if (f.number == PLACE) p->place = f.value;
        if (f.number == NAME && f.n < NAME_SIZE) {
            memcpy(p->name, f.bytes, f.n);
            p->name[f.n] = '\0';
        }
        if (f.number != RAW) continue;
        p->raw = f.bytes;
        p->n_raw = f.n;
        p->has_raw = true;
    }
    if (st != USC_OK) return st;
    if (p->type >= sizeof types / sizeof types[0] || types[p->type].name == NULL)
        return usc_error_set(
            p->err, USC_E_UNSUPPORTED, -1,
            "%s: a tensor of ONNX of type %llu: texts, complex and 4-bit "
            "numbers are not judged",
            p->path, (unsigned long long)p->type);
    if (p->place != 0)
        return usc_error_set(
            p->err, USC_E_UNSUPPORTED, -1,
            "%s: a tensor of ONNX whose numbers lie in another file; save "
            "it with them",
            p->path);
    p->n = 1;
    for (int i = 0; i < p->tensor.ndim; i++)
        if (!usc_mul_i64(p->n, p->tensor.sizes[i], &p->n))
            return wrong(p, "its shape has more elements than 64 bits count");
    return USC_OK;
}

/* The numbers of a list, packed or one by one, to `out`, which has room for all. */
static bool take_list(const proto *p, const uint8_t *bytes, size_t n, uint8_t *out)
{
    const int size = types[p->type].size, list = types[p->type].list;
    const int wire = list == FLOATS ? FIXED32 : list == DOUBLES ? FIXED64 : VARINT;
    const size_t width = wire == FIXED32 ? 4 : 8;
    int64_t taken = 0;
    for (const uint8_t *at = bytes, *end = at + n; at < end;) {
        field f;
        if (!take_field(&at, end, &f)) return false;
        if (f.number != (uint64_t)list) continue;
        if (f.kind == VARINT && wire == VARINT) {
            if (taken == p->n) return false;
            memcpy(out + taken++ * size, &f.value, (size_t)size);
            continue;
        }
        for (const uint8_t *in = f.bytes, *stop = in + f.n; in < stop; taken++) {
            uint64_t value = 0;
            if (taken == p->n) return false;
            if (wire == VARINT ? !take_varint(&in, stop, &value)
                               : (size_t)(stop - in) < width)
                return false;
            if (wire != VARINT) {
                memcpy(&value, in, width);
                in += width;
            }
            memcpy(out + taken * size, &value, (size_t)size);
        }
    }
    return taken == p->n;
}

usc_status usc_take_onnx(usc_tensor_set *set, const char *path, const char *stem,
                         const uint8_t *bytes, size_t n, usc_error *err)
{
    proto p = {.path = path, .err = err};
    int64_t size = 0;
    usc_status st = take_head(&p, bytes, n);
    if (st != USC_OK) return st;
    const int item = types[p.type].size;
    const char *name = p.name[0] != '\0' ? p.name : stem;
    if (!usc_mul_i64(p.n, item, &size)) return wrong(&p, "it is too large");
    if (p.has_raw && (uint64_t)size != p.n_raw)
        return wrong(&p, "it has more or fewer bytes than its shape asks for");
    if (p.has_raw)
        return usc_tensor_set_add(set, path, name, types[p.type].name, &p.tensor, item,
                                  p.raw, err);
    if ((uint64_t)p.n > n)
        return wrong(&p, "it has fewer numbers than its shape asks for");
    uint8_t *out = calloc((size_t)size + 1, 1);
    if (out == NULL) return usc_no_memory(path, err);
    st = take_list(&p, bytes, n, out)
             ? usc_tensor_set_add(set, path, name, types[p.type].name, &p.tensor, item,
                                  out, err)
             : wrong(&p, "it has more or fewer numbers than its shape asks for");
    free(out);
    return st;
}
