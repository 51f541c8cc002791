// SPDX-License-Identifier: Apache-2.0
// What no name settles in C++: each is listed with what to do, and none is changed.
#include <stdlib.h>
#include <string.h>

#include "port/port_job.h"

/* A word that says it all, wherever it stands as code. A trailing * is any ending. */
typedef struct telling {
    const char *word, *construct, *advice;
} telling;

static const telling tellings[] = {
    {"asm", "inline PTX", "write it in C++ or with the target's own intrinsics"},
    {"__asm__", "inline PTX", "write it in C++ or with the target's own intrinsics"},
    {"__asm", "inline PTX", "write it in C++ or with the target's own intrinsics"},
    {"wmma", "wmma", "use the target's matrix library, or plain multiplications"},
    {"nvcuda", "wmma", "use the target's matrix library, or plain multiplications"},
    {"tex1D", "texture", "read from global memory through a pointer"},
    {"tex1Dfetch", "texture", "read from global memory through a pointer"},
    {"tex2D", "texture", "read from global memory and interpolate by hand"},
    {"tex3D", "texture", "read from global memory and interpolate by hand"},
    {"tex2DLayered", "texture", "read from global memory and interpolate by hand"},
    {"texture", "texture", "read from global memory through a pointer"},
    {"cuda*Texture*", "texture", "read from global memory through a pointer"},
    {"cuda*Surface*", "texture", "write to global memory through a pointer"},
    {"surf2Dread", "texture", "read from global memory through a pointer"},
    {"surf2Dwrite", "texture", "write to global memory through a pointer"},
    {"this_grid", "grid-wide synchronisation", "end the kernel there and launch another"},
    {"grid_group", "grid-wide synchronisation",
     "end the kernel there and launch another"},
    {"__shfl", "shuffle without a mask", "use the _sync form and give its mask"},
    {"__shfl_up", "shuffle without a mask", "use the _sync form and give its mask"},
    {"__shfl_down", "shuffle without a mask", "use the _sync form and give its mask"},
    {"__shfl_xor", "shuffle without a mask", "use the _sync form and give its mask"},
    {"__ballot", "vote without a mask", "use the _sync form and give its mask"},
    {"__any", "vote without a mask", "use the _sync form and give its mask"},
    {"AT_DISPATCH_*HALF*", "half dispatch",
     "see that the target computes in these types, as kernels and as atomics"},
    {"__all", "vote without a mask", "use the _sync form and give its mask"},
};

/* Words of one vendor that begin a branch of the preprocessor. */
static const telling branches[] = {
    {"__CUDA_ARCH__", "architecture",
     "numbers of another vendor's chips: choose the branch"},
    {"CUDA_VERSION", "toolkit version",
     "a version of another toolkit: choose the branch"},
    {"CUDART_VERSION", "toolkit version",
     "a version of another toolkit: choose the branch"},
    {"__CUDACC_VER_MAJOR__", "toolkit version", "another compiler's: choose the branch"},
    {"__HIP_PLATFORM_*", "ROCm branch", "say whether the target follows this branch"},
    {"__HIPCC__", "ROCm branch", "say whether the target follows this branch"},
    {"__HIP_*", "ROCm branch", "say whether the target follows this branch"},
    {"USE_ROCM", "ROCm branch", "say whether the target follows this branch"},
    {"ROCM_VERSION", "ROCm branch", "say whether the target follows this branch"},
    {"*_WITH_HIP", "ROCm branch", "say whether the target follows this branch"},
};

static bool fits(const char *pattern, const char *word)
{
    if (pattern[0] != word[0] && pattern[0] != '*') return false; /* nearly always */
    return strpbrk(pattern, "*") != NULL ? usc_port_glob(pattern, word)
                                         : strcmp(pattern, word) == 0;
}

/* What the words of both tables begin with, in two letters: most names are none of them.
 * Of a first letter those that may follow, by their low five bits. */
#define BIT(c) (UINT32_C(1) << ((c)&31))
static const uint32_t may_tell[256] = {
    ['_'] = BIT('_'),
    ['a'] = BIT('s'),
    ['c'] = BIT('u'),
    ['g'] = BIT('r'),
    ['n'] = BIT('v'),
    ['s'] = BIT('u'),
    ['t'] = BIT('e') | BIT('h'),
    ['w'] = BIT('m'),
    ['A'] = BIT('T'),
    ['C'] = BIT('U'),
    ['R'] = BIT('O'),
    ['U'] = BIT('S'),
};

