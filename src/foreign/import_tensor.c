// SPDX-License-Identifier: Apache-2.0
// Tensors of a dump: their files, checked against what the dump says of them, or its
// statistics alone.
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <ulpscope/x/npy.h>

#include "base/checked.h"
#include "foreign/importing.h"

/* What is known of one tensor before its rows are put. */
typedef struct found {
    const char *dtype_name;
    usc_tensor view; /* dtype, shape, strides; data where there are any */
    bool has_shape, requires_grad;
    int64_t offset, storage_bytes;
    const void *bytes; /* of the storage; NULL: not kept */
    const char *form;
    usc_stats stats;
    bool has_stats;
} found;

/* ---- what the dump says ---- */

static usc_status read_shape(const usc_importing *im, const usc_json *value,
                             const char *path, found *f, usc_error *err)
{
    const usc_json *shape = usc_json_get(value, "shape");
    int64_t sizes[USC_MAX_DIMS];
    if (shape == NULL) return USC_OK;
    const size_t n = usc_json_size(shape);
    if (!usc_json_is_list(shape) || n > USC_MAX_DIMS)
        return usc_importing_wrong(im, USC_E_SHAPE, path, err,
                                   "'shape' is no list of at most %d sizes",
                                   USC_MAX_DIMS);
    for (size_t i = 0; i < n; i++)
        if (!usc_json_as_integer(usc_json_item(shape, i), &sizes[i]) || sizes[i] < 0)
            return usc_importing_wrong(im, USC_E_SHAPE, path, err,
                                       "'shape' has no size at %zu", i);
    usc_error why;
    const usc_status st =
        usc_tensor_make(&f->view, NULL, f->view.dtype, (int)n, sizes, &why);
    if (st != USC_OK) return usc_importing_wrong(im, st, path, err, "%s", why.text);
    f->has_shape = true;
    return USC_OK;
}

static double number_of(const usc_json *value, const char *key)
{
    const usc_json *held = usc_json_get(value, key);
    if (usc_json_is_flag(held)) return usc_json_is_true(held) ? 1.0 : 0.0;
    return usc_json_as_number(held);
}

/* Of the finite elements a dump does not tell the range where one is NaN or Inf: it is as
 * far as the other end, and -1 to 1 where neither is told. */
static void find_range(double min, double max, usc_stats *s)
{
    const double far = isfinite(max) ? fabs(max) : isfinite(min) ? fabs(min) : 1.0;
    s->max = isfinite(max) ? max : far;
    s->min = isfinite(min) ? min : fmin(-far, s->max);
}

/* Maximum and minimum tell that there is a NaN or an Inf, not how many: one is said. */
static void read_stats(const usc_json *value, found *f)
{
    const usc_json *high = usc_json_get(value, "Max"), *low = usc_json_get(value, "Min");
    const double max = number_of(value, "Max"), min = number_of(value, "Min");
    const double mean = number_of(value, "Mean"), norm = number_of(value, "Norm");
    const usc_kind kind = usc_dtype_info_of(f->view.dtype)->kind;
    usc_stats *s = &f->stats;
    *s = (usc_stats){
        .min = (double)NAN, .max = (double)NAN, .mean = (double)NAN, .fill = (double)NAN};
    if (high == NULL || low == NULL || kind == USC_KIND_NONE || !f->has_shape ||
        usc_tensor_numel(&f->view, &s->n, NULL) != USC_OK)
        return;
    f->has_stats = true;
    if (kind != USC_KIND_FLOAT) {
        if (!usc_json_as_integer(low, &s->int_min)) s->int_min = (int64_t)min;
        if (!usc_json_as_integer(high, &s->int_max)) s->int_max = (int64_t)max;
        s->int_above_min = s->int_min;
        s->int_below_max = s->int_max;
    }
    if (!(min < 0 || max > 0 || isnan(min))) s->n_zero = s->n;
    if (kind != USC_KIND_FLOAT) return;
    s->n_nan = isnan(max) || isnan(min);
    s->n_pos_inf = isinf(max) && max > 0;
    s->n_neg_inf = isinf(min) && min < 0;
    if (s->n > s->n_nan + s->n_pos_inf + s->n_neg_inf) find_range(min, max, s);
    if (isfinite(mean)) s->mean = mean;
    if (isfinite(norm)) s->l2 = norm;
}

