// SPDX-License-Identifier: Apache-2.0
// Names of the source's own that say cuda (nms_cuda, CUDA_1D_KERNEL_LOOP), where they are
// asked for. A first walk over all files learns which are declared there, and which are
// used in a way that a name alone cannot follow: those stay, and are listed.
#include "port/port_own.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* Where a device's name begins as a part of a word, in one of three cases: cuda, CUDA,
 * Cuda. NULL: nowhere. */
static const char *part_of(const char *word, const char *device)
{
    const size_t n = strlen(device);
    for (const char *at = word; *at != '\0'; at++) {
        if (strncasecmp(at, device, n) != 0) continue;
        const bool low = islower((unsigned char)at[0]) != 0;
        const bool all = isupper((unsigned char)at[n - 1]) != 0;
        bool same = low || all || islower((unsigned char)at[1]);
        for (size_t i = 1; i < n; i++)
            same &= (isupper((unsigned char)at[i]) != 0) == all;
        /* Transpose2DCUDAKernel: a word in capitals that another one follows */
        const bool next =
            all && isupper((unsigned char)at[n]) && islower((unsigned char)at[n + 1]);
        const bool begins = at == word || !isalpha((unsigned char)at[-1]) || next ||
                            (!low && islower((unsigned char)at[-1]));
        if (same && begins && !islower((unsigned char)at[n])) return at;
    }
    return NULL;
}

/* The rest of a word: of the guard of a header (NMS_CUDA_CUH) with the header's ending. */
static const char *with_ending(usc_port_job *job, const char *word)
{
    const size_t n = strlen(word), blank = n > 0 && word[n - 1] == '_';
    const bool back = job->options->target == USC_PORT_CUDA;
    if (usc_port_ending(job->options->target, back ? ".muh" : ".cuh") == NULL ||
        n < 4 + blank || strncmp(word + n - blank - 4, back ? "_MUH" : "_CUH", 4) != 0)
        return word;
    return usc_port_format(job, "%.*s%s%s", (int)(n - blank - 4), word,
                           back ? "_CUH" : "_MUH", blank ? "_" : "");
}

/* The word with the target's name in place of each such part. */
static const char *renamed(usc_port_job *job, const char *word, const char *to)
{
    const char *at = part_of(word, job->names->device);
    if (at == NULL) return with_ending(job, word);
    char part[16];
    size_t n = 0;
    for (; to[n] != '\0' && n + 1 < sizeof part; n++) {
        const bool upper = isupper((unsigned char)at[n == 0 ? 0 : 1]) != 0;
        part[n] = (char)(upper ? toupper((unsigned char)to[n]) : to[n]);
    }
    part[n] = '\0';
    return usc_port_format(job, "%.*s%s%s", (int)(at - word), word, part,
                           renamed(job, at + 4, to));
}

static usc_hash128 key_of(const char *name, bool python)
{
    usc_hash128 key = usc_key_of(name);
    key.high += python;
    return key;
}

static usc_port_own_name *find(const usc_port_own *own, const char *name, bool python)
{
    const int64_t *at = usc_keys_find(&own->known, key_of(name, python));
    return at != NULL ? &own->name[*at] : NULL;
}

static usc_port_own_name *know(usc_port_own *own, const char *name, bool python)
{
    usc_port_own_name *known = find(own, name, python);
    if (known != NULL) return known;
    if (own->n == own->size) {
        const size_t size = own->size > 0 ? 2 * own->size : 64;
        usc_port_own_name *grown = realloc(own->name, size * sizeof *grown);
        if (grown == NULL) {
            own->failed = true;
            return NULL;
        }
        own->name = grown;
        own->size = size;
    }
    (void)usc_keys_put(&own->known, key_of(name, python), (int64_t)own->n);
    own->failed |= own->known.failed;
    own->name[own->n] = (usc_port_own_name){0};
    return &own->name[own->n++];
}

