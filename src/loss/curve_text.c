// SPDX-License-Identifier: Apache-2.0
// The text of a file: unpacked where gzip packed it, as UTF-8 where a shell of Windows
// wrote UTF-16, without the mark that Excel puts first; and numbers as C writes them.
#include "loss/curve_text.h"

#include <ctype.h>
#include <string.h>

#include "base/arena.h"
#include "base/number.h"
#include "base/utf8.h"
#include "files/inflate.h"
#include "files/tensor_set.h"

static const size_t most = (size_t)2 << 30;

/* ---- bytes ---- */

static bool begins(const uint8_t *bytes, size_t n, const char *with, size_t size)
{
    return n >= size && memcmp(bytes, with, size) == 0;
}

static usc_status unpack(const char *name, usc_curve_bytes *b, usc_error *err)
{
    if (!usc_gunzip((const uint8_t *)b->data, b->size, most, &b->own, &b->size))
        return usc_error_set(err, USC_E_CORRUPT, -1,
                             "%s is packed by gzip and damaged, cut off or larger than "
                             "2 GiB; see what gunzip says of it",
                             name);
    b->data = (const char *)b->own;
    return USC_OK;
}

/* UTF-16 of either order as UTF-8; half a pair stands as U+FFFD. */
static usc_status narrow(const char *name, usc_curve_bytes *b, bool big, usc_error *err)
{
    const uint8_t *at = (const uint8_t *)b->data;
    const size_t n = b->size / 2;
    char *out = malloc(3 * n + 1);
    size_t size = 0;
    if (out == NULL) return usc_no_memory(name, err);
    for (size_t i = 0; i < n; i++) {
        uint32_t c = (uint32_t)at[2 * i + !big] << 8 | at[2 * i + big];
        if (c >= 0xd800 && c < 0xe000) {
            const uint32_t low =
                i + 1 < n ? (uint32_t)at[2 * i + 2 + !big] << 8 | at[2 * i + 2 + big] : 0;
            const bool pair = c < 0xdc00 && low >= 0xdc00 && low < 0xe000;
            c = pair ? 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00) : 0xfffd;
            i += pair;
        }
        size += usc_utf8_put(c, out + size);
    }
    free(b->own);
    b->own = (uint8_t *)out;
    b->data = out;
    b->size = size;
    return USC_OK;
}

usc_status usc_curve_text_of(const char *name, const void *data, size_t size,
                             usc_curve_bytes *out, usc_error *err)
{
    usc_status st = USC_OK;
    *out = (usc_curve_bytes){.data = data, .size = size};
    if (begins(data, size, "\x1f\x8b", 2)) st = unpack(name, out, err);
    const uint8_t *at = (const uint8_t *)out->data;
    if (st != USC_OK) return st;
    if (begins(at, out->size, "\xff\xfe", 2) || begins(at, out->size, "\xfe\xff", 2)) {
        st = narrow(name, out, at[0] == 0xfe, err);
        at = (const uint8_t *)out->data;
    }
    if (st == USC_OK && begins(at, out->size, "\xef\xbb\xbf", 3)) {
        out->data += 3;
        out->size -= 3;
    }
    return st;
}

bool usc_curve_is_binary(const char *data, size_t size)
{
    const char *what = usc_file_words((const uint8_t *)data, size);
    return memchr(data, '\0', size < 4096 ? size : 4096) != NULL ||
           (what != NULL && strcmp(what, "a text") != 0);
}

usc_status usc_curve_no_text(const char *name, const char *data, size_t size,
                             usc_error *err)
{
    static const char give[] = "give CSV, JSON lines, an event file or a log";
    const char *what = usc_file_words((const uint8_t *)data, size), *colon;
    if (begins((const uint8_t *)data, size, "PK\3\4", 4)) what = "a zip archive";
    if (what == NULL || strcmp(what, "a text") == 0)
        return usc_error_set(err, USC_E_CORRUPT, -1,
                             "%s is binary and no event file of TensorBoard; %s", name,
                             give);
    if (strncmp(what, "packed", 6) == 0 || begins((const uint8_t *)data, size, ":W&B", 4))
        return usc_error_set(err, USC_E_CORRUPT, -1, "%s is %s", name, what);
    colon = strchr(what, ':');
    return usc_error_set(err, USC_E_CORRUPT, -1, "%s is %.*s, no curve; %s", name,
                         colon != NULL ? (int)(colon - what) : (int)strlen(what), what,
                         give);
}

/* ---- numbers ---- */

/* Groups of digits behind commas, from at[0] == ',' on: how many, whether each has three,
 * and where they end. */
static int groups(const char *at, const char *end, bool *threes, const char **past)
{
    int n = 0;
    *threes = true;
    while (at + 1 < end && *at == ',' && isdigit((unsigned char)at[1])) {
        const char *first = ++at;
        while (at < end && isdigit((unsigned char)*at))
            at++;
        *threes &= at - first == 3;
        n++;
    }
    *past = at;
    return n;
}

bool usc_curve_plain(const char *text, size_t n, char *out, size_t size)
{
    const char *const end = text + (n < size - 1 ? n : size - 1), *first = text, *past;
    size_t kept = 0;
    bool threes;
    while (first < end && strchr("+-", *first) != NULL)
        first++;
    const char *comma = first;
    while (comma < end && isdigit((unsigned char)*comma))
        comma++;
    const int n_groups = comma > first ? groups(comma, end, &threes, &past) : 0;
    const bool point = n_groups > 0 && past < end && *past == '.' && past + 1 < end &&
                       isdigit((unsigned char)past[1]);
    const bool thousands = n_groups > 0 && threes && *first != '0' &&
                           comma - first <= 3 && (point || n_groups > 1);
    const bool decimal = n_groups == 1 && !thousands && !point;
    for (const char *at = text; at < end; at++) {
        const bool of_number = at >= comma && n_groups > 0 && at < past && *at == ',';
        if (of_number && thousands) continue;
        out[kept++] = of_number && decimal ? '.' : *at;
    }
    out[kept] = '\0';
    return decimal;
}

size_t usc_curve_without_thousands(const char *text, size_t n, char *out, size_t size)
{
    const char *const end = text + (n < size ? n : size), *past = end;
    const char *comma = memchr(text, ',', (size_t)(end - text));
    bool threes = false;
    size_t kept = 0;
    if (comma != NULL) (void)groups(comma, end, &threes, &past);
    for (const char *at = text; at < end; at++)
        if (!(threes && at < past && *at == ',')) out[kept++] = *at;
    return kept;
}
