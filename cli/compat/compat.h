// SPDX-License-Identifier: Apache-2.0
// What `ulpscope compat` was told, and its parts.
#ifndef ULPSCOPE_CLI_COMPAT_H
#define ULPSCOPE_CLI_COMPAT_H

#include <getopt.h>

#include "cli.h"

typedef struct compat_arguments {
    const char *name; /* of the package to install */
    const char *forward, *backward, *out, *csv;
    const char *device_type, *via, *ops, *error_data;
    int device_id;
    bool save_errors, compiled, strict;
    cli_report report; /* of it: what is allowed */
} compat_arguments;

/* Each runs a part and gives the exit code. */
int compat_install(const compat_arguments *a);
int compat_run_ut(const compat_arguments *a);
int compat_run_overflow(const compat_arguments *a);

/* A folder below another one, whose path goes into `path`. False: told. */
bool compat_make(const char *folder, const char *below, char path[PATH_MAX]);

/* A file of a text, in which the first %s is `word` where there is one. False: told. */
bool compat_write(const char *folder, const char *name, const char *text,
                  const char *word);

/* The shim of torch_musa. False: told. */
bool compat_write_musa(const char *out);

#endif