static bool may_tell_of(const usc_port_job *job, const usc_port_token *t)
{
    const unsigned char *name = (const unsigned char *)job->text + t->start;
    return t->spliced ||
           (t->end - t->start > 1 && (may_tell[name[0]] & BIT(name[1])) != 0) ||
           (t->directive && job->text[t->end - 1] == 'P'); /* *_WITH_HIP */
}

static bool relates(const usc_port_job *job, size_t i)
{
    static const char *const signs[] = {"<", ">", "=", "/", "!"};
    for (size_t k = 0; k < sizeof signs / sizeof signs[0]; k++)
        if (usc_port_at(job, i, signs[k]) &&
            (k != 4 || usc_port_at(job, i + 1, "="))) /* != alone */
            return true;
    return false;
}

static bool has_no_case(const char *in, const char *word)
{
    const size_t n = strlen(word);
    for (; *in != '\0'; in++)
        if ((*in | 32) == (word[0] | 32) && strncasecmp(in, word, n) == 0) return true;
    return false;
}

/* The statement, or preprocessor line, around place i: [*first, *last). */
static void statement_of(const usc_port_job *job, size_t i, size_t *first, size_t *last)
{
    const bool directive = usc_port_sig(job, i)->directive;
    *first = i;
    *last = i + 1;
    while (*first > 0 && i - *first < 60 &&
           usc_port_sig(job, *first - 1)->directive == directive &&
           !usc_port_at(job, *first - 1, ";") && !usc_port_at(job, *first - 1, "{") &&
           !usc_port_at(job, *first - 1, "}") &&
           !(directive && usc_port_at(job, *first, "#")))
        --*first;
    while (*last < job->n_sig && *last - i < 60 &&
           usc_port_sig(job, *last)->directive == directive &&
           !usc_port_at(job, *last, ";") && !usc_port_at(job, *last, "{") &&
           !usc_port_at(job, *last, "}") && !(directive && usc_port_at(job, *last, "#")))
        ++*last;
}

/* Whether a name in [first, last) has one of the words in it. */
static bool speaks_of(usc_port_job *job, size_t first, size_t last,
                      const char *const *words, size_t n)
{
    for (size_t i = first; i < last; i++) {
        if (!usc_port_kind_at(job, i, USC_PORT_NAME)) continue;
        const char *word = usc_port_word(job, i);
        for (size_t k = 0; k < n; k++)
            if (has_no_case(word, words[k])) return true;
    }
    return false;
}

static bool of_warps(usc_port_job *job, size_t first, size_t last)
{
    static const char *const words[] = {"warp",       "lane",       "__shfl",  "__ballot",
                                        "__any_sync", "__all_sync", "__match_"};
    return speaks_of(job, first, last, words, sizeof words / sizeof words[0]);
}

/* 1024 threads, all that a block has at most there. */
static void look_at_block(usc_port_job *job, size_t i)
{
    static const char *const words[] = {"thread", "block", "__launch_bounds__"};
    size_t first, last;
    statement_of(job, i, &first, &last);
    if (speaks_of(job, first, last, words, 3))
        usc_port_leave(job, first, last - 1, "block size",
                       "a block may have fewer threads at the target: ask the device");
}

static bool is_shift(const usc_port_job *job, size_t i)
{
    return (usc_port_at(job, i - 1, ">") && usc_port_at(job, i - 2, ">")) ||
           (usc_port_at(job, i - 1, "<") && usc_port_at(job, i - 2, "<"));
}

static void look_at_number(usc_port_job *job, size_t i)
{
    if (strchr("01345", job->text[usc_port_sig(job, i)->start]) == NULL) return;
    const char *word = usc_port_word(job, i);
    char *end;
    const unsigned long long value = strtoull(word, &end, 0);
    if (strspn(end, "uUlL") != strlen(end)) return;
    size_t first, last;
    const bool mask = value == 0xffffffffULL;
    const bool width = value == 32 || (value == 31 && word[0] != '0') || value == 0x1f ||
                       (value == 5 && is_shift(job, i));
    if (value == 1024) look_at_block(job, i);
    if (!mask && !width) return;
    statement_of(job, i, &first, &last);
    if (mask) {
        bool wide = of_warps(job, first, last);
        for (size_t k = first; k < last && !wide; k++)
            wide = usc_port_kind_at(job, k, USC_PORT_NAME) &&
                   has_no_case(usc_port_word(job, k), "mask");
        if (wide)
            usc_port_leave(job, first, last - 1, "32-bit mask",
                           "a warp may have more threads: take a mask of its width");
    } else if (of_warps(job, first, last)) {
        usc_port_leave(job, first, last - 1, "warp width",
                       "a warp may have another width: write warpSize");
    }
}

