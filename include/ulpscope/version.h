// SPDX-License-Identifier: Apache-2.0
// The version of the library: these three lines are where it is written down. CMake, the
// wheel and the program read it here.
// NULL: where a contract says so; `err` may always be.
#ifndef ULPSCOPE_VERSION_H
#define ULPSCOPE_VERSION_H

#include <ulpscope/api.h>

USC_BEGIN_DECLS

#define USC_VERSION_MAJOR 0
#define USC_VERSION_MINOR 2
#define USC_VERSION_PATCH 0

#define USC_VERSION_TEXT_OF(major, minor, patch) #major "." #minor "." #patch
#define USC_VERSION_TEXT(major, minor, patch) USC_VERSION_TEXT_OF(major, minor, patch)

/* Of the headers that a program was compiled with: "0.2.0". */
#define USC_VERSION                                                                      \
    USC_VERSION_TEXT(USC_VERSION_MAJOR, USC_VERSION_MINOR, USC_VERSION_PATCH)

/**
 * Version of the library that runs, e.g. "0.2.0". While the major number is 0, another
 * minor number may change the API; SONAME carries both.
 *
 * Memory:  static, never freed.
 * Threads: safe.
 */
USC_API const char *usc_version(void);

USC_END_DECLS
#endif
