// SPDX-License-Identifier: Apache-2.0
// Which kind a file is, folders, and the set that readers fill: tensor_set.h. A file is
// mapped, its tensors are copied out (those of safetensors stay where they lie).
#include "files/tensor_set.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <ulpscope/x/npy.h>

#include "base/checked.h"
#include "base/number.h"
#include "base/path.h"
#include "files/map_file.h"

enum { NAME = 1024, MARK = 7 };

/* ---- safetensors ---- */

/* Names that begin with six digits and a mark have an order: `ulpscope judge` writes
 * tensors of torch so. */
static bool is_ordered(const usc_safetensors *file)
{
    for (int64_t i = 0; i < usc_safetensors_count(file); i++) {
        const char *name = usc_safetensors_at(file, i)->name;
        if (strspn(name, "0123456789") != MARK - 1 || name[MARK - 1] != '\x1f')
            return false;
    }
    return usc_safetensors_count(file) > 0;
}

static usc_status take_safetensors(usc_tensor_set *set, const char *path,
                                   const char *prefix, usc_error *err)
{
    usc_safetensors **opened =
        realloc(set->opened, (size_t)(set->n_opened + 1) * sizeof *opened);
    if (opened == NULL) return usc_no_memory(path, err);
    set->opened = opened;
    usc_status st = usc_safetensors_open(path, NULL, &opened[set->n_opened], err);
    if (st != USC_OK) return st;
    const usc_safetensors *file = opened[set->n_opened++];
    const bool ordered = is_ordered(file);
    set->ordered |= ordered;
    for (int64_t i = 0; st == USC_OK && i < usc_safetensors_count(file); i++) {
        char name[NAME];
        usc_safetensor t = *usc_safetensors_at(file, i);
        (void)usc_format(name, sizeof name, "%s%s", ordered ? prefix : "",
                         t.name + (ordered ? MARK : 0));
        t.name = name;
        st = usc_tensor_set_put(set, path, &t, err);
    }
    return st;
}

/* ---- raw bytes ---- */

static usc_status take_raw(usc_tensor_set *set, const usc_tensor_set_options *o,
                           const char *path, const char *name, const uint8_t *bytes,
                           size_t n, usc_error *err)
{
    const usc_dtype_info *info = usc_dtype_info_of(o->dtype);
    usc_tensor like;
    int64_t count;
    usc_status st = usc_tensor_make(&like, bytes, o->dtype, o->ndim, o->sizes, err);
    if (st == USC_OK) st = usc_tensor_numel(&like, &count, err);
    if (st != USC_OK) return st;
    if ((uint64_t)count * info->size != n)
        return usc_error_set(
            err, USC_E_SHAPE, -1,
            "%s: %zu bytes, and the shape asks for %lld of %s, %lld bytes", path, n,
            (long long)count, info->name, (long long)((uint64_t)count * info->size));
    return usc_tensor_set_add(set, path, name, info->name, &like, (int64_t)info->size,
                              bytes, err);
}

/* ---- files ---- */

static bool ends(const char *name, const char *end)
{
    const size_t n = strlen(name), size = strlen(end);
    return n >= size && strcasecmp(name + n - size, end) == 0;
}

static bool is_raw_name(const char *path)
{
    return ends(path, ".bin") || ends(path, ".raw") || ends(path, ".dat");
}

/* The name of a file without its folder and its end. */
static void stem_of(const char *path, char out[NAME])
{
    const char *slash = strrchr(path, '/'), *name = slash != NULL ? slash + 1 : path;
    (void)usc_format(out, NAME, "%s", name);
    char *dot = strrchr(out, '.');
    if (dot != NULL && dot > out) *dot = '\0';
}

static usc_status other_file(const char *path, const uint8_t *bytes, size_t n,
                             usc_error *err)
{
    const char *words = usc_file_words(bytes, n);
    if (words == NULL && is_raw_name(path))
        return usc_error_set(
            err, USC_E_UNSUPPORTED, -1,
            "%s: raw bytes: say what they are with --dtype float16 --shape "
            "2,3",
            path);
    if (words == NULL && (ends(path, ".pb") || ends(path, ".onnx")))
        return usc_error_set(
            err, USC_E_UNSUPPORTED, -1,
            "%s: no tensor of ONNX: a model, which is to be run first, or "
            "a file that was cut off",
            path);
    return usc_error_set(err, USC_E_UNSUPPORTED, -1,
                         "%s: %s%s; tensors are read from safetensors, .npy, .npz, .pt, "
                         "polygraphy's JSON, .pb of ONNX, and raw bytes with --dtype and "
                         "--shape",
                         path,
                         words != NULL ? "this is " : "a file of no kind that is known",
                         words != NULL ? words : "");
}

