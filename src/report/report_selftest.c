// SPDX-License-Identifier: Apache-2.0
// The self-test of a check, out of its JSON.
#include "report/report_selftest.h"

#include <math.h>
#include <string.h>

#include "json/json.h"

static int64_t passes_of(const usc_report *r, const char *op)
{
    const usc_op_sum *s = usc_report_op(r, op);
    return s != NULL ? s->n[USC_VERDICT_PASS] : 0;
}

/* The texts of a list, with semicolons between them. NULL: no memory. */
static const char *joined(usc_report *r, const usc_json *list)
{
    size_t size = 1;
    for (size_t i = 0; i < usc_json_size(list); i++) {
        const char *one = usc_json_as_text(usc_json_item(list, i));
        size += one != NULL ? strlen(one) + 2 : 0;
    }
    char *out = usc_report_take(r, size);
    for (size_t i = 0; i < usc_json_size(list) && out != NULL; i++) {
        const char *one = usc_json_as_text(usc_json_item(list, i));
        if (one != NULL) strcat(strcat(out, out[0] != '\0' ? "; " : ""), one);
    }
    return out;
}

static usc_status read_one(usc_report *r, usc_json_taker *in, const usc_json *value,
                           usc_self_test *t)
{
    const usc_json *bits = usc_json_object(in, value, "bits");
    const usc_json *unseen = usc_json_list(in, value, "unseen");
    const char *skipped = usc_json_text(in, value, "skipped", "not probed");
    t->skipped = usc_report_keep(r, bits != NULL ? "" : skipped);
    t->unseen = joined(r, unseen);
    t->noise = usc_json_number(in, bits, "noise", (double)NAN);
    t->element = usc_json_number(in, bits, "element", (double)NAN);
    t->factor = usc_json_number(in, bits, "factor", (double)NAN);
    t->n_caught = (int)usc_json_size(usc_json_list(in, value, "caught"));
    t->n_unseen = (int)usc_json_size(unseen);
    t->n_pass = passes_of(r, t->op);
    if (t->skipped == NULL || t->unseen == NULL) return usc_report_no_memory(r, in->err);
    return in->status;
}

/* By operator, whatever the order in the file. */
static void insert(usc_report *r, usc_self_test *t)
{
    usc_self_test **at = &r->self_test;
    while (*at != NULL && strcmp((*at)->op, t->op) < 0)
        at = &(*at)->next;
    t->next = *at;
    *at = t;
}

usc_status usc_report_read_self_test(usc_report *r, usc_error *err)
{
    const char *op, *json = usc_report_run(r, "self_test");
    const usc_json *value;
    usc_json *root;
    if (json[0] == '\0') return USC_OK;
    usc_json_taker in = {.name = r->folder, .err = err};
    usc_status st = usc_json_parse(json, strlen(json), r->folder,
                                   "the self-test in it is no JSON", &root, err);
    if (st != USC_OK) return st;
    for (void *at = NULL; st == USC_OK && usc_json_next(root, &at, &op, &value);) {
        usc_self_test *t = usc_report_take(r, sizeof *t);
        if (t == NULL || (t->op = usc_report_keep(r, op)) == NULL) {
            st = usc_report_no_memory(r, err);
            break;
        }
        snprintf(in.place, sizeof in.place, "self_test %.40s", op);
        st = read_one(r, &in, value, t);
        insert(r, t);
    }
    usc_json_free(root);
    return st;
}
