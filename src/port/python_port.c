// SPDX-License-Identifier: Apache-2.0
// The rules of Python: dotted names under every alias, methods, arguments, texts.
#include <string.h>
#include <unistd.h>

#include "port/port_job.h"

#define NO_NAME "this target has no name for it: write this place anew"

enum { MOST_WORDS = 12 };

const char *usc_port_stands_for(usc_port_job *job, const char *chain,
                                const usc_port_alias **alias)
{
    const size_t n = strcspn(chain, ".");
    const int64_t *at = usc_keys_find(&job->bound, usc_hash_bytes(chain, n));
    *alias = NULL;
    if (at == NULL) return chain;
    *alias = &job->alias[*at];
    return usc_port_format(job, "%s%s", (*alias)->stands_for, chain + n);
}

/* A dotted name in the source: the place of each word. */
typedef struct chain {
    size_t place[MOST_WORDS];
    size_t n;
    const char *text;
} chain;

static void take_chain(usc_port_job *job, size_t i, chain *c)
{
    *c = (chain){.text = ""};
    while (usc_port_kind_at(job, i, USC_PORT_NAME) && c->n < MOST_WORDS) {
        c->text = c->n == 0 ? usc_port_word(job, i)
                            : usc_port_dot(job, c->text, usc_port_word(job, i));
        c->place[c->n++] = i;
        if (!usc_port_at(job, i + 1, ".")) break;
        i += 2;
    }
}

/* What the alias of a chain is after the port: "torch.musa" for one of torch.cuda. */
static const char *base_of(usc_port_job *job, const usc_port_alias *alias)
{
    size_t matched;
    bool left;
    if (alias == NULL) return "";
    const char *to =
        usc_port_dotted(job, USC_PORT_PY_NAME, alias->stands_for, &matched, &left);
    if (to == NULL)
        to = usc_port_dotted(job, USC_PORT_PY_IMPORT, alias->stands_for, &matched, &left);
    if (to == NULL) to = alias->stands_for;
    return usc_port_format(job, "%.*s", (int)strcspn(to, "("), to);
}

/* Writes `to` over the words of a chain from `first` on: word by word where they are as
 * many, so that what stands between them stays. */
static void put_words(usc_port_job *job, const chain *c, size_t first, const char *to)
{
    if (usc_port_words_of(to) != c->n - first) {
        usc_port_edit_put(job, usc_port_sig(job, c->place[first])->start,
                          usc_port_sig(job, c->place[c->n - 1])->end, to);
        return;
    }
    for (size_t i = first; i < c->n; i++) {
        const size_t n = strcspn(to, ".");
        const char *word = usc_port_copy(job, to, n);
        if (!usc_port_at(job, c->place[i], word))
            usc_port_replace(job, c->place[i], word);
        to += n + (to[n] == '.');
    }
}

static void put_chain(usc_port_job *job, const chain *c, const usc_port_alias *alias,
                      const char *to)
{
    const char *base = base_of(job, alias);
    const size_t n = strlen(base);
    if (alias == NULL) {
        put_words(job, c, 0, to);
        return;
    }
    if (strncmp(to, base, n) != 0 || (to[n] != '.' && to[n] != '\0') ||
        (to[n] == '\0') != (c->n == 1)) {
        usc_port_leave(job, c->place[0], c->place[c->n - 1], "alias",
                       usc_port_format(job, "is %s here: write it so", to));
        return;
    }
    if (strcmp(alias->name, alias->shown) != 0)
        usc_port_replace(job, c->place[0], alias->shown);
    if (to[n] == '.') put_words(job, c, 1, to + n + 1);
}

/* X("device": the device goes before the first argument, where that has a name or there
 * is none. */
static bool takes_device(const usc_port_job *job, const chain *c)
{
    const size_t first = c->place[c->n - 1] + 2;
    return usc_port_at(job, first - 1, "(") &&
           (usc_port_at(job, first, ")") ||
            (usc_port_kind_at(job, first, USC_PORT_NAME) &&
             usc_port_at(job, first + 1, "=") && !usc_port_at(job, first + 2, "=")));
}

static void put_device(usc_port_job *job, const chain *c, const char *device)
{
    const size_t open = c->place[c->n - 1] + 1;
    const size_t at = usc_port_sig(job, open)->end;
    const bool none = usc_port_at(job, open + 1, ")");
    usc_port_edit_put(job, at, at, usc_port_format(job, none ? "%s" : "%s, ", device));
}

/* Whether the file gives the attribute itself: then it is its own. */
static bool assigns(usc_port_job *job, const char *attribute)
{
    for (size_t i = 1; i < job->n_sig && !job->own_known; i++)
        if (usc_port_at(job, i - 1, ".") && usc_port_at(job, i + 1, "=") &&
            !usc_port_at(job, i + 2, "="))
            (void)usc_keys_put(&job->own, usc_key_of(usc_port_word(job, i)), 1);
    job->own_known = true;
    job->failed |= job->own.failed;
    return usc_keys_find(&job->own, usc_key_of(attribute)) != NULL;
}

/* What the method at i becomes; NULL: it is none, or stays. */
static const char *method_to(usc_port_job *job, size_t i)
{
    bool known = false;
    const char *word = usc_port_word(job, i);
    const char *to = usc_port_to(job, USC_PORT_PY_CALL, word, strlen(word), &known);
    if (to == NULL) return NULL;
    const bool called = usc_port_at(job, i + 1, "(");
    return (strncmp(word, "is_", 3) == 0 ? assigns(job, word) : !called) ? NULL : to;
}