static bool begins_json(const uint8_t *bytes, size_t n)
{
    size_t at = 0;
    while (at < n && isspace(bytes[at]))
        at++;
    return at < n && (bytes[at] == '{' || bytes[at] == '[');
}

static bool is_safetensors(const char *path, const uint8_t *bytes, size_t n)
{
    uint64_t header = 0;
    for (int i = 7; n > 8 && i >= 0; i--)
        header = header << 8 | bytes[i];
    return ends(path, ".safetensors") || (n > 8 && header <= n - 8 && bytes[8] == '{');
}

/* `prefix`: of names, where a folder has several files. */
static usc_status take_bytes(usc_tensor_set *set, const usc_tensor_set_options *o,
                             const char *path, const char *prefix, const uint8_t *bytes,
                             size_t n, usc_error *err)
{
    char own[NAME], stem[USC_TENSOR_SET_BELOW + NAME];
    stem_of(path, own);
    (void)usc_format(stem, sizeof stem, "%s%s", set->below, own);
    if (n > 6 && memcmp(bytes, "\x93NUMPY", 6) == 0) {
        set->unnamed = true;
        return usc_take_npy(set, path, stem, bytes, n, err);
    }
    if (is_safetensors(path, bytes, n)) return take_safetensors(set, path, prefix, err);
    if (n >= 4 && memcmp(bytes, "PK\3\4", 4) == 0) {
        set->ordered = true;
        return usc_take_npz(set, path, prefix, bytes, n, err);
    }
    if (o->dtype != USC_DTYPE_NONE &&
        (is_raw_name(path) || usc_file_words(bytes, n) == NULL)) {
        set->unnamed = true;
        return take_raw(set, o, path, stem, bytes, n, err);
    }
    if (begins_json(bytes, n)) {
        set->ordered = true;
        return usc_take_polygraphy(set, path, prefix, bytes, n, err);
    }
    if (usc_is_onnx_tensor(bytes, n)) {
        set->unnamed = true;
        return usc_take_onnx(set, path, stem, bytes, n, err);
    }
    return other_file(path, bytes, n, err);
}

static usc_status take_file(usc_tensor_set *set, const usc_tensor_set_options *o,
                            const char *path, const char *prefix, usc_error *err)
{
    void *map;
    int64_t size;
    usc_status st = usc_map_file(path, &map, &size, err);
    if (st != USC_OK) return st;
    st = take_bytes(set, o, path, prefix, map, (size_t)size, err);
    (void)munmap(map, (size_t)size);
    return st;
}

/* ---- folders ---- */

/* Texts with their numbers as such: "layer2" before "layer10". */
static int by_number(const char *a, const char *b)
{
    while (*a != '\0' && *b != '\0') {
        if (isdigit((unsigned char)*a) && isdigit((unsigned char)*b)) {
            while (*a == '0')
                a++;
            while (*b == '0')
                b++;
            const size_t n = strspn(a, "0123456789"), m = strspn(b, "0123456789");
            if (n != m) return n < m ? -1 : 1;
            const int order = strncmp(a, b, n);
            if (order != 0) return order;
            a += n;
            b += m;
        } else if (*a != *b) {
            break;
        } else {
            a++;
            b++;
        }
    }
    return (int)(unsigned char)*a - (int)(unsigned char)*b;
}

static int by_entry(const struct dirent **a, const struct dirent **b)
{
    return by_number((*a)->d_name, (*b)->d_name);
}

static int by_name(const void *a, const void *b)
{
    return by_number(((const usc_safetensor *)a)->name,
                     ((const usc_safetensor *)b)->name);
}

static int is_shown(const struct dirent *e)
{
    return e->d_name[0] != '.';
}

/* What a folder holds and is no tensor. */
static void skip(usc_tensor_set *set, const char *text)
{
    set->n_skipped++;
    (void)usc_format(set->skipped, sizeof set->skipped, "%s", text);
}

/* A file of a folder; one of another kind is skipped, and told. */
static usc_status take_one(usc_tensor_set *set, const usc_tensor_set_options *o,
                           const char *path, const char *prefix, usc_error *err)
{
    usc_error own = {0};
    const usc_status st = take_file(set, o, path, prefix, &own);
    if (st == USC_E_UNSUPPORTED) skip(set, own.text);
    if (st == USC_OK || st == USC_E_UNSUPPORTED) return USC_OK;
    if (err != NULL) *err = own;
    return st;
}