static bool in_table(usc_port_job *job, const char *word)
{
    static const usc_port_row_kind kinds[] = {
        USC_PORT_CXX_NAME, USC_PORT_CXX_CALL, USC_PORT_PY_NAME, USC_PORT_PY_CALL,
        USC_PORT_PY_WORD,  USC_PORT_KEY,      USC_PORT_FIRST};
    bool known = false;
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0] && !known; i++)
        (void)usc_port_to(job, kinds[i], word, strlen(word), &known);
    return known || part_of(word, job->names->device) == NULL;
}

/* Whether the name at i is declared there. */
static bool declared(usc_port_job *job, size_t i, bool python)
{
    if (!python)
        return usc_port_sig(job, i)->directive ? usc_port_at(job, i - 1, "define")
                                               : usc_port_declares(job, i);
    return usc_port_at(job, i - 1, "def") || usc_port_at(job, i - 1, "class") ||
           ((i == 0 || usc_port_kind_at(job, i - 1, USC_PORT_NEWLINE) ||
             usc_port_at(job, i - 1, ";")) &&
            usc_port_at(job, i + 1, "=") && !usc_port_at(job, i + 2, "="));
}

/* The statement of Python in which a name stands, up to the name. */
typedef struct statement {
    size_t first;
    bool import, def; /* the words that it has so far */
} statement;

static void follow_statement(const usc_port_job *job, size_t i, statement *s)
{
    if (i == 0 || usc_port_kind_at(job, i - 1, USC_PORT_NEWLINE))
        *s = (statement){.first = i};
    s->import |= usc_port_at(job, i, "import");
    s->def |= usc_port_at(job, i, "def");
}

/* Why a name that is imported is not to be followed; NULL: it is. */
static const char *spoilt_import(usc_port_job *job, const statement *s)
{
    const bool from = usc_port_at(job, s->first, "from");
    if (!from || !s->import) return "is the name of a module";
    return usc_port_at(job, s->first + 1, ".") ||
                   usc_port_is_here(job, usc_port_word(job, s->first + 1))
               ? NULL
               : "is imported from elsewhere";
}

/* Whether a macro joins the name at i with others: x ## _cuda. */
static bool is_joined(const usc_port_job *job, size_t i)
{
    return usc_port_sig(job, i)->directive &&
           ((usc_port_at(job, i - 1, "#") && usc_port_at(job, i - 2, "#")) ||
            (usc_port_at(job, i + 1, "#") && usc_port_at(job, i + 2, "#")));
}

/* Why the name at i is not to be followed; NULL: it is. */
static const char *spoilt(usc_port_job *job, size_t i, bool python, const statement *s)
{
    if (!python) return is_joined(job, i) ? "is joined to others in a macro" : NULL;
    if (usc_port_at(job, s->first, "from") || usc_port_at(job, s->first, "import"))
        return spoilt_import(job, s);
    if (usc_port_at(job, i - 1, ".")) return "is an attribute of something, too";
    const bool argument = usc_port_at(job, i - 1, "(") || usc_port_at(job, i - 1, ",");
    if (argument &&
        (s->def || (usc_port_at(job, i + 1, "=") && !usc_port_at(job, i + 2, "="))))
        return "is the name of an argument, too";
    return NULL;
}

/* A text of Python that is the name: of __all__, getattr, or of a function to be loaded. */
static void learn_text(usc_port_job *job, usc_port_own *own, size_t i)
{
    const usc_port_token *t = usc_port_sig(job, i);
    if (t->end - t->start < 6 || t->end - t->start > 200) return;
    const char *name = usc_port_format(job, "%.*s", (int)(t->end - t->start) - 2,
                                       job->text + t->start + 1);
    if (part_of(name, job->names->device) == NULL) return;
    for (int python = 0; python < 2; python++) {
        usc_port_own_name *known = know(own, name, python != 0);
        if (known != NULL) known->why = "stands in quotes, too";
    }
}

