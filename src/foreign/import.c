// SPDX-License-Identifier: Apache-2.0
// An import from its beginning to its end: which kind of dump it is, the trace that it
// becomes, and the rows that all kinds share.
#include "foreign/importing.h"

#include <string.h>
#include <unistd.h>

#include "base/folder.h"
#include "base/number.h"

/* ---- the whole ---- */

static usc_status create(usc_importing *im, usc_error *err)
{
    const char *out = im->options->trace;
    usc_status st = usc_folder_part(out, im->part, err);
    if (st != USC_OK) {
        im->part[0] = '\0';
        return st;
    }
    usc_folder_remove(im->part);
    st = usc_trace_create(im->part, NULL, &im->trace, err);
    if (st == USC_OK)
        st = usc_trace_set_meta(im->trace, "imported_from", im->options->dump, err);
    return st;
}

static usc_status read_dump(usc_importing *im, bool *stopped, usc_error *err)
{
    char folder[USC_PATH_SIZE], name[USC_IMPORT_NAME];
    const char *dump = im->options->dump;
    usc_status st = usc_import_find_ascend_v1(im, dump, folder, name, err);
    usc_captures captures = {0};
    if (st == USC_OK && name[0] == '\0')
        st = usc_import_find_ditorch(im, dump, &captures, err);
    if (st == USC_OK)
        st = name[0] != '\0'  ? usc_import_ascend_v1(im, folder, name, stopped, err)
             : captures.n > 0 ? usc_import_ditorch(im, &captures, stopped, err)
                              : usc_import_msprobe(im, dump, stopped, err);
    usc_captures_free(&captures);
    if (st == USC_OK && !*stopped && im->counts->calls == 0)
        st = usc_error_set(err, USC_E_NOT_FOUND, -1, "%s: no call of an API in it%s",
                           im->options->dump,
                           im->counts->modules > 0
                               ? ", only nn.Modules (level L0): dump at level L1 or mix"
                               : "");
    if (st == USC_OK)
        st = usc_trace_set_meta(im->trace, "imported_format", im->counts->format, err);
    return st;
}

static void free_all(usc_importing *im)
{
    usc_torch_files_close(&im->files);
    usc_writing_free(&im->call.args);
    usc_arena_free(&im->texts);
    usc_keys_free(&im->ops);
    usc_keys_free(&im->modules);
    usc_keys_free(&im->calls);
    usc_keys_free(&im->stacks);
    usc_keys_free(&im->places);
}

usc_status usc_import(const usc_import_options *options, const usc_run_hooks *hooks,
                      usc_import_counts *counts, usc_run_end *end, usc_error *err)
{
    usc_error own;
    bool stopped = false;
    if (err == NULL) err = &own;
    *counts = (usc_import_counts){0};
    *end = USC_RUN_DONE;
    usc_importing im = {.options = options,
                        .hooks = hooks,
                        .counts = counts,
                        .device = options->device != NULL ? options->device : "npu:0",
                        .files = {.hooks = hooks},
                        .texts = {.alloc = usc_libc_alloc}};
    usc_status st = create(&im, err);
    if (st == USC_OK) st = read_dump(&im, &stopped, err);
    const bool good = st == USC_OK && !stopped;
    usc_error why = {0};
    const usc_status finished = usc_trace_finish(im.trace, good, &why);
    if (good && finished != USC_OK) st = usc_error_set(err, finished, -1, "%s", why.text);
    if (good && st == USC_OK && rename(im.part, options->trace) != 0)
        st = usc_error_set(err, USC_E_IO, -1, "%s cannot be written", options->trace);
    if (im.part[0] != '\0') usc_folder_remove(im.part);
    if (stopped) *end = USC_RUN_INTERRUPTED;
    free_all(&im);
    return st;
}
