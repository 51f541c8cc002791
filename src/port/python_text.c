// SPDX-License-Identifier: Apache-2.0
// Texts of Python: a whole one that is a device, a backend, a dispatch key, a variable or
// a source file is ported; all others are somebody's words and stay.
#include <string.h>

#include "port/port_job.h"

/* Where a text is for people, or names a file or an entry of data. */
static const char *const told_by[] = {
    "print",  "info",      "debug",        "warning",    "warn", "error",  "log",
    "write",  "exception", "Path",         "open",       "join", "exists", "isdir",
    "isfile", "Exception", "RuntimeError", "ValueError", "skip", "mark"};
static const char *const told_as[] = {"help", "metavar", "dest",   "desc", "description",
                                      "prog", "name",    "reason", "msg"};

static bool is_one_of(const usc_port_job *job, size_t i, const char *const *words,
                      size_t n)
{
    for (size_t k = 0; k < n; k++)
        if (usc_port_at(job, i, words[k])) return true;
    return false;
}

/* Whether the text at i is part of a longer one: texts that stand side by side, or what %
 * and + join with other words. */
static bool is_part(const usc_port_job *job, size_t i)
{
    return usc_port_kind_at(job, i - 1, USC_PORT_TEXT) ||
           usc_port_kind_at(job, i + 1, USC_PORT_TEXT) ||
           usc_port_kind_at(job, i - 1, USC_PORT_CLOSE) ||
           usc_port_kind_at(job, i + 1, USC_PORT_OPEN) || usc_port_at(job, i - 1, "/") ||
           usc_port_at(job, i + 1, "/");
}

/* The bracket in which the text at i stands; n_sig: in none. */
static size_t bracket_of(const usc_port_job *job, size_t i)
{
    int depth = 0;
    for (size_t at = i; at-- > 0 && i - at < 400;) {
        if (usc_port_at(job, at, ")") || usc_port_at(job, at, "]") ||
            usc_port_at(job, at, "}"))
            depth++;
        else if (usc_port_at(job, at, "(") || usc_port_at(job, at, "[") ||
                 usc_port_at(job, at, "{"))
            if (depth-- == 0) return at;
    }
    return job->n_sig;
}

static bool is_words(const usc_port_job *job, size_t i)
{
    if (is_part(job, i)) return true;
    const bool begins = i == 0 || usc_port_kind_at(job, i - 1, USC_PORT_NEWLINE);
    if (begins && usc_port_kind_at(job, i + 1, USC_PORT_NEWLINE)) return true;
    if (usc_port_at(job, i - 1, "="))
        return is_one_of(job, i - 2, told_as, sizeof told_as / sizeof told_as[0]);
    const size_t open = bracket_of(job, i);
    return usc_port_at(job, open, "(") &&
           is_one_of(job, open - 1, told_by, sizeof told_by / sizeof told_by[0]);
}

/* An entry of something: state["cuda"], state.get("cuda"). */
static bool is_entry(const usc_port_job *job, size_t i)
{
    static const char *const getters[] = {"get", "pop", "setdefault"};
    if (usc_port_at(job, i - 1, "("))
        return is_one_of(job, i - 2, getters, 3) && !usc_port_at(job, i - 4, "environ");
    return usc_port_at(job, i - 1, "[") && usc_port_at(job, i + 1, "]") &&
           (usc_port_kind_at(job, i - 2, USC_PORT_NAME) || usc_port_at(job, i - 2, ")") ||
            usc_port_at(job, i - 2, "]")) &&
           !usc_port_at(job, i - 2, "environ") && !usc_port_at(job, i - 2, "in") &&
           !usc_port_at(job, i - 2, "return");
}

/* "cuda", "cuda:", "cuda:0", "cuda:%d", "cuda:{}", "cuda:{rank}". */
static bool is_device(const usc_port_job *job, const char *text)
{
    if (strncmp(text, job->names->device, 4) != 0) return false;
    text += 4;
    if (*text == '\0') return true;
    if (*text++ != ':') return false;
    if (text[strspn(text, "0123456789")] == '\0') return true;
    if (strcmp(text, "%d") == 0 || strcmp(text, "%s") == 0 || strcmp(text, "%i") == 0)
        return true;
    const size_t n = strlen(text);
    return n >= 2 && text[0] == '{' && text[n - 1] == '}' &&
           strcspn(text, "}") == n - 1 && strpbrk(text, " \n") == NULL;
}