void usc_port_own_learn(usc_port_job *job, usc_port_own *own, bool python)
{
    statement s = {0};
    for (size_t i = 0; i < job->n_sig; i++) {
        if (python) follow_statement(job, i, &s);
        if (python && usc_port_kind_at(job, i, USC_PORT_TEXT)) learn_text(job, own, i);
        if (!usc_port_kind_at(job, i, USC_PORT_NAME)) continue;
        const char *word = usc_port_word(job, i);
        const char *device = usc_port_target_text(job->options->target);
        const bool taken = part_of(word, device) != NULL;
        if (!taken && in_table(job, word)) continue;
        usc_port_own_name *known = know(own, word, python);
        if (known == NULL) return;
        known->there = true;
        if (taken) continue;
        known->declared |= declared(job, i, python);
        if (known->why == NULL) known->why = spoilt(job, i, python, &s);
    }
}

/* Behind a namespace of torch's: not the source's own. */
static bool is_foreign(const usc_port_job *job, size_t i)
{
    static const char *const spaces[] = {"at", "c10", "torch", "native", "std", "thrust"};
    for (size_t k = 0; k < sizeof spaces / sizeof spaces[0]; k++)
        if (usc_port_at(job, i - 1, "::") && usc_port_at(job, i - 2, spaces[k]))
            return true;
    return false;
}

/* What an own name becomes; NULL: it is none. *why: it stays. */
static const char *own_to(usc_port_job *job, const char *word, bool python,
                          const char **why)
{
    bool known = false;
    const char *to = usc_port_to(job, USC_PORT_PY_TEXT, job->names->device, 4, &known);
    const usc_port_own_name *own = find(job->own_names, word, python);
    if (to == NULL || own == NULL || !own->declared ||
        part_of(word, job->names->device) == NULL)
        return NULL;
    const char *name = renamed(job, word, to);
    const usc_port_own_name *taken = find(job->own_names, name, python);
    *why = taken != NULL && taken->there ? "would be a name that is there already"
                                         : own->why;
    return name;
}

const char *usc_port_own_part(usc_port_job *job, const char *word)
{
    bool known = false;
    const char *to = usc_port_to(job, USC_PORT_PY_TEXT, job->names->device, 4, &known);
    return to != NULL ? renamed(job, word, to) : word;
}

const char *usc_port_own_to(usc_port_job *job, const char *word, bool python)
{
    const char *why = NULL;
    const char *to = job->own_names != NULL ? own_to(job, word, python, &why) : NULL;
    return why == NULL ? to : NULL;
}

/* Whether the text at i is what a macro that dispatches types calls itself in its errors:
 * AT_DISPATCH_ALL_TYPES(x.scalar_type(), "nms_cuda", ...). Nothing looks it up. */
static bool is_label(usc_port_job *job, size_t i)
{
    if (!usc_port_at(job, i - 1, ",") || !usc_port_at(job, i + 1, ",")) return false;
    const char *macro = usc_port_called_around(job, i, 64);
    return macro != NULL && strncmp(macro, "AT_DISPATCH_", 12) == 0;
}

void usc_port_own_apply(usc_port_job *job, bool python)
{
    for (size_t i = 0; i < job->n_sig; i++) {
        if (!python && usc_port_kind_at(job, i, USC_PORT_TEXT) && is_label(job, i) &&
            part_of(usc_port_word(job, i), job->names->device) != NULL)
            usc_port_replace(job, i, usc_port_own_part(job, usc_port_word(job, i)));
        if (!usc_port_kind_at(job, i, USC_PORT_NAME)) continue;
        const char *word = usc_port_word(job, i), *why = NULL;
        if (part_of(word, job->names->device) == NULL) continue;
        if (!python && is_joined(job, i))
            usc_port_leave(job, i, i, "joined name",
                           "what a macro joins is not followed: see that it fits");
        const char *name = is_foreign(job, i) ? NULL : own_to(job, word, python, &why);
        if (name != NULL && why == NULL) usc_port_replace(job, i, name);
        const char *shown = usc_port_format(job, "'%s'", word);
        if (name != NULL && why != NULL && usc_port_first(job, shown))
            usc_port_leave(
                job, i, i, shown,
                usc_port_format(job, "%s: name it %s by hand, or leave it", why, name));
    }
}

void usc_port_own_free(usc_port_own *own)
{
    usc_keys_free(&own->known);
    free(own->name);
    *own = (usc_port_own){0};
}