/* Whether a word is in one of the tables: most are asked once in a file. */
static bool tells(usc_port_term *term)
{
    enum { TELLS = 0x80 };
    for (size_t k = 0; k < sizeof tellings / sizeof tellings[0] && !term->asked_tellings;
         k++)
        if (fits(tellings[k].word, term->text)) term->of |= TELLS;
    for (size_t k = 0; k < sizeof branches / sizeof branches[0] && !term->asked_tellings;
         k++)
        if (fits(branches[k].word, term->text)) term->of |= TELLS;
    term->asked_tellings = true;
    return (term->of & TELLS) != 0;
}

/* Whether the word at i is meant as the table has it, and no member or own name. */
static bool is_meant(const usc_port_job *job, size_t i, const char *word)
{
    return !usc_port_at(job, i - 1, ".") && !usc_port_at(job, i - 1, "->") &&
           (strncmp(word, "tex", 3) != 0 || usc_port_at(job, i + 1, "<") ||
            usc_port_at(job, i + 1, "("));
}

static void look_at_word(usc_port_job *job, size_t i)
{
    const usc_port_token *t = usc_port_sig(job, i);
    if (!may_tell_of(job, t)) return;
    usc_port_term *term = usc_port_term_at(job, i);
    const char *word = term->text;
    if (!tells(term)) return;
    for (size_t k = 0; k < sizeof tellings / sizeof tellings[0]; k++)
        if (fits(tellings[k].word, word) && is_meant(job, i, word))
            usc_port_leave(job, i, i + 4, tellings[k].construct, tellings[k].advice);
    for (size_t k = 0; k < sizeof branches / sizeof branches[0]; k++) {
        if (branches[k].word[0] == '*' && !t->directive) continue;
        if (!fits(branches[k].word, word)) continue;
        /* whether it is a device at all is one name; a number is another vendor's */
        const bool number = relates(job, i + 1) || relates(job, i - 1) ||
                            (usc_port_at(job, i + 1, ")") && relates(job, i + 2));
        const bool other = strcmp(branches[k].construct, "ROCm branch") == 0;
        if ((other && t->directive) || number)
            usc_port_leave(job, i, other ? i : i + 3, branches[k].construct,
                           branches[k].advice);
    }
}

/* Where the target takes no kernels, each is work. */
static void look_at_kernel(usc_port_job *job, size_t i)
{
    size_t at = i + 1;
    while (at < job->n_sig && at - i < 40 && !usc_port_at(job, at + 1, "(") &&
           !usc_port_at(job, at, ";"))
        at++;
    if (usc_port_at(job, at, "__launch_bounds__"))
        while (at < job->n_sig && !usc_port_at(job, at, ")"))
            at++;
    while (at < job->n_sig && at - i < 80 && !usc_port_at(job, at + 1, "("))
        at++;
    usc_port_leave(job, at, at, "kernel",
                   "kernels of this target are another language: write it anew");
}

void usc_port_cxx_left(usc_port_job *job)
{
    const bool kernels =
        job->options->target == USC_PORT_MUSA || job->options->target == USC_PORT_SIM;
    for (size_t i = 0; i < job->n_sig; i++) {
        const usc_port_token *t = &job->tokens.token[job->sig[i]];
        if (t->kind == USC_PORT_NUMBER) look_at_number(job, i);
        if (t->kind != USC_PORT_NAME) continue;
        look_at_word(job, i);
        if (!kernels && usc_port_at(job, i, "__global__") && !t->directive)
            look_at_kernel(job, i);
    }
}

enum { MOST_BRANCHES = 64 };

/* Branches of the preprocessor that ask for a CUDA device's number: never taken there. */
typedef struct dead_branches {
    bool dead[MOST_BRANCHES];
    size_t n;
} dead_branches;

