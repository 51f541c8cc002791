// SPDX-License-Identifier: Apache-2.0
// What a path is called: the language of a file, the names of targets and languages.
#include <string.h>

#include "port/port_tree.h"

static const char *const cxx_endings[] = {".cu",  ".cuh", ".c",   ".cc",  ".cpp",
                                          ".cxx", ".h",   ".hh",  ".hpp", ".hxx",
                                          ".inl", ".inc", ".ipp", ".tpp"};
static const char *const build_names[] = {
    "CMakeLists.txt", "*.cmake",     "Makefile",    "*.mk",           "*.sh",
    "*.yaml",         "*.yml",       "Dockerfile*", "pyproject.toml", "setup.cfg",
    "meson.build",    "MANIFEST.in", "*.bat"};

/* Whether a name is one of the list: with a star before an ending or behind a beginning. */
static bool is_called(const char *name, const char *pattern)
{
    const size_t n = strlen(name), m = strlen(pattern);
    if (pattern[0] == '*')
        return n + 1 >= m && strcmp(name + n + 1 - m, pattern + 1) == 0;
    return pattern[m - 1] == '*' ? strncmp(name, pattern, m - 1) == 0
                                 : strcmp(name, pattern) == 0;
}

usc_port_language usc_port_language_of(const char *path, usc_port_target target)
{
    const char *last = strrchr(path, '/'), *dot;
    last = last != NULL ? last + 1 : path;
    for (size_t i = 0; i < sizeof build_names / sizeof build_names[0]; i++)
        if (is_called(last, build_names[i])) return USC_PORT_BUILD;
    dot = strrchr(last, '.');
    if (dot == NULL) return USC_PORT_OTHER;
    if (strcmp(dot, ".py") == 0 || strcmp(dot, ".pyi") == 0 || strcmp(dot, ".ipynb") == 0)
        return USC_PORT_PYTHON;
    /* files in the target's own language are not touched */
    if (strcmp(dot, ".mu") == 0 || strcmp(dot, ".muh") == 0)
        return target == USC_PORT_CUDA ? USC_PORT_CXX : USC_PORT_OTHER;
    if (target == USC_PORT_CUDA && strncmp(dot, ".cu", 3) == 0) return USC_PORT_OTHER;
    for (size_t i = 0; i < sizeof cxx_endings / sizeof cxx_endings[0]; i++)
        if (strcmp(dot, cxx_endings[i]) == 0) return USC_PORT_CXX;
    return USC_PORT_OTHER;
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
