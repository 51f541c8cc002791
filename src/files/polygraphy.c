// SPDX-License-Identifier: Apache-2.0
// JSON of polygraphy: RunResults ({"lst": [[runner, [{"outputs": {name: array}}]]]}),
// saved inputs ([{name: array}]), or one array. An array is {"array": BASE64 of .npy}, in
// results within {"values": ...}.
#include <stdlib.h>
#include <string.h>

#include "base/number.h"
#include "files/tensor_set.h"
#include "json/json.h"

enum { NAME = 1024, MOST_LEVELS = 16 };

typedef struct reader {
    usc_tensor_set *set;
    const char *path;
    usc_error *err;
} reader;

static int digit_of(char c)
{
    if (c >= 'A' && c <= 'Z') return c - 'A';
    if (c >= 'a' && c <= 'z') return c - 'a' + 26;
    if (c >= '0' && c <= '9') return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

/* False: what is no base64. `out` has room for 3/4 of it. */
static bool decode(const char *text, uint8_t *out, size_t *n)
{
    uint32_t bits = 0;
    int n_bits = 0;
    *n = 0;
    for (; *text != '\0' && *text != '='; text++) {
        const int digit = digit_of(*text);
        if (digit < 0) return false;
        bits = bits << 6 | (uint32_t)digit;
        n_bits += 6;
        if (n_bits < 8) continue;
        n_bits -= 8;
        out[(*n)++] = (uint8_t)(bits >> n_bits);
        bits &= (1u << n_bits) - 1;
    }
    return text[strspn(text, "=")] == '\0' && bits == 0;
}

static usc_status take_array(reader *r, const char *name, const char *text)
{
    size_t n;
    uint8_t *bytes = malloc(strlen(text) / 4 * 3 + 3);
    if (bytes == NULL) return usc_no_memory(r->path, r->err);
    usc_status st = decode(text, bytes, &n)
                        ? usc_take_npy(r->set, r->path, name, bytes, n, r->err)
                        : usc_error_set(r->err, USC_E_CORRUPT, -1,
                                        "%s: '%s' is no base64", r->path, name);
    free(bytes);
    return st;
}

/* The text of an array, within "values" or not; NULL: it is none. */
static const char *array_of(const usc_json *value)
{
    const usc_json *inner = usc_json_get(value, "values");
    return usc_json_as_text(usc_json_get(inner != NULL ? inner : value, "array"));
}

/* Arrays in an object, by their keys behind `before`. */
static usc_status take_object(reader *r, const usc_json *object, const char *before)
{
    usc_status st = USC_OK;
    const char *key;
    const usc_json *value;
    for (void *at = NULL; st == USC_OK && usc_json_next(object, &at, &key, &value);) {
        char name[NAME];
        const char *text = usc_json_is_object(value) ? array_of(value) : NULL;
        (void)usc_format(name, sizeof name, "%s%s", before, key);
        if (text != NULL) st = take_array(r, name, text);
    }
    return st;
}

/* Iterations, or saved inputs: of several, each has its number before the names. */
static usc_status take_iterations(reader *r, const usc_json *list, const char *before)
{
    usc_status st = USC_OK;
    for (size_t i = 0; st == USC_OK && i < usc_json_size(list); i++) {
        char name[NAME];
        const usc_json *item = usc_json_item(list, i);
        const usc_json *outputs = usc_json_get(item, "outputs");
        if (usc_json_size(list) > 1)
            (void)usc_format(name, sizeof name, "%s%zu/", before, i);
        else
            (void)usc_format(name, sizeof name, "%s", before);
        if (usc_json_is_object(item))
            st = take_object(r, outputs != NULL ? outputs : item, name);
    }
    return st;
}

/* Runners: one, or the file holds a comparison of its own, and which is meant is asked.
 */
static usc_status take_runners(reader *r, const usc_json *list, const char *before)
{
    const usc_json *first = usc_json_item(list, 0);
    if (usc_json_size(list) != 1)
        return usc_error_set(r->err, USC_E_UNSUPPORTED, -1,
                             "%s: results of %zu runners ('%s', ...): save each in a "
                             "file of its own, e.g. "
                             "polygraphy run MODEL --onnxrt --save-outputs a.json",
                             r->path, usc_json_size(list),
                             usc_json_as_text(usc_json_item(first, 0)) != NULL
                                 ? usc_json_as_text(usc_json_item(first, 0))
                                 : "?");
    return take_iterations(r, usc_json_item(first, 1), before);
}

usc_status usc_take_polygraphy(usc_tensor_set *set, const char *path, const char *prefix,
                               const uint8_t *bytes, size_t n, usc_error *err)
{
    usc_json *root = NULL;
    reader r = {set, path, err};
    const int64_t before = set->n;
    usc_status st =
        usc_json_parse((const char *)bytes, n, path, "not JSON of arrays", &root, err);
    if (st != USC_OK) return st;
    const usc_json *runners = usc_json_get(root, "lst");
    const char *alone = usc_json_is_object(root) ? array_of(root) : NULL;
    if (alone != NULL)
        st = take_array(&r, prefix[0] != '\0' ? prefix : "array", alone);
    else if (usc_json_is_list(runners))
        st = take_runners(&r, runners, prefix);
    else if (usc_json_is_list(root))
        st = take_iterations(&r, root, prefix);
    else
        st = take_object(&r, root, prefix);
    usc_json_free(root);
    if (st == USC_OK && set->n == before)
        st = usc_error_set(err, USC_E_UNSUPPORTED, -1,
                           "%s: JSON without arrays as polygraphy writes them "
                           "({\"array\": BASE64})",
                           path);
    return st;
}
