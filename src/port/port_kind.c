// SPDX-License-Identifier: Apache-2.0
// What a path is called: the language of a file, the names of targets and languages.
#include <string.h>

#include "port/port_tree.h"

/* A name, or what it begins or ends with, and its bytes: asked of each word of a build
 * file. */
typedef struct part {
    const char *text;
    uint8_t n;
} part;

#define PART(text)                                                                       \
    {                                                                                    \
        text, sizeof text - 1                                                            \
    }

static const part cxx_endings[] = {PART(".cu"),  PART(".cuh"), PART(".c"),   PART(".cc"),
                                   PART(".cpp"), PART(".cxx"), PART(".h"),   PART(".hh"),
                                   PART(".hpp"), PART(".hxx"), PART(".inl"), PART(".inc"),
                                   PART(".ipp"), PART(".tpp")};
static const part build_names[] = {PART("CMakeLists.txt"), PART("Makefile"),
                                   PART("pyproject.toml"), PART("setup.cfg"),
                                   PART("meson.build"),    PART("MANIFEST.in")};
static const part build_endings[] = {PART(".cmake"), PART(".mk"),  PART(".sh"),
                                     PART(".yaml"),  PART(".yml"), PART(".bat")};

static bool is_one_of(const char *text, size_t n, const part *parts, size_t n_parts)
{
    for (size_t i = 0; i < n_parts; i++)
        if (parts[i].n == n && memcmp(parts[i].text, text, n) == 0) return true;
    return false;
}

#define IS_ONE_OF(text, n, parts)                                                        \
    is_one_of(text, n, parts, sizeof parts / sizeof parts[0])

usc_port_language usc_port_language_of(const char *path, usc_port_target target)
{
    const char *last = strrchr(path, '/'), *dot;
    last = last != NULL ? last + 1 : path;
    dot = strrchr(last, '.');
    const size_t n = strlen(last), m = dot != NULL ? n - (size_t)(dot - last) : 0;
    if (IS_ONE_OF(last, n, build_names) || strncmp(last, "Dockerfile", 10) == 0)
        return USC_PORT_BUILD;
    if (dot == NULL) return USC_PORT_OTHER;
    if (IS_ONE_OF(dot, m, build_endings)) return USC_PORT_BUILD;
    if (strcmp(dot, ".py") == 0 || strcmp(dot, ".pyi") == 0 || strcmp(dot, ".ipynb") == 0)
        return USC_PORT_PYTHON;
    /* files in the target's own language are not touched */
    if (strcmp(dot, ".mu") == 0 || strcmp(dot, ".muh") == 0)
        return target == USC_PORT_CUDA ? USC_PORT_CXX : USC_PORT_OTHER;
    if (target == USC_PORT_CUDA && strncmp(dot, ".cu", 3) == 0) return USC_PORT_OTHER;
    return IS_ONE_OF(dot, m, cxx_endings) ? USC_PORT_CXX : USC_PORT_OTHER;
}

const char *usc_port_target_text(usc_port_target target)
{
    static const char *const texts[] = {
#define TEXT(id, name) name,
        USC_PORT_TARGET_LIST(TEXT)
#undef TEXT
    };
    return (unsigned)target < USC_N_PORT_TARGETS ? texts[target] : "unknown";
}

const char *usc_port_language_text(usc_port_language language)
{
    static const char *const texts[] = {
#define TEXT(id, name) name,
        USC_PORT_LANGUAGE_LIST(TEXT)
#undef TEXT
    };
    return (unsigned)language < USC_N_PORT_LANGUAGES ? texts[language] : "unknown";
}
