// SPDX-License-Identifier: Apache-2.0
// A page that needs nothing else: the JSON of a command between the two halves of a page
// that shows it.
#ifndef ULPSCOPE_CLI_HTML_H
#define ULPSCOPE_CLI_HTML_H

#include <stdio.h>

/** Writes `head`, all of `json` (a temporary file, which stays open) and `script` to a
 * file. The exit code: 0 where that was done. */
int html_write(const char *file, const char *head, FILE *json, const char *script);

#endif
