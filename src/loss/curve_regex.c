// SPDX-License-Identifier: Apache-2.0
// Python's spelling to POSIX's, piece by piece: curve_regex.h.
#include "loss/curve_regex.h"

#include <regex.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/line.h"

enum { MOST_GROUPS = 32 };

struct usc_curve_regex {
    regex_t compiled;
    bool is_compiled;
    int loss, step; /* groups; 0: none */
};

typedef struct translation {
    const char *text, *at;
    usc_line out;
    int n_groups, loss, step;
    usc_error *err;
} translation;

static usc_status refuse(const translation *t, const char *why)
{
    return usc_error_set(t->err, USC_E_ARG, t->at - t->text, "--regex '%s': %s", t->text,
                         why);
}

/* The class that a letter behind a backslash stands for; NULL: none. */
static const char *class_of(char letter, bool in_set)
{
    switch (letter) {
    case 'd':
        return in_set ? "0-9" : "[0-9]";
    case 's':
        return in_set ? "[:space:]" : "[[:space:]]";
    case 'w':
        return in_set ? "[:alnum:]_" : "[[:alnum:]_]";
    case 'D':
        return in_set ? NULL : "[^0-9]";
    case 'S':
        return in_set ? NULL : "[^[:space:]]";
    case 'W':
        return in_set ? NULL : "[^[:alnum:]_]";
    case 't':
        return "\t";
    default:
        return NULL;
    }
}

/* [...], in which POSIX takes a backslash as it stands. */
static usc_status take_set(translation *t)
{
    const char *first = t->at + 1 + (t->at[1] == '^');
    usc_line_put(&t->out, t->at, (size_t)(first - t->at));
    t->at = first;
    while (*t->at != '\0' && (*t->at != ']' || t->at == first)) {
        const char *end = strncmp(t->at, "[:", 2) == 0 ? strstr(t->at, ":]") : NULL;
        if (end != NULL) {
            usc_line_put(&t->out, t->at, (size_t)(end + 2 - t->at));
            t->at = end + 2;
            continue;
        }
        const char *class = *t->at == '\\' ? class_of(t->at[1], true) : NULL;
        if (class != NULL) {
            usc_line_text(&t->out, class);
            t->at += 2;
            continue;
        }
        if (*t->at == '\\' && t->at[1] != '\0') t->at++;
        usc_line_put(&t->out, t->at++, 1);
    }
    if (*t->at == '\0') return refuse(t, "a [ is not closed");
    usc_line_put(&t->out, t->at++, 1);
    return USC_OK;
}

static bool named(const char *at, size_t n, const char *name)
{
    return strlen(name) == n && memcmp(at, name, n) == 0;
}

/* ( with what may follow it. */
static usc_status take_group(translation *t)
{
    usc_line_put(&t->out, t->at++, 1);
    t->n_groups++;
    if (*t->at != '?') return USC_OK;
    if (t->at[1] == ':') {
        t->at += 2;
        return USC_OK;
    }
    const char *name = t->at + (t->at[1] == 'P' ? 3 : 2);
    const char *end = t->at[1] != '\0' && name[-1] == '<' ? strchr(name, '>') : NULL;
    if (end == NULL || *name == '=' || *name == '!')
        return refuse(t,
                      "of the groups that begin with (? only (?P<name>...) and (?:...) "
                      "are known here");
    const size_t n = (size_t)(end - name);
    if (named(name, n, "loss"))
        t->loss = t->n_groups;
    else if (named(name, n, "step"))
        t->step = t->n_groups;
    else
        return refuse(t, "groups are called loss and step, no other way");
    t->at = end + 1;
    return USC_OK;
}

static usc_status translate(translation *t)
{
    usc_status st = USC_OK;
    while (st == USC_OK && *t->at != '\0') {
        const char *class = *t->at == '\\' ? class_of(t->at[1], false) : NULL;
        if (class != NULL) {
            usc_line_text(&t->out, class);
            t->at += 2;
        } else if (*t->at == '\\' && t->at[1] != '\0') {
            usc_line_put(&t->out, t->at, 2);
            t->at += 2;
        } else if (*t->at == '[') {
            st = take_set(t);
        } else if (*t->at == '(') {
            st = take_group(t);
        } else if (strchr("*+?}", *t->at) != NULL && t->at[1] == '?') {
            st =
                refuse(t, "*?, +? and ?? are not known here; say what may not come, e.g. "
                          "[^|]*");
        } else {
            usc_line_put(&t->out, t->at++, 1);
        }
    }
    if (st == USC_OK && t->n_groups == 0)
        st = refuse(t, "it has no group for the number; write e.g. 'loss[=: ]+"
                       "(?P<loss>[-+.0-9eE]+)'");
    if (st == USC_OK && t->n_groups >= MOST_GROUPS)
        st = refuse(t, "it has more than 31 groups");
    return st;
}

static usc_status compile(usc_curve_regex *r, translation *t)
{
    char why[128];
    const usc_status st = translate(t);
    if (st != USC_OK) return st;
    if (t->out.failed) return usc_no_memory("--regex", t->err);
    const int code = regcomp(&r->compiled, t->out.text, REG_EXTENDED);
    if (code == REG_ESPACE) return usc_no_memory("--regex", t->err);
    if (code != 0) {
        (void)regerror(code, &r->compiled, why, sizeof why);
        return refuse(t, why);
    }
    r->is_compiled = true;
    r->loss = t->loss > 0 ? t->loss : t->step == 1 ? 2 : 1;
    r->step = t->step;
    if (r->loss > t->n_groups) return refuse(t, "it has no group for the loss");
    return USC_OK;
}

usc_status usc_curve_regex_make(const char *text, usc_curve_regex **out, usc_error *err)
{
    translation t = {.text = text, .at = text, .err = err};
    usc_curve_regex *r = calloc(1, sizeof *r);
    *out = NULL;
    if (r == NULL) return usc_no_memory("--regex", err);
    const usc_status st = compile(r, &t);
    usc_line_free(&t.out);
    if (st == USC_OK)
        *out = r;
    else
        usc_curve_regex_free(r);
    return st;
}

void usc_curve_regex_free(usc_curve_regex *r)
{
    if (r == NULL) return;
    if (r->is_compiled) regfree(&r->compiled);
    free(r);
}

static const char *group(const char *line, const regmatch_t *match, size_t *n)
{
    *n = match->rm_so >= 0 ? (size_t)(match->rm_eo - match->rm_so) : 0;
    return match->rm_so >= 0 ? line + match->rm_so : NULL;
}

bool usc_curve_regex_find(const usc_curve_regex *r, const char *line, const char **loss,
                          size_t *n_loss, const char **step, size_t *n_step)
{
    regmatch_t match[MOST_GROUPS];
    *step = NULL;
    *n_step = 0;
    if (regexec(&r->compiled, line, MOST_GROUPS, match, 0) != 0) return false;
    *loss = group(line, &match[r->loss], n_loss);
    if (r->step > 0) *step = group(line, &match[r->step], n_step);
    return *loss != NULL;
}
