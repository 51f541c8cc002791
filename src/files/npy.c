// SPDX-License-Identifier: Apache-2.0
// The header of a .npy file is a Python dict as text. The little of Python's syntax that
// NumPy writes there is read here; anything else is refused.
#include <ulpscope/x/npy.h>

#include <assert.h>
#include <string.h>
#include <sys/mman.h>

#include "base/checked.h"
#include "files/map_file.h"

enum { MAGIC = 6, LONGEST_HEADER = 1 << 16, LONGEST_TEXT = 64 };

/* NumPy's code without the byte order, torch's name, bytes. */
static const struct {
    const char *code, *name;
    int64_t size;
} kinds[] = {
    {"f8", "float64", 8},   {"f4", "float32", 4},      {"f2", "float16", 2},
    {"i8", "int64", 8},     {"i4", "int32", 4},        {"i2", "int16", 2},
    {"i1", "int8", 1},      {"u8", "uint64", 8},       {"u4", "uint32", 4},
    {"u2", "uint16", 2},    {"u1", "uint8", 1},        {"b1", "bool", 1},
    {"c8", "complex64", 8}, {"c16", "complex128", 16},
};

typedef struct reader {
    const char *name, *at, *end;
    usc_npy_header *out;
    bool fortran;
    unsigned seen; /* a bit for each member */
    usc_error *err;
} reader;

static usc_status corrupt(const reader *r, const char *what)
{
    return usc_error_set(r->err, USC_E_CORRUPT, -1,
                         "%s: no array of NumPy: %s; was the file cut off?", r->name,
                         what);
}

static void past_space(reader *r)
{
    while (r->at < r->end && strchr(" \t\n\r", *r->at) != NULL && *r->at != '\0')
        r->at++;
}

static bool take(reader *r, char c)
{
    past_space(r);
    if (r->at == r->end || *r->at != c) return false;
    r->at++;
    return true;
}

/* A text in quotes without escapes, cut to LONGEST_TEXT. */
static bool take_text(reader *r, char *out)
{
    past_space(r);
    if (r->at == r->end || (*r->at != '\'' && *r->at != '"')) return false;
    const char quote = *r->at++;
    size_t n = 0;
    for (; r->at < r->end && *r->at != quote; r->at++) {
        if (*r->at == '\\' || *r->at == '\0' || n + 1 == LONGEST_TEXT) return false;
        out[n++] = *r->at;
    }
    out[n] = '\0';
    return take(r, quote);
}

static bool take_word(reader *r, const char *word)
{
    past_space(r);
    const size_t n = strlen(word);
    if ((size_t)(r->end - r->at) < n || memcmp(r->at, word, n) != 0) return false;
    r->at += n;
    return true;
}

static bool take_size(reader *r, int64_t *out)
{
    past_space(r);
    const char *start = r->at;
    *out = 0;
    for (; r->at < r->end && *r->at >= '0' && *r->at <= '9'; r->at++)
        if (!usc_mul_i64(*out, 10, out) || !usc_add_i64(*out, *r->at - '0', out))
            return false;
    return r->at > start;
}

static usc_status read_kind(reader *r)
{
    char code[LONGEST_TEXT];
    past_space(r);
    if (r->at < r->end && *r->at == '[')
        return usc_error_set(r->err, USC_E_UNSUPPORTED, -1,
                             "%s: an array of records; write one file per field",
                             r->name);
    if (!take_text(r, code)) return corrupt(r, "'descr' is no dtype");
    if (code[0] == '>')
        return usc_error_set(r->err, USC_E_UNSUPPORTED, -1,
                             "%s: dtype '%s' is big-endian; save it with "
                             "array.astype(array.dtype.newbyteorder('<'))",
                             r->name, code);
    if (strcmp(code + (code[0] == '|'), "O") == 0)
        return usc_error_set(r->err, USC_E_UNSUPPORTED, -1,
                             "%s: an array of Python objects, which would have to be "
                             "unpickled: that runs code from the file and is never done",
                             r->name);
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if (code[0] != '\0' && strchr("<|=", code[0]) != NULL &&
            strcmp(code + 1, kinds[i].code) == 0) {
            memcpy(r->out->dtype_name, kinds[i].name, strlen(kinds[i].name) + 1);
            r->out->item_size = kinds[i].size;
            r->out->tensor.dtype = usc_dtype_by_name(kinds[i].name);
            return USC_OK;
        }
    return usc_error_set(r->err, USC_E_UNSUPPORTED, -1,
                         "%s: dtype '%s' is not one of numbers that torch has", r->name,
                         code);
}

static usc_status read_shape(reader *r)
{
    usc_tensor *t = &r->out->tensor;
    if (!take(r, '(')) return corrupt(r, "'shape' is no tuple");
    while (!take(r, ')')) {
        int64_t size;
        if (!take_size(r, &size)) return corrupt(r, "'shape' has what is no size");
        if (t->ndim == USC_MAX_DIMS)
            return usc_error_set(r->err, USC_E_SHAPE, t->ndim, "%s: more than %d axes",
                                 r->name, USC_MAX_DIMS);
        t->sizes[t->ndim++] = size;
        if (take(r, ')')) return USC_OK;
        if (!take(r, ',')) return corrupt(r, "'shape' is no tuple");
    }
    return USC_OK;
}

static usc_status read_order(reader *r)
{
    r->fortran = take_word(r, "True");
    return r->fortran || take_word(r, "False")
               ? USC_OK
               : corrupt(r, "'fortran_order' is neither True nor False");
}

