// SPDX-License-Identifier: Apache-2.0
// The rules of C++: names, methods, dispatch keys, devices in texts, headers.
#include <string.h>

#include "port/port_job.h"

#define UNKNOWN "give its name in --map, or write this place anew"

enum { MOST_WORDS = 12 };

/* A name with its namespaces: a::b::c. */
typedef struct chain {
    size_t place[MOST_WORDS]; /* of each word */
    const char *word[MOST_WORDS];
    size_t n;
} chain;

static void take_chain(usc_port_job *job, size_t i, chain *c)
{
    c->n = 0;
    while (usc_port_kind_at(job, i, USC_PORT_NAME) && c->n < MOST_WORDS) {
        c->place[c->n] = i;
        c->word[c->n++] = usc_port_word(job, i);
        if (!usc_port_at(job, i + 1, "::")) break;
        i += 2;
    }
}

/* Words [first, last) joined by ::; "" where that is too long to be in the table. */
static const char *join(const chain *c, size_t first, size_t last, char room[256])
{
    size_t n = 0;
    for (size_t i = first; i < last; i++) {
        const size_t size = strlen(c->word[i]);
        if (n + size + 3 > 256) return "";
        if (i > first) memcpy(room + n, "::", 2);
        n += i > first ? 2 : 0;
        memcpy(room + n, c->word[i], size);
        n += size;
    }
    room[n] = '\0';
    return room;
}

/* Puts the words of `to` in place of words [first, last): one by one where they are as
 * many, so that what stands between them stays. */
static void put_words(usc_port_job *job, const chain *c, size_t first, size_t last,
                      const char *to)
{
    size_t words = 1;
    for (const char *at = strstr(to, "::"); at != NULL; at = strstr(at + 2, "::"))
        words++;
    if (words != last - first) {
        usc_port_edit_put(job, usc_port_sig(job, c->place[first])->start,
                          usc_port_sig(job, c->place[last - 1])->end, to);
        return;
    }
    for (size_t i = first; i < last; i++) {
        const char *end = strstr(to, "::");
        const size_t n = end != NULL ? (size_t)(end - to) : strlen(to);
        if (strlen(c->word[i]) != n || strncmp(c->word[i], to, n) != 0)
            usc_port_replace(job, c->place[i], usc_port_copy(job, to, n));
        to += n + (end != NULL ? 2 : 0);
    }
}

