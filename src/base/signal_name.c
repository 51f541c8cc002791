// SPDX-License-Identifier: Apache-2.0
// Names of signals. The C library's own table came with glibc 2.32; this serves older
// ones.
#include <signal.h>
#include <ulpscope/status.h>

static const char *const names[] = {
    [SIGABRT] = "ABRT",     [SIGALRM] = "ALRM",     [SIGBUS] = "BUS",
    [SIGCHLD] = "CHLD",     [SIGCONT] = "CONT",     [SIGFPE] = "FPE",
    [SIGHUP] = "HUP",       [SIGILL] = "ILL",       [SIGINT] = "INT",
    [SIGIO] = "IO",         [SIGKILL] = "KILL",     [SIGPIPE] = "PIPE",
    [SIGPROF] = "PROF",     [SIGPWR] = "PWR",       [SIGQUIT] = "QUIT",
    [SIGSEGV] = "SEGV",     [SIGSTKFLT] = "STKFLT", [SIGSTOP] = "STOP",
    [SIGSYS] = "SYS",       [SIGTERM] = "TERM",     [SIGTRAP] = "TRAP",
    [SIGTSTP] = "TSTP",     [SIGTTIN] = "TTIN",     [SIGTTOU] = "TTOU",
    [SIGURG] = "URG",       [SIGUSR1] = "USR1",     [SIGUSR2] = "USR2",
    [SIGVTALRM] = "VTALRM", [SIGWINCH] = "WINCH",   [SIGXCPU] = "XCPU",
    [SIGXFSZ] = "XFSZ"};

const char *usc_signal_name(int number)
{
    const int n = (int)(sizeof names / sizeof names[0]);
    return number > 0 && number < n ? names[number] : NULL;
}