static void port_method(usc_port_job *job, size_t i)
{
    const char *to = method_to(job, i);
    if (to == NULL) return;
    usc_port_replace(job, i, to);
    job->wants_device = true;
}

/* The words behind a row's, of which some are methods: torch.cuda.x.is_cuda. */
static const char *port_tail(usc_port_job *job, const chain *c, const char *to,
                             size_t n_tail)
{
    if (n_tail == 0 || n_tail >= c->n || strchr(to, '(') != NULL) return to;
    size_t at = strlen(to);
    for (size_t k = 0; k < n_tail && at > 0; k++)
        while (at > 0 && to[--at] != '.') {
        }
    const char *out = usc_port_copy(job, to, at);
    for (size_t k = c->n - n_tail; k < c->n; k++) {
        const char *method = method_to(job, c->place[k]);
        out = usc_port_format(job, "%s.%s", out,
                              method != NULL ? method : usc_port_word(job, c->place[k]));
    }
    return out;
}

/* Whether a row names the chain, which is then ported or left. */
static bool port_chain(usc_port_job *job, const chain *c)
{
    const usc_port_alias *alias;
    size_t matched;
    bool left;
    const char *name = usc_port_stands_for(job, c->text, &alias);
    if (alias == NULL) { /* nearly all: no row begins so */
        bool first = false;
        (void)usc_port_to(job, USC_PORT_PY_FIRST, name, strcspn(name, "."), &first);
        if (!first) return false;
    }
    const char *to = usc_port_dotted(job, USC_PORT_PY_NAME, name, &matched, &left);
    if (left)
        usc_port_leave(job, c->place[0], c->place[c->n - 1],
                       usc_port_format(job, "'%s'", name), NO_NAME);
    if (to == NULL) return left;
    to = port_tail(job, c, to, usc_port_words_of(name) - matched);
    job->wants_device = true;
    const char *call = strchr(to, '(');
    if (call != NULL) {
        if (strchr(call, '.') != NULL) return true; /* of the class: nothing to give */
        if (!takes_device(job, c)) {
            usc_port_leave(
                job, c->place[0], c->place[c->n - 1], "device argument",
                usc_port_format(job, "is %s, ...) here, with the rest by name", to));
            return true;
        }
        to = usc_port_copy(job, to, (size_t)(call - to));
    }
    put_chain(job, c, alias, to);
    if (call != NULL) put_device(job, c, call + 1);
    return true;
}

static void port_argument(usc_port_job *job, size_t i)
{
    bool known = false;
    const char *word = usc_port_word(job, i);
    const char *to = usc_port_to(job, USC_PORT_PY_WORD, word, strlen(word), &known);
    if (!known || (!usc_port_at(job, i - 1, "(") && !usc_port_at(job, i - 1, ",")))
        return;
    if (to != NULL)
        usc_port_replace(job, i, to);
    else
        usc_port_leave(job, i, i, usc_port_format(job, "'%s'", word), NO_NAME);
}

static void look_at_module(usc_port_job *job, const chain *c)
{
    static const char *const others[] = {"cupy",       "pycuda",   "pynvml",
                                         "numba.cuda", "apex",     "tensorrt",
                                         "flash_attn", "xformers", "bitsandbytes"};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        const size_t n = strlen(others[i]);
        if (strncmp(c->text, others[i], n) == 0 &&
            (c->text[n] == '\0' || c->text[n] == '.') && !usc_port_is_here(job, c->text))
            usc_port_leave(job, c->place[0], c->place[c->n - 1], "library",
                           "is built for CUDA: see whether the target has one like it");
    }
}

/* A statement begins at place i: behind a line's end, ; or the : of a block. */
static bool begins_statement(const usc_port_job *job, size_t i)
{
    return i == 0 || usc_port_kind_at(job, i - 1, USC_PORT_NEWLINE) ||
           usc_port_at(job, i - 1, ";") || usc_port_at(job, i - 1, ":");
}

void usc_port_python(usc_port_job *job)
{
    for (size_t i = 0; i < job->n_sig; i++) {
        const usc_port_token *t = usc_port_sig(job, i);
        if (t->kind == USC_PORT_TEXT) usc_port_python_text(job, i);
        if (t->kind == USC_PORT_MIDDLE) usc_port_python_middle(job, i);
        if (t->kind != USC_PORT_NAME) continue;
        if (usc_port_at(job, i - 1, ".")) {
            port_method(job, i);
            continue;
        }
        chain c;
        if (begins_statement(job, i) &&
            (usc_port_at(job, i, "import") || usc_port_at(job, i, "from"))) {
            take_chain(job, i + 1, &c);
            if (c.n > 0) look_at_module(job, &c);
            i = usc_port_import(job, i) - 1;
            continue;
        }
        take_chain(job, i, &c);
        if (c.n == 1 && usc_port_at(job, i + 1, "=") && !usc_port_at(job, i + 2, "=")) {
            port_argument(job, i);
        } else if (!port_chain(job, &c)) {
            for (size_t k = 1; k < c.n; k++)
                port_method(job, c.place[k]); /* x.y.cuda(), x.is_cuda.y */
        }
        if (c.n > 1) i = c.place[c.n - 1];
    }
    if (job->wants_device || job->options->launch != NULL) usc_port_load_device(job);
}
