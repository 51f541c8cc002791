// SPDX-License-Identifier: Apache-2.0
// Signals that ask to stop.
#include "common/stop.h"

#include <signal.h>
#include <stddef.h>

static volatile sig_atomic_t asked;

static void ask(int number)
{
    asked = number;
}

static void set_handlers(void (*handler)(int))
{
    static const int numbers[] = {SIGINT, SIGTERM};
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        struct sigaction before, now = {.sa_handler = handler};
        (void)sigemptyset(&now.sa_mask);
        if (sigaction(numbers[i], NULL, &before) == 0 && before.sa_handler != SIG_IGN)
            (void)sigaction(numbers[i], &now, NULL);
    }
}

void cli_stop_begin(void)
{
    set_handlers(ask);
}

int cli_stop_asked(void)
{
    return asked;
}

void cli_stop_end(void)
{
    set_handlers(SIG_DFL);
}