static const char *form_of(const char *type)
{
    static const char *const plain[] = {"torch.Tensor", "torch.nn.parameter.Parameter",
                                        "Tensor", "Parameter", "mindspore.Tensor"};
    if (type == NULL) return NULL;
    for (size_t i = 0; i < sizeof plain / sizeof plain[0]; i++)
        if (strcmp(type, plain[i]) == 0) return NULL;
    return strstr(type, "Fake") != NULL ? "meta" : "subclass";
}

static usc_status read_said(usc_importing *im, const usc_json *value, const char *path,
                            found *f, usc_error *err)
{
    const char *dtype = usc_json_as_text(usc_json_get(value, "dtype"));
    *f = (found){.requires_grad = usc_json_is_true(usc_json_get(value, "requires_grad")),
                 .form = form_of(usc_json_as_text(usc_json_get(value, "type")))};
    if (dtype != NULL) {
        f->dtype_name = strncmp(dtype, "torch.", 6) == 0 ? dtype + 6 : dtype;
        f->view.dtype = usc_dtype_by_name(f->dtype_name);
    }
    const usc_status st = read_shape(im, value, path, f, err);
    if (st == USC_OK) read_stats(value, f);
    return st;
}

/* ---- its file ---- */

/* The file of a tensor lies in the dump's own folder: a name that leads out of it, or a
 * link, is refused. Paths that the first generation wrote are of the machine that ran;
 * only the name counts. */
static usc_status file_path(const usc_importing *im, const usc_json *value, char *out,
                            usc_error *err)
{
    const char *name = usc_json_as_text(usc_json_get(value, "data_name"));
    const char *old = usc_json_as_text(usc_json_get(value, "datapath"));
    struct stat info;
    if (name == NULL && old != NULL)
        name = strrchr(old, '/') != NULL ? strrchr(old, '/') + 1 : old;
    if (name == NULL || *name == '\0' || strcmp(name, "..") == 0 ||
        strchr(name, '/') != NULL)
        return usc_error_set(
            err, USC_E_CORRUPT, -1,
            "'%.200s' is no name of a file in %s: a dump may only name its own "
            "files",
            name != NULL ? name : "", im->folder);
    const usc_status st = usc_path_join(out, im->folder, name, err);
    if (st != USC_OK) return st;
    if (lstat(out, &info) != 0)
        return usc_error_set(err, errno == ENOENT ? USC_E_NOT_FOUND : USC_E_IO, -1,
                             "%s: %s", out, strerror(errno));
    if (!S_ISREG(info.st_mode))
        return usc_error_set(
            err, USC_E_UNSUPPORTED, -1,
            "%s is a link or no plain file: a dump may only name its own files", out);
    return USC_OK;
}

static void shape_text(const usc_tensor *t, char *out, size_t size)
{
    size_t n = (size_t)snprintf(out, size, "[");
    for (int i = 0; i < t->ndim && n + 24 < size; i++)
        n += (size_t)snprintf(out + n, size - n, "%s%lld", i > 0 ? ", " : "",
                              (long long)t->sizes[i]);
    (void)snprintf(out + n, size - n, "]");
}