static usc_status read_member(reader *r)
{
    static const struct {
        const char *name;
        usc_status (*read)(reader *r);
    } members[] = {
        {"descr", read_kind}, {"fortran_order", read_order}, {"shape", read_shape}};
    char key[LONGEST_TEXT];
    if (!take_text(r, key) || !take(r, ':')) return corrupt(r, "its header is no dict");
    for (unsigned i = 0; i < 3; i++)
        if (strcmp(key, members[i].name) == 0 && (r->seen & 1u << i) == 0) {
            r->seen |= 1u << i;
            return members[i].read(r);
        }
    return corrupt(r, "its header has a member twice or one that is unknown");
}

static usc_status read_dict(reader *r)
{
    usc_status st = USC_OK;
    if (!take(r, '{')) return corrupt(r, "its header is no dict");
    while (st == USC_OK && !take(r, '}')) {
        st = read_member(r);
        if (st == USC_OK && !take(r, ',')) {
            if (take(r, '}')) break;
            return corrupt(r, "its header is no dict");
        }
    }
    if (st != USC_OK) return st;
    past_space(r);
    if (r->at != r->end) return corrupt(r, "its header goes on behind the dict");
    return r->seen == 7 ? USC_OK : corrupt(r, "descr, fortran_order or shape is missing");
}

/* Strides of the shape, and whether the file has all elements. */
static usc_status lay_out(reader *r, int64_t file_size)
{
    usc_npy_header *h = r->out;
    usc_tensor *t = &h->tensor;
    int64_t bytes = 0;
    h->n = 1;
    for (int i = 0; i < t->ndim;
         i++) { /* sizes of 0 must not hide one that is too large */
        const int axis = r->fortran ? i : t->ndim - 1 - i;
        t->strides[axis] = h->n;
        if (!usc_mul_i64(h->n, t->sizes[axis] > 0 ? t->sizes[axis] : 1, &h->n) ||
            !usc_mul_i64(h->n, h->item_size, &bytes))
            return usc_error_set(r->err, USC_E_RANGE, axis,
                                 "%s: its shape has more elements than 64 bits count",
                                 r->name);
    }
    for (int i = 0; i < t->ndim; i++)
        if (t->sizes[i] == 0) h->n = 0;
    bytes = h->n * h->item_size;
    if (bytes > file_size - h->first)
        return usc_error_set(
            r->err, USC_E_CORRUPT, h->first,
            "%s: %lld bytes of data for %lld elements of %s: the file is "
            "cut off",
            r->name, (long long)(file_size - h->first), (long long)h->n, h->dtype_name);
    return USC_OK;
}

usc_status usc_npy_read(const void *bytes, int64_t size, int64_t file_size,
                        const char *name, usc_npy_header *out, usc_error *err)
{
    assert(out && name && (bytes || size == 0));
    const unsigned char *b = bytes;
    usc_npy_header h = {0};
    reader r = {.name = name, .out = &h, .err = err};
    *out = (usc_npy_header){0};
    if (size < MAGIC + 4 || memcmp(b, "\x93NUMPY", MAGIC) != 0)
        return corrupt(&r, "it does not begin as one");
    const bool is_long = b[MAGIC] >= 2;
    const int64_t prefix = MAGIC + 2 + (is_long ? 4 : 2);
    if (b[MAGIC] < 1 || b[MAGIC] > 3 || size < prefix)
        return corrupt(&r, "a version of the format that is not known");
    int64_t length = b[8] | b[9] << 8;
    if (is_long) length |= (int64_t)b[10] << 16 | (int64_t)b[11] << 24;
    if (length > LONGEST_HEADER || length > size - prefix)
        return usc_error_set(err, USC_E_CORRUPT, 8,
                             "%s: its header has %lld bytes, of %lld that are there and "
                             "%d at most",
                             name, (long long)length, (long long)(size - prefix),
                             LONGEST_HEADER);
    r.at = (const char *)b + prefix;
    r.end = r.at + length;
    h.first = prefix + length;
    usc_status st = read_dict(&r);
    if (st == USC_OK) st = lay_out(&r, file_size);
    if (st == USC_OK) *out = h;
    return st;
}

/* NumPy pads its headers, others do not: then the data move down to where their dtype
 * wants them, in the private map alone. */
static usc_status place(usc_npy *npy, const char *path, usc_error *err)
{
    unsigned char *const map = npy->map;
    const int64_t first = npy->header.first;
    const int64_t at = first - first % npy->header.item_size;
    if (at != first && mprotect(map, (size_t)npy->size, PROT_READ | PROT_WRITE) != 0)
        return usc_error_set(err, USC_E_NOMEM, -1, "%s: no memory", path);
    if (at != first) memmove(map + at, map + first, (size_t)(npy->size - first));
    npy->header.tensor.data = map + at;
    return USC_OK;
}

usc_status usc_npy_open(const char *path, usc_npy *out, usc_error *err)
{
    assert(path && out);
    *out = (usc_npy){0};
    usc_status st = usc_map_file(path, &out->map, &out->size, err);
    if (st != USC_OK) return st;
    st = usc_npy_read(out->map, out->size, out->size, path, &out->header, err);
    if (st == USC_OK) st = place(out, path, err);
    if (st != USC_OK) usc_npy_close(out);
    return st;
}

void usc_npy_close(usc_npy *npy)
{
    if (npy->map != NULL) (void)munmap(npy->map, (size_t)npy->size);
    *npy = (usc_npy){0};
}