/* "cpu:gloo,cuda:nccl"; NULL: not of that form, or the target has none (*left). */
static const char *port_backends(usc_port_job *job, const char *text, const char *device,
                                 const char *backend, bool *left)
{
    const usc_port_names *names = job->names;
    const char *at =
        strstr(text, usc_port_format(job, "%s:%s", names->device, names->backend));
    if (at == NULL || (at != text && at[-1] != ',') || (at[9] != '\0' && at[9] != ','))
        return NULL;
    *left = backend == NULL || device == NULL;
    if (*left) return NULL;
    return usc_port_format(job, "%.*s%s:%s%s", (int)(at - text), text, device, backend,
                           at + 9);
}

/* Whether the call around i is of a name that registers for a dispatch key. */
static bool takes_key(usc_port_job *job, size_t i)
{
    static const char *const takers[] = {"impl",        "Library",     "register_kernel",
                                         "fallthrough", "DispatchKey", "fallback",
                                         "py_impl"};
    int depth = 0;
    if (usc_port_at(job, i - 1, "=") && usc_port_at(job, i - 2, "dispatch_key"))
        return true;
    for (size_t at = i; at-- > 0 && i - at < 100;) {
        if (usc_port_at(job, at, ")")) depth++;
        if (usc_port_at(job, at, "(") && depth-- == 0)
            return is_one_of(job, at - 1, takers, sizeof takers / sizeof takers[0]);
    }
    return false;
}

/* The text of a source file, with its ending replaced; NULL: it is none. */
static const char *port_source(usc_port_job *job, const char *text)
{
    const char *ending =
        text[0] == '.' ? usc_port_ending(job->options->target, text) : NULL;
    if (ending == NULL) return usc_port_new_name(job, text);
    return usc_port_renamed(job, "*.cu") || usc_port_renamed(job, "*.cuh") ||
                   usc_port_renamed(job, "*.mu") || usc_port_renamed(job, "*.muh")
               ? ending
               : NULL;
}

/* What a text becomes; NULL: stays, or is left (*left). */
static const char *port_text(usc_port_job *job, size_t i, const char *text, bool *left)
{
    bool known = false, row = false;
    const char *source = port_source(job, text);
    if (source != NULL) return source;
    const char *to = usc_port_to(job, USC_PORT_PY_TEXT, text, strlen(text), &row);
    if (!row && strstr(text, job->names->device) == NULL) return NULL; /* nearly all */
    const char *device =
        usc_port_to(job, USC_PORT_PY_TEXT, job->names->device, 4, &known);
    const char *backend =
        usc_port_to(job, USC_PORT_PY_TEXT, job->names->backend, 4, &known);
    if (is_words(job, i)) return NULL;
    if (strcmp(text, job->names->device) == 0 && is_entry(job, i)) {
        usc_port_leave(job, i - 2, i + 1, "entry",
                       "a device's name, or an entry of data: change it where it is one");
        return NULL;
    }
    if (strcmp(text, "nvcc") == 0 && !usc_port_at(job, i + 1, ":") && !is_entry(job, i))
        return NULL;
    if (is_device(job, text))
        return device != NULL ? usc_port_format(job, "%s%s", device, text + 4) : NULL;
    const char *backends = port_backends(job, text, device, backend, left);
    if (backends != NULL || *left) return backends;
    if (!row) return NULL;
    const bool key =
        (strstr(text, "CUDA") != NULL || strstr(text, "PrivateUse1") != NULL) &&
        strchr(text, '_') == NULL;
    if (key && !takes_key(job, i)) return NULL;
    *left = to == NULL;
    return to;
}

/* Which quotes a string has, and what lies between them; false for bytes. */
static bool open_text(const char *word, size_t *open, size_t *close)
{
    const size_t n = strlen(word);
    *open = strcspn(word, "\"'");
    if (*open >= n || memchr(word, 'b', *open) != NULL ||
        memchr(word, 'B', *open) != NULL)
        return false;
    const char quote = word[*open];
    const size_t quotes =
        n >= *open + 6 && word[*open + 1] == quote && word[*open + 2] == quote ? 3 : 1;
    if (n < *open + 2 * quotes) return false;
    *open += quotes;
    *close = n - quotes;
    return true;
}