static bool is_directive(const usc_port_job *job, size_t i, const char *word)
{
    return i > 0 && usc_port_at(job, i, word) && usc_port_sig(job, i)->directive &&
           usc_port_at(job, i - 1, "#");
}

bool usc_port_only_for_devices(const usc_port_job *job, size_t i)
{
    const bool paren = i > 0 && usc_port_at(job, i - 1, "(");
    const size_t before = i - 1 - paren;
    size_t at = i + 1 + paren;
    if (i < 2 + (size_t)paren || !usc_port_sig(job, i)->directive ||
        !(is_directive(job, before, "ifdef") ||
          (usc_port_at(job, before, "defined") && is_directive(job, before - 1, "if"))) ||
        (at < job->n_sig && usc_port_sig(job, at)->directive &&
         !usc_port_at(job, at, "#")))
        return false;
    bool device = false;
    for (size_t depth = 1; at < job->n_sig; at++) {
        if (is_directive(job, at, "if") || is_directive(job, at, "ifdef") ||
            is_directive(job, at, "ifndef"))
            depth++;
        else if (depth == 1 &&
                 (is_directive(job, at, "else") || is_directive(job, at, "elif")))
            return false;
        else if (is_directive(job, at, "endif") && --depth == 0)
            return device;
        device |=
            usc_port_at(job, at, "__device__") || usc_port_at(job, at, "__global__");
    }
    return false;
}

static bool asks_for_architecture(const usc_port_job *job, size_t i)
{
    bool asks = false;
    for (; i < job->n_sig && usc_port_sig(job, i)->directive; i++) {
        if (usc_port_at(job, i, "#")) break;
        if (usc_port_at(job, i, "__CUDA_ARCH__") && usc_port_only_for_devices(job, i))
            return false;
        asks = asks || usc_port_at(job, i, "__CUDA_ARCH__");
        if (usc_port_at(job, i, "!") || usc_port_at(job, i, "|") ||
            usc_port_at(job, i, "<"))
            return false;
    }
    return asks;
}

/* The directive whose word stands at i. */
static void follow_branch(const usc_port_job *job, dead_branches *b, size_t i)
{
    bool *now = b->n > 0 && b->n <= MOST_BRANCHES ? &b->dead[b->n - 1] : NULL;
    if (usc_port_at(job, i, "if") || usc_port_at(job, i, "ifdef") ||
        usc_port_at(job, i, "ifndef")) {
        const bool dead =
            !usc_port_at(job, i, "ifndef") && asks_for_architecture(job, i + 1);
        if (b->n < MOST_BRANCHES) b->dead[b->n] = dead;
        b->n++;
    } else if (usc_port_at(job, i, "endif") && b->n > 0) {
        b->n--;
    } else if (now != NULL && usc_port_at(job, i, "else")) {
        *now = false;
    } else if (now != NULL && usc_port_at(job, i, "elif")) {
        *now = asks_for_architecture(job, i + 1);
    }
}

static bool is_dead(const dead_branches *b)
{
    for (size_t k = 0; k < b->n && k < MOST_BRANCHES; k++)
        if (b->dead[k]) return true;
    return false;
}

static void refuse_word(usc_port_job *job, size_t i)
{
    static const char *const lacks[] = {"inline PTX", "wmma", "texture",
                                        "grid-wide synchronisation"};
    const char *word = usc_port_word(job, i);
    for (size_t k = 0; k < sizeof tellings / sizeof tellings[0]; k++)
        for (size_t n = 0; n < sizeof lacks / sizeof lacks[0]; n++)
            if (strcmp(tellings[k].construct, lacks[n]) == 0 &&
                fits(tellings[k].word, word) && is_meant(job, i, word))
                usc_port_leave(job, i, i + 4, lacks[n], tellings[k].advice);
}

void usc_port_cxx_refused(usc_port_job *job)
{
    dead_branches open = {0};
    for (size_t i = 0; i < job->n_sig; i++) {
        if (usc_port_at(job, i, "#") && usc_port_sig(job, i)->directive)
            follow_branch(job, &open, i + 1);
        if (usc_port_kind_at(job, i, USC_PORT_NAME) && !is_dead(&open))
            refuse_word(job, i);
    }
}