static bool is_folder(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

static usc_status take_folder(usc_tensor_set *set, const usc_tensor_set_options *o,
                              const char *folder, usc_error *err);

/* What lies in a folder below is called by it, unless it is all that there is. */
static usc_status take_below(usc_tensor_set *set, const usc_tensor_set_options *o,
                             const char *folder, const char *name, bool alone,
                             usc_error *err)
{
    enum { DEEPEST = 16 };
    char path[USC_PATH_SIZE];
    usc_status st = usc_path_join(path, folder, name, err);
    if (st != USC_OK) return st;
    if (set->depth == DEEPEST) {
        char text[USC_PATH_SIZE + 32];
        (void)usc_format(text, sizeof text, "%s: too deep a folder", path);
        skip(set, text);
        return USC_OK;
    }
    const size_t n = strlen(set->below);
    if (!alone) (void)usc_format(set->below + n, sizeof set->below - n, "%s/", name);
    set->depth++;
    st = take_folder(set, o, path, err);
    set->depth--;
    set->below[n] = '\0';
    return st;
}

static usc_status take_folder(usc_tensor_set *set, const usc_tensor_set_options *o,
                              const char *folder, usc_error *err)
{
    struct dirent **found = NULL;
    char path[USC_PATH_SIZE], stem[NAME], prefix[USC_TENSOR_SET_BELOW + NAME + 2];
    usc_status st = USC_OK;
    const int n = scandir(folder, &found, is_shown, by_entry);
    if (n < 0) return usc_error_set(err, USC_E_IO, -1, "%s: %s", folder, strerror(errno));
    if (n == 0 && set->depth == 0)
        st = usc_error_set(err, USC_E_NOT_FOUND, -1, "%s: the folder is empty", folder);
    for (int i = 0; i < n; i++) {
        const char *name = found[i]->d_name;
        if (st == USC_OK) st = usc_path_join(path, folder, name, err);
        stem_of(name, stem);
        (void)usc_format(prefix, sizeof prefix, "%s%s%s", set->below, n > 1 ? stem : "",
                         n > 1 ? "/" : "");
        if (st == USC_OK && is_folder(path))
            st = take_below(set, o, folder, name, n == 1, err);
        else if (st == USC_OK)
            st = take_one(set, o, path, prefix, err);
        free(found[i]);
    }
    free(found);
    return st;
}

/* Two tensors of one name could not be told apart. */
static usc_status no_name_twice(const usc_tensor_set *set, const char *path,
                                usc_error *err)
{
    usc_safetensor *sorted = malloc((size_t)set->n * sizeof *sorted);
    usc_status st = USC_OK;
    if (sorted == NULL) return usc_no_memory(path, err);
    memcpy(sorted, set->items, (size_t)set->n * sizeof *sorted);
    qsort(sorted, (size_t)set->n, sizeof *sorted, by_name);
    for (int64_t i = 1; st == USC_OK && i < set->n; i++)
        if (strcmp(sorted[i - 1].name, sorted[i].name) == 0)
            st = usc_error_set(err, USC_E_CORRUPT, -1,
                               "%s: the tensor '%s' stands in %s and %s", path,
                               sorted[i].name, sorted[i - 1].path, sorted[i].path);
    free(sorted);
    return st;
}

usc_status usc_tensor_set_open(const char *path, const usc_tensor_set_options *options,
                               usc_tensor_set *out, usc_error *err)
{
    static const usc_tensor_set_options usual;
    const usc_tensor_set_options *o = options != NULL ? options : &usual;
    *out = (usc_tensor_set){.arena.alloc = usc_libc_alloc};
    const bool folder = is_folder(path);
    usc_status st =
        folder ? take_folder(out, o, path, err) : take_file(out, o, path, "", err);
    if (st == USC_OK && out->n == 0)
        st = usc_error_set(err, USC_E_NOT_FOUND, -1, "%s: no tensors in it%s%s", path,
                           out->n_skipped > 0 ? ": " : "", out->skipped);
    if (st == USC_OK && !out->ordered && !folder)
        qsort(out->items, (size_t)out->n, sizeof *out->items, by_name);
    if (st == USC_OK) st = no_name_twice(out, path, err);
    return st;
}

void usc_tensor_set_close(usc_tensor_set *set)
{
    for (int i = 0; i < set->n_opened; i++)
        usc_safetensors_close(set->opened[i]);
    free(set->opened);
    free(set->items);
    usc_arena_free(&set->arena);
    *set = (usc_tensor_set){0};
}