static bool begins(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

/* Whether a word looks like one of CUDA's libraries: cudaX, cublasX, but not cudart. */
static bool looks_like_api(const usc_port_job *job, const char *word)
{
    const bool back = job->options->target == USC_PORT_CUDA;
    if (strchr(back ? "mAC" : "cnAC", word[0]) == NULL) return false;
    if (strstr(word, "Texture") != NULL || strstr(word, "Surface") != NULL)
        return false; /* listed as what they are */
    static const char *const begin[] = {
        "cuda",    "cublas", "cudnn",  "cufft", "curand", "cusparse", "cusolver", "nvrtc",
        "cutlass", "musa",   "mublas", "mudnn", "mufft",  "murand",   "musparse"};
    for (size_t i = 0; i < sizeof begin / sizeof begin[0]; i++) {
        if (word[0] != begin[i][0]) continue;
        const size_t n = strlen(begin[i]);
        if (strncmp(word, begin[i], n) == 0 && word[n] >= 'A' && word[n] <= 'Z')
            return true;
    }
    return back ? begins(word, "C10_MUSA_") || begins(word, "AT_MUSA_")
                : begins(word, "C10_CUDA_") || begins(word, "AT_CUDA_");
}

/* Whether the file declares the name anywhere. */
static bool own_somewhere(usc_port_job *job, const char *word)
{
    for (size_t i = 1; i < job->n_sig && !job->own_known; i++)
        if (usc_port_kind_at(job, i, USC_PORT_NAME) && usc_port_declares(job, i))
            (void)usc_keys_put(&job->own, usc_key_of(usc_port_word(job, i)), 1);
    job->own_known = true;
    job->failed |= job->own.failed;
    return usc_keys_find(&job->own, usc_key_of(word)) != NULL;
}

/* Whether a function is declared at i: `void* cudaMalloc(`. */
static bool declares(const usc_port_job *job, size_t i, const char *word)
{
    static const char *const types[] = {"void", "int",  "char",   "float", "double",
                                        "bool", "auto", "size_t", "long"};
    const size_t n = strlen(word);
    if (!usc_port_at(job, i + 1, "(") || (n > 2 && strcmp(word + n - 2, "_t") == 0))
        return false;
    const bool pointed = usc_port_at(job, i - 1, "*") || usc_port_at(job, i - 1, "&");
    for (size_t k = 0; k < sizeof types / sizeof types[0]; k++)
        if (usc_port_at(job, pointed ? i - 2 : i - 1, types[k])) return true;
    return false;
}

/* The longest row from word `first` on; the number of words that it took. */
static size_t take_row(usc_port_job *job, const chain *c, size_t first)
{
    char room[256];
    for (size_t last = c->n; last > first; last--) {
        const char *name = join(c, first, last, room);
        bool known = false;
        const char *to = usc_port_to(job, USC_PORT_CXX_NAME, name, strlen(name), &known);
        if (!known) continue;
        if (to != NULL)
            put_words(job, c, first, last, to);
        else
            usc_port_leave(job, c->place[first], c->place[last - 1],
                           usc_port_format(job, "'%s'", name),
                           usc_port_advice(job, USC_PORT_CXX_NAME, name,
                                           "this target has no name for it: write this "
                                           "place anew"));
        return last - first;
    }
    return 0;
}

/* A name that looks like the API's and is in no row: left, where the file does not
 * declare it. */
static void look_at_unknown(usc_port_job *job, size_t i, const char *word)
{
    if (looks_like_api(job, word) && !own_somewhere(job, word))
        usc_port_leave(job, i, i, usc_port_format(job, "'%s'", word), UNKNOWN);
}

/* Namespaces of torch: what stands behind them may be in the table alone. */
static bool is_open(const char *word)
{
    for (size_t i = 0; usc_port_open_names[i] != NULL; i++)
        if (strcmp(word, usc_port_open_names[i]) == 0) return true;
    return false;
}

static void port_chain(usc_port_job *job, const chain *c)
{
    for (size_t at = 0; at < c->n;) {
        const size_t taken = take_row(job, c, at);
        if (taken == 0 && at + 1 == c->n) look_at_unknown(job, c->place[at], c->word[at]);
        if (taken == 0 && !is_open(c->word[at])) return; /* somebody's own namespace */
        at += taken > 0 ? taken : 1;
    }
}

static void port_method(usc_port_job *job, size_t i)
{
    bool known = false;
    const char *word = usc_port_word(job, i);
    const char *to = usc_port_to(job, USC_PORT_CXX_CALL, word, strlen(word), &known);
    if (!known || !usc_port_at(job, i + 1, "(")) return;
    const char *open = to != NULL ? strchr(to, '(') : NULL;
    if (to == NULL) {
        usc_port_leave(job, i, i, usc_port_format(job, "'%s'", word), UNKNOWN);
    } else if (open == NULL) {
        usc_port_replace(job, i, to);
    } else if (usc_port_at(job, i + 2, ")")) { /* x.cuda() is x.to(DEVICE) */
        usc_port_replace(job, i, usc_port_copy(job, to, (size_t)(open - to)));
        const size_t inside = usc_port_sig(job, i + 1)->end;
        usc_port_edit_put(job, inside, inside, open + 1);
    }
}

/* Whether the macro whose argument stands at i takes dispatch keys: TORCH_LIBRARY_IMPL
 * and what is called like it. */
static bool in_macro(usc_port_job *job, size_t i)
{
    const char *word = usc_port_called_around(job, i, 400);
    if (word == NULL) return false;
    for (const char *c = word; *c != '\0'; c++)
        if (*c >= 'a' && *c <= 'z') return false;
    return strstr(word, "IMPL") != NULL || strstr(word, "REGISTER") != NULL ||
           strstr(word, "DISPATCH") != NULL || strstr(word, "LIBRARY") != NULL;
}

static bool port_key(usc_port_job *job, size_t i)
{
    const bool first = usc_port_at(job, i - 1, ",") || usc_port_at(job, i - 1, "(");
    const bool last = usc_port_at(job, i + 1, ",") || usc_port_at(job, i + 1, ")");
    bool known = false;
    const char *word = usc_port_word(job, i);
    const char *to = usc_port_to(job, USC_PORT_KEY, word, strlen(word), &known);
    if (!first || !last || to == NULL || !in_macro(job, i)) return false;
    usc_port_replace(job, i, to);
    return true;
}

/* "cuda" and "cuda:0" where a device is made or compared. */
static void port_text(usc_port_job *job, size_t i)
{
    static const char *const makers[] = {"Device", "device", "to", "autocast",
                                         "type_str"};
    const char *word = usc_port_word(job, i), *device = job->names->device;
    if (word[0] != '"' || !begins(word + 1, device) || (word[5] != '"' && word[5] != ':'))
        return;
    if (word[5] == ':' && strspn(word + 6, "0123456789") != strlen(word + 6) - 1) return;
    bool known = false;
    const char *to = usc_port_to(job, USC_PORT_PY_TEXT, device, 4, &known);
    if (to == NULL) return;
    for (size_t k = 0; k < sizeof makers / sizeof makers[0]; k++)
        if ((usc_port_at(job, i - 1, "(") || usc_port_at(job, i - 1, "{")) &&
            (usc_port_at(job, i - 2, makers[k]) ||
             (usc_port_kind_at(job, i - 2, USC_PORT_NAME) &&
              usc_port_at(job, i - 3, makers[k]))))
            usc_port_replace(job, i, usc_port_format(job, "\"%s%s", to, word + 5));
}

static void port_include(usc_port_job *job, size_t i)
{
    const char *header = usc_port_word(job, i);
    const size_t n = strlen(header);
    if (n < 3) return;
    const char open = header[0], close = header[n - 1];
    const char *path = usc_port_format(job, "%.*s", (int)(n - 2), header + 1);
    bool known = false;
    const char *to = usc_port_to(job, USC_PORT_INCLUDE, path, strlen(path), &known);
    const char *own = usc_port_new_name(job, path);
    if (own != NULL)
        to = own;
    else if (known && to == NULL)
        usc_port_leave(job, i, i, "header",
                       usc_port_advice(job, USC_PORT_INCLUDE, path,
                                       "this target has no such header: take it out with "
                                       "what it gives"));
    else if (!known &&
             (begins(path, "ATen/cuda/") || begins(path, "c10/cuda/") ||
              begins(path, "torch/csrc/cuda/") || begins(path, "THC/") ||
              begins(path, "cudnn") || begins(path, "cutlass") || begins(path, "nvtx") ||
              begins(path, "mma.h") || begins(path, "ATen/native/cuda/")))
        usc_port_leave(job, i, i, "header",
                       "not in the table: give its path in --map, or take it out");
    if (to == NULL || strcmp(to, path) == 0) return;
    usc_port_replace(job, i,
                     to[0] == '"' || to[0] == '<'
                         ? to
                         : usc_port_format(job, "%c%s%c", open, to, close));
}

/* What a word may be, so that most are looked at no further. */
enum { NEVER = 0, IN_CHAIN = 1, METHOD = 2 };

/* Whether a word may be any of it: no for nearly all of them, and soon. */
static bool may_be_any(const usc_port_job *job, size_t i)
{
    const usc_port_token *t = usc_port_sig(job, i);
    const char *name = job->text + t->start;
    const size_t n = t->end - t->start;
    if (t->spliced || usc_port_names_may(job->names, name, n)) return true;
    const char c = name[0], next = n > 1 ? name[1] : '\0'; /* of looks_like_api */
    return ((c == 'c' || c == 'm') && next == 'u') || (c == 'n' && next == 'v') ||
           (c == 'C' && next == '1') || (c == 'A' && next == 'T');
}

static unsigned kinds_of(usc_port_job *job, size_t i)
{
    if (!may_be_any(job, i)) return NEVER;
    usc_port_term *term = usc_port_term_at(job, i);
    if (term->asked_names) return term->of;
    const size_t n = strlen(term->text);
    bool first = false, method = false, key = false;
    (void)usc_port_to(job, USC_PORT_FIRST, term->text, n, &first);
    (void)usc_port_to(job, USC_PORT_CXX_CALL, term->text, n, &method);
    (void)usc_port_to(job, USC_PORT_KEY, term->text, n, &key);
    first |= key || is_open(term->text) || looks_like_api(job, term->text);
    term->of |= (uint8_t)((first ? IN_CHAIN : NEVER) | (method ? METHOD : NEVER));
    term->asked_names = true;
    return term->of;
}

/* The name at i; the place of its last word. */
static size_t port_name(usc_port_job *job, size_t i)
{
    const unsigned kinds = kinds_of(job, i);
    if (kinds == NEVER) return i;
    if (usc_port_at(job, i - 1, ".") || usc_port_at(job, i - 1, "->")) {
        if ((kinds & METHOD) != 0) port_method(job, i);
        return i;
    }
    if ((kinds & IN_CHAIN) == 0 ||
        (usc_port_at(job, i - 1, "::") && usc_port_kind_at(job, i - 2, USC_PORT_NAME)))
        return i;
    chain c;
    take_chain(job, i, &c);
    if (c.n > 1 || !(port_key(job, i) || declares(job, i, c.word[0])))
        port_chain(job, &c);
    return c.place[c.n - 1];
}

void usc_port_cxx(usc_port_job *job)
{
    for (size_t i = 0; i < job->n_sig; i++) {
        const uint8_t kind = job->tokens.token[job->sig[i]].kind;
        if (kind == USC_PORT_NAME)
            i = port_name(job, i);
        else if (kind == USC_PORT_HEADER)
            port_include(job, i);
        else if (kind == USC_PORT_TEXT)
            port_text(job, i);
    }
    if (job->options->target != USC_PORT_CUDA) usc_port_cxx_left(job);
}