void usc_port_python_text(usc_port_job *job, size_t i)
{
    const usc_port_token *t = usc_port_sig(job, i);
    size_t open, close;
    bool left = false;
    if (t->end - t->start > 400) return; /* none of the table is so long */
    const char *word = usc_port_word(job, i);
    if (!open_text(word, &open, &close)) return;
    const char *text = usc_port_copy(job, word + open, (size_t)(close - open));
    const char *to = port_text(job, i, text, &left);
    if (left)
        usc_port_leave(job, i, i, usc_port_format(job, "'%s'", text),
                       "this target has no name for it");
    if (to == NULL || strcmp(to, text) == 0) return;
    usc_port_edit_put(job, t->start + open, t->start + close, to);
    job->wants_device = true;
}

void usc_port_python_middle(usc_port_job *job, size_t i)
{
    bool known = false;
    const usc_port_token *t = usc_port_sig(job, i);
    if (t->end - t->start != 5 || job->text[t->start + 4] != ':' ||
        memcmp(job->text + t->start, job->names->device, 4) != 0 ||
        !usc_port_kind_at(job, i - 1, USC_PORT_OPEN) || !usc_port_at(job, i + 1, "{") ||
        is_part(job, i - 1))
        return;
    const char *device =
        usc_port_to(job, USC_PORT_PY_TEXT, job->names->device, 4, &known);
    if (device == NULL) return;
    usc_port_edit_put(job, t->start, t->start + 4, device);
    job->wants_device = true;
}

/* ---- loading the device */

/* The place behind the statement that begins at i. */
static size_t skip_statement(const usc_port_job *job, size_t i)
{
    while (i < job->n_sig && !usc_port_kind_at(job, i, USC_PORT_NEWLINE))
        i++;
    return i;
}

static bool loads_already(const usc_port_job *job, const char *module)
{
    const size_t n = strcspn(module, ".");
    for (size_t i = 0; i < job->n_sig; i++)
        if ((usc_port_at(job, i, "import") || usc_port_at(job, i, "from")) &&
            usc_port_kind_at(job, i + 1, USC_PORT_NAME) &&
            usc_port_sig(job, i + 1)->end - usc_port_sig(job, i + 1)->start == n &&
            memcmp(job->text + usc_port_sig(job, i + 1)->start, module, n) == 0 &&
            (module[n] == '\0' ||
             (usc_port_at(job, i + 2, ".") && usc_port_at(job, i + 3, module + n + 1))))
            return true;
    return false;
}

void usc_port_load_device(usc_port_job *job)
{
    static const char *const modules[USC_N_PORT_TARGETS] = {"torch_musa", "ulpscope.sim",
                                                            "torch_npu", NULL, NULL};
    const char *module = modules[job->options->target];
    const char *launch = job->options->launch;
    if (module == NULL || loads_already(job, module)) return;
    /* a file that was named loads it whatever it imports itself */
    if (launch != NULL ? !usc_port_glob(launch, job->path) : !job->loads_torch) return;
    size_t i = 0;
    for (;;) {
        size_t at = i;
        while (usc_port_kind_at(job, at, USC_PORT_NEWLINE))
            at++;
        const bool future =
            usc_port_at(job, at, "from") && usc_port_at(job, at + 1, "__future__");
        const bool docstring = usc_port_kind_at(job, at, USC_PORT_TEXT) && i == 0;
        if (!future && !docstring) {
            i = at;
            break;
        }
        i = skip_statement(job, at);
    }
    if (i >= job->n_sig) return;
    size_t start = usc_port_sig(job, i)->start;
    const bool marked = start == 3 && memcmp(job->text, "\xEF\xBB\xBF", 3) == 0;
    if (start > 0 && job->text[start - 1] != '\n' && !marked)
        return; /* behind a ; of one line */
    const char *newline = memchr(job->text, '\r', job->n) != NULL ? "\r\n" : "\n";
    usc_port_edit_put(job, start, start,
                      usc_port_format(job, "import %s%s", module, newline));
}