/* Whether a file holds what the dump says. */
static usc_status check_file(const found *f, const usc_tensor *in_file,
                             const char *dtype_name, const char *path, usc_error *err)
{
    char said[200], is[200];
    if (f->dtype_name != NULL && strcmp(f->dtype_name, dtype_name) != 0)
        return usc_error_set(err, USC_E_DTYPE, -1, "the dump says %.40s, %s holds %s",
                             f->dtype_name, path, dtype_name);
    bool same = !f->has_shape || f->view.ndim == in_file->ndim;
    for (int i = 0; same && f->has_shape && i < in_file->ndim; i++)
        same = f->view.sizes[i] == in_file->sizes[i];
    if (same) return USC_OK;
    shape_text(&f->view, said, sizeof said);
    shape_text(in_file, is, sizeof is);
    return usc_error_set(err, USC_E_SHAPE, -1, "the dump says shape %s, %s holds %s",
                         said, path, is);
}

static usc_status put_rows(usc_importing *im, const found *f, const usc_import_place *to,
                           usc_error *err);

static usc_status import_npy(usc_importing *im, const char *file, found *f,
                             const usc_import_place *to, usc_error *err)
{
    usc_npy npy;
    usc_status st = usc_npy_open(file, &npy, err);
    if (st == USC_OK)
        st = check_file(f, &npy.header.tensor, npy.header.dtype_name, file, err);
    if (st == USC_OK) {
        f->dtype_name = npy.header.dtype_name;
        f->view = npy.header.tensor;
        f->bytes = npy.header.tensor.data;
        f->storage_bytes = npy.header.n * npy.header.item_size;
        st = put_rows(im, f, to, err);
    }
    usc_npy_close(&npy);
    return st;
}

static usc_status import_torch(usc_importing *im, const char *file, found *f,
                               const usc_import_place *to, usc_error *err)
{
    const usc_json *value;
    usc_torch_tensor t;
    usc_status st = usc_torch_files_open(&im->files, file, &value, err);
    if (st != USC_OK) return st;
    const bool is_one =
        usc_torch_files_tensors(&im->files) == 1 && usc_json_get(value, "tensor") != NULL;
    if (!is_one) st = usc_error_set(err, USC_E_CORRUPT, -1, "%s: holds no tensor", file);
    if (is_one) st = usc_torch_files_tensor(&im->files, 0, &t, err);
    if (st == USC_OK) st = check_file(f, &t.view, t.dtype_name, file, err);
    usc_error why = {0};
    usc_status read = USC_OK;
    for (int64_t i = 0; read == USC_OK && i < usc_torch_files_storages(&im->files); i++)
        read = usc_torch_files_storage(&im->files, i, &f->bytes, &f->storage_bytes, &why);
    if (read != USC_OK && st == USC_OK)
        return usc_error_set(err, read, -1, "%s", why.text);
    if (st != USC_OK) return st;
    f->dtype_name = t.dtype_name;
    f->view = t.view;
    f->offset = t.offset;
    return put_rows(im, f, to, err);
}

