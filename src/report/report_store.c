// SPDX-License-Identifier: Apache-2.0
// What a report keeps and looks up: memory, texts, keys of the run, sums of an operator,
// the line of source that a stack names. Neighbours: report_model.c, which fills it.
#include "report/report_index.h"
#include "report/report_model.h"
#include "json/json.h"

#include <string.h>
#include <unistd.h>

void *usc_report_take(usc_report *r, size_t size)
{
    void *at = usc_arena_take(&r->arena, size);
    return at != NULL ? memset(at, 0, size) : NULL;
}

const char *usc_report_keep(usc_report *r, const char *text)
{
    if (text == NULL || text[0] == '\0') return "";
    const size_t size = strlen(text) + 1;
    char *copy = usc_report_take(r, size);
    return copy != NULL ? memcpy(copy, text, size) : NULL;
}

usc_status usc_report_no_memory(const usc_report *r, usc_error *err)
{
    return usc_error_set(err, USC_E_NOMEM, -1, "report of %s: out of memory", r->folder);
}

const char *usc_report_run(const usc_report *r, const char *key)
{
    for (const usc_run_key *k = r->run; k != NULL; k = k->next)
        if (strcmp(k->key, key) == 0) return k->value;
    return "";
}

static const char *relative(const char *file)
{
    char here[4096];
    if (getcwd(here, sizeof here) == NULL) return file;
    const size_t n = strlen(here);
    return strncmp(file, here, n) == 0 && file[n] == '/' ? file + n + 1 : file;
}

/* Whether a frame belongs to a package that was installed, or to no file. */
static bool foreign(const char *file)
{
    return strstr(file, "/site-packages/") != NULL ||
           strstr(file, "/dist-packages/") != NULL || file[0] == '<';
}

/* The frame to name: the first of the caller's own, else the first at all. */
static const usc_json *frame_of(const usc_json *stack)
{
    const usc_json *first = NULL;
    for (size_t i = 0; i < usc_json_size(stack); i++) {
        const usc_json *frame = usc_json_item(stack, i);
        const char *file = usc_json_as_text(usc_json_item(frame, 0));
        if (file == NULL) continue;
        if (!foreign(file)) return frame;
        if (first == NULL) first = frame;
    }
    return first;
}

usc_source_line usc_source_line_of(usc_report *r, const char *stack)
{
    usc_source_line found = {.file = ""};
    usc_json *root = NULL;
    if (stack == NULL || stack[0] != '[') return found;
    const usc_status st = usc_json_parse(stack, strlen(stack), "stack", "", &root, NULL);
    r->arena.failed |= st == USC_E_NOMEM;
    if (st != USC_OK) return found;
    const usc_json *frame = frame_of(root);
    const char *kept =
        frame != NULL
            ? usc_report_keep(r, relative(usc_json_as_text(usc_json_item(frame, 0))))
            : NULL;
    if (kept != NULL) {
        found.file = kept;
        (void)usc_json_as_integer(usc_json_item(frame, 1), &found.line);
    }
    usc_json_free(root);
    return found;
}
