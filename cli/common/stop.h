// SPDX-License-Identifier: Apache-2.0
// Ctrl-C and its like, where they only ask to stop.
#ifndef ULPSCOPE_CLI_STOP_H
#define ULPSCOPE_CLI_STOP_H

/** From here on SIGINT and SIGTERM only ask to stop; who was started with one ignored
 * goes on ignoring it. */
void cli_stop_begin(void);

/** The signal that asked, 0: none did. */
int cli_stop_asked(void);

/** They end the program again. */
void cli_stop_end(void);

#endif
