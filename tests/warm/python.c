// SPDX-License-Identifier: Apache-2.0
// Stands for a Python interpreter in tests: hands its words, its descriptors and its
// place to tests/warm/server.py, which forks a process that has torch loaded already,
// passes signals on to that one and ends as it ended. What the server declines is run by
// the interpreter itself.
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST_FDS = 64 };

/* A descriptor that is open in whoever gets it closes when that one closes it. */
static int n_open(int *numbers)
{
    int n = 0;
    for (int fd = 0; fd < 4 * MOST_FDS && n < MOST_FDS; fd++)
        if (dup2(fd, fd) == fd) numbers[n++] = fd;
    return n;
}

static int server(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (path == NULL || strlen(path) >= sizeof address.sun_path) return -1;
    memcpy(address.sun_path, path, strlen(path));
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof address) == 0)
        return fd;
    if (fd >= 0) (void)close(fd);
    return -1;
}

/* The server reads the words, the environment and the place of this process from /proc.
 */
static pid_t hand_over(int to, const int *numbers, int n)
{
    struct iovec words = {.iov_base = (void *)(size_t)numbers,
                          .iov_len = (size_t)n * sizeof(int)};
    _Alignas(struct cmsghdr) char room[CMSG_SPACE(MOST_FDS * sizeof(int))] = {0};
    struct msghdr message = {.msg_iov = &words, .msg_iovlen = 1};
    if (n == 0) return 0;
    message.msg_control = room;
    message.msg_controllen = CMSG_SPACE((size_t)n * sizeof(int));
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN((size_t)n * sizeof(int));
    memcpy(CMSG_DATA(head), numbers, (size_t)n * sizeof(int));
    int pid = 0;
    if (sendmsg(to, &message, MSG_NOSIGNAL) < 0) return 0;
    return recv(to, &pid, sizeof pid, MSG_WAITALL) == sizeof pid ? pid : 0;
}

static void end_as(int status)
{
    if (!WIFSIGNALED(status)) _exit(WEXITSTATUS(status));
    const struct rlimit none = {0};
    sigset_t all;
    (void)setrlimit(RLIMIT_CORE, &none);
    (void)signal(WTERMSIG(status), SIG_DFL);
    (void)raise(WTERMSIG(status));
    (void)sigfillset(&all);
    (void)sigprocmask(SIG_UNBLOCK, &all, NULL);
    _exit(255);
}

int main(int argc, char **argv)
{
    (void)argc;
    static char interpreter[] = USC_PYTHON;
    int numbers[MOST_FDS], status = 0;
    const int n = n_open(numbers);
    int to = server(getenv("ULPSCOPE_WARM"));
    sigset_t all, before;
    (void)sigfillset(&all);
    (void)sigdelset(&all, SIGCHLD);
    (void)sigdelset(&all, SIGPIPE);
    (void)sigprocmask(SIG_BLOCK, &all, &before);
    pid_t child = to < 0 ? 0 : hand_over(to, numbers, n);
    if (child < 0) { // another server has the settings of this process
        char other[108];
        (void)close(to);
        (void)snprintf(other, sizeof other, "%s.%d", getenv("ULPSCOPE_WARM"), -child);
        to = server(other);
        child = to < 0 ? 0 : hand_over(to, numbers, n);
    }
    if (child <= 0) {
        const char *cold = getenv("ULPSCOPE_COLD");
        (void)sigprocmask(SIG_SETMASK, &before, NULL);
        argv[0] = cold != NULL ? (char *)(size_t)cold : interpreter;
        (void)execv(argv[0], argv);
        (void)fprintf(stderr, "warm python: there is no %s\n", argv[0]);
        return 127;
    }
    for (int i = 0; i < n; i++)
        (void)close(numbers[i]);
    struct pollfd waits[2] = {{.fd = to, .events = POLLIN},
                              {.fd = signalfd(-1, &all, SFD_CLOEXEC), .events = POLLIN}};
    while (poll(waits, 2, -1) < 0 || waits[0].revents == 0) {
        struct signalfd_siginfo told;
        if (waits[1].revents == 0) continue;
        if (read(waits[1].fd, &told, sizeof told) == sizeof told)
            (void)kill(child, (int)told.ssi_signo);
        waits[1].revents = 0;
    }
    if (recv(to, &status, sizeof status, MSG_WAITALL) != sizeof status) return 127;
    end_as(status);
}