static bool ends_with(const char *text, const char *end)
{
    const size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

static usc_status import_file(usc_importing *im, found *f, const usc_import_place *to,
                              usc_error *err)
{
    char file[USC_PATH_SIZE];
    const usc_status st = file_path(im, to->from, file, err);
    if (st != USC_OK) return st;
    if (ends_with(file, ".npy")) return import_npy(im, file, f, to, err);
    if (ends_with(file, ".pt")) return import_torch(im, file, f, to, err);
    return usc_error_set(err, USC_E_UNSUPPORTED, -1, "%s is neither .npy nor .pt", file);
}

/* ---- rows ---- */

/* What autocast did before the call: a trace holds the call as it ran below. */
static usc_status narrow(usc_importing *im, const usc_import_place *to, found *f,
                         void **buffer, usc_error *err)
{
    enum { BLOCK = 256 };
    double wide[BLOCK];
    const usc_dtype dtype = im->call.narrow_to;
    if (dtype == USC_DTYPE_NONE || to->role != USC_ROLE_IN || f->view.dtype != USC_F32)
        return USC_OK;
    const size_t n = (size_t)f->storage_bytes / sizeof(float);
    const size_t size = usc_dtype_info_of(dtype)->size;
    unsigned char *out = f->bytes != NULL ? malloc(n * size + 1) : NULL;
    if (f->bytes != NULL && out == NULL)
        return usc_importing_wrong(im, USC_E_NOMEM, to->path, err, "no memory");
    for (size_t i = 0; out != NULL && i < n; i += BLOCK) {
        const size_t part = n - i < BLOCK ? n - i : BLOCK;
        usc_dtype_widen(USC_F32, (const unsigned char *)f->bytes + i * sizeof(float),
                        wide, part);
        usc_dtype_narrow(dtype, wide, out + i * size, part);
    }
    *buffer = out;
    f->bytes = out;
    f->view.dtype = dtype;
    f->dtype_name = usc_dtype_info_of(dtype)->name;
    f->storage_bytes = (int64_t)(n * size);
    im->call.narrowed = true;
    return USC_OK;
}

static usc_status put_storage(usc_importing *im, const found *f, const usc_import_arg *on,
                              int64_t *storage, usc_error *err)
{
    usc_version_row version = {.id = ++im->n_versions};
    usc_status st = USC_OK;
    if (f->bytes != NULL && f->storage_bytes > 0)
        st =
            usc_trace_put_blob(im->trace, f->bytes, f->storage_bytes, &version.blob, err);
    if (on != NULL) {
        version.storage = on->storage;
        version.generation = 1;
        version.call = im->call.sequence;
    } else {
        const usc_storage_row row = {++im->n_storages, im->device, f->storage_bytes};
        if (st == USC_OK) st = usc_trace_put_storage(im->trace, &row, err);
        version.storage = row.id;
    }
    *storage = version.storage;
    im->counts->bytes += f->bytes != NULL ? f->storage_bytes : 0;
    return st == USC_OK ? usc_trace_put_version(im->trace, &version, err) : st;
}

usc_status usc_import_add(usc_importing *im, const usc_import_place *to, int64_t tensor,
                          int64_t storage, usc_error *err)
{
    usc_import_arg *arg = usc_arena_take(&im->texts, sizeof *arg);
    char *copy = usc_arena_take(&im->texts, strlen(to->path) + 1);
    if (arg == NULL || copy == NULL)
        return usc_importing_wrong(im, USC_E_NOMEM, to->path, err, "no memory");
    *arg = (usc_import_arg){.role = to->role,
                            .path = strcpy(copy, to->path),
                            .tensor = tensor,
                            .storage = storage,
                            .from = to->from};
    if (im->call.last != NULL)
        im->call.last->next = arg;
    else
        im->call.first = arg;
    im->call.last = arg;
    return USC_OK;
}

/* Puts a tensor of the storage that was put last. */
static usc_status put_view(usc_importing *im, const found *f, const usc_import_place *to,
                           int64_t storage, usc_error *err)
{
    usc_stats own;
    const usc_stats *stats = f->has_stats ? &f->stats : NULL;
    if (f->bytes != NULL && f->view.dtype != USC_DTYPE_NONE) {
        usc_tensor t = f->view;
        const int64_t at = f->offset * (int64_t)usc_dtype_info_of(t.dtype)->size;
        t.data = (const unsigned char *)f->bytes + at;
        if (usc_stats_compute(&t, NULL, &own, NULL) == USC_OK) stats = &own;
    }
    const usc_tensor_row row = {.id = ++im->n_tensors,
                                .version = im->n_versions,
                                .dtype_name = f->dtype_name,
                                .ndim = f->view.ndim,
                                .sizes = f->view.sizes,
                                .strides = f->view.strides,
                                .offset = f->offset,
                                .requires_grad = f->requires_grad,
                                .stats = stats,
                                .form = f->form};
    usc_status st = usc_trace_put_tensor(im->trace, &row, err);
    if (st == USC_OK) st = usc_import_add(im, to, row.id, storage, err);
    if (st != USC_OK) return st;
    im->counts->tensors++;
    im->counts->with_content += f->bytes != NULL;
    return USC_OK;
}

static usc_status put_found(usc_importing *im, const found *f, const usc_import_place *to,
                            usc_error *err)
{
    int64_t storage = 0;
    const usc_status st = put_storage(im, f, to->on, &storage, err);
    return st == USC_OK ? put_view(im, f, to, storage, err) : st;
}

usc_status usc_import_storage(usc_importing *im, const void *bytes, int64_t size,
                              const usc_import_arg *on, int64_t *storage, usc_error *err)
{
    const found f = {.bytes = bytes, .storage_bytes = size};
    return put_storage(im, &f, on, storage, err);
}

usc_status usc_import_view(usc_importing *im, const usc_import_place *to,
                           const usc_torch_tensor *t, const void *bytes, int64_t storage,
                           usc_error *err)
{
    const found f = {.dtype_name = t->dtype_name,
                     .view = t->view,
                     .requires_grad = t->requires_grad,
                     .offset = t->offset,
                     .bytes = bytes};
    return put_view(im, &f, to, storage, err);
}

static usc_status put_rows(usc_importing *im, const found *f, const usc_import_place *to,
                           usc_error *err)
{
    found own = *f;
    void *buffer = NULL;
    usc_status st = narrow(im, to, &own, &buffer, err);
    if (st == USC_OK) st = put_found(im, &own, to, err);
    free(buffer);
    return st;
}

/* A tensor without its content: its shape must be known then. */
static usc_status put_bare(usc_importing *im, found *f, const usc_import_place *to,
                           usc_error *err)
{
    int64_t n = 0;
    if (f->dtype_name == NULL || !f->has_shape)
        return usc_importing_wrong(
            im, USC_E_CORRUPT, to->path, err,
            "a tensor without %s, and without a file that would tell",
            f->dtype_name == NULL ? "'dtype'" : "'shape'");
    f->bytes = NULL;
    f->offset = 0;
    if (usc_tensor_numel(&f->view, &n, NULL) != USC_OK ||
        !usc_mul_i64(n, (int64_t)usc_dtype_info_of(f->view.dtype)->size,
                     &f->storage_bytes))
        return usc_importing_wrong(im, USC_E_RANGE, to->path, err,
                                   "a shape with more bytes than 64 bits count");
    return put_rows(im, f, to, err);
}

bool usc_import_is_damage(usc_status st)
{
    return st == USC_E_CORRUPT || st == USC_E_NOT_FOUND || st == USC_E_SHAPE ||
           st == USC_E_DTYPE || st == USC_E_UNSUPPORTED || st == USC_E_RANGE;
}

usc_status usc_import_tensor(usc_importing *im, const usc_import_place *to,
                             usc_error *err)
{
    found f;
    usc_error why = {0};
    const usc_json *value = to->from;
    usc_status st = read_said(im, value, to->path, &f, err);
    if (st != USC_OK) return st;
    if (usc_json_get(value, "data_name") == NULL &&
        usc_json_get(value, "datapath") == NULL)
        return put_bare(im, &f, to, err);
    found whole = f;
    st = import_file(im, &whole, to, &why);
    if (st == USC_OK) return USC_OK;
    const bool skips = im->options->skip_damaged;
    if (!usc_import_is_damage(st) || !skips || !f.has_shape || f.dtype_name == NULL)
        return usc_importing_wrong(im, st, to->path, err, "%s%s", why.text,
                                   usc_import_is_damage(st) && !skips
                                       ? "; --skip-damaged imports all that can be read"
                                       : "");
    if (im->counts->damaged++ == 0)
        memcpy(im->counts->first_damage, why.text, sizeof why.text);
    st = usc_trace_put_note(im->trace, im->call.sequence, "left-out", why.text, err);
    return st == USC_OK ? put_bare(im, &f, to, err) : st;
}
