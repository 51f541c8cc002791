// SPDX-License-Identifier: Apache-2.0
// What the system tells of itself: clock, folders and their room, limits, threads,
// locale. See doctor.h.
#include "doctor/doctor.h"

#include <errno.h>
#include <langinfo.h>
#include <locale.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include "common/hooks.h"

enum {
    FIRST_YEAR = 2025,
    CLOCKS_APART = 60,    /* seconds between the clock and that of a file system */
    FEWEST_FILES = 1024,  /* workers, shards, sockets of ranks */
    LEAST_ROOM = 1 << 30, /* bytes: the size of one shard of a trace */
    MIB = 1 << 20
};

/* ---- the clock ---- */

static void look_at_clock(doctor *d)
{
    struct timespec before, after;
    const struct timespec pause = {.tv_nsec = 2000000};
    const time_t now = time(NULL);
    struct tm utc;
    (void)gmtime_r(&now, &utc);
    (void)clock_gettime(CLOCK_MONOTONIC, &before);
    (void)nanosleep(&pause, NULL);
    (void)clock_gettime(CLOCK_MONOTONIC, &after);
    if (utc.tm_year + 1900 < FIRST_YEAR) {
        doctor_finding *f =
            doctor_wrong(d, "clock", "the system's clock says %d", utc.tm_year + 1900);
        doctor_mend(f, "timedatectl set-ntp true");
    } else if (after.tv_sec < before.tv_sec ||
               (after.tv_sec == before.tv_sec && after.tv_nsec <= before.tv_nsec)) {
        doctor_finding *f =
            doctor_wrong(d, "clock",
                         "the clock that only goes forward stands still: limits of time "
                         "would not hold");
        doctor_mend(f, "restart the machine or the container");
    } else {
        doctor_fine(d, "clock", "%04d-%02d-%02d %02d:%02d UTC", utc.tm_year + 1900,
                    utc.tm_mon + 1, utc.tm_mday, utc.tm_hour, utc.tm_min);
    }
}

/* ---- one folder ---- */

/* Writes a page into a fresh file of the folder; errno and what failed, NULL for none. */
static const char *try_to_write(const char *folder, long *apart)
{
    char path[PATH_MAX];
    static const char page[4096];
    struct stat info = {0};
    const char *what = NULL;
    if ((size_t)snprintf(path, sizeof path, "%s/ulpscope-doctor-XXXXXX", folder) >=
        sizeof path) {
        errno = ENAMETOOLONG;
        return "a file cannot be made";
    }
    const int fd = mkstemp(path);
    if (fd < 0) return "a file cannot be made";
    for (ssize_t left = 64 * (ssize_t)sizeof page, n; what == NULL && left > 0;
         left -= n) {
        n = write(fd, page, sizeof page); /* a short one is told by the next */
        if (n < 0) what = "a file of 256 KiB cannot be written";
    }
    const int why = errno;
    if (what == NULL && fstat(fd, &info) == 0)
        *apart = (long)(info.st_mtime - time(NULL));
    (void)close(fd);
    (void)unlink(path);
    errno = why;
    return what;
}

static void mend_folder(doctor_finding *f, const char *folder, const char *variable)
{
    if (errno == ENOSPC || errno == EDQUOT)
        doctor_mend(f, "du -xhd1 %s | sort -h", folder);
    else if (errno == EFBIG)
        doctor_mend(f, "ulimit -f unlimited");
    else if (variable != NULL)
        doctor_mend(f, "export %s=FOLDER, one that can be written", variable);
    else
        doctor_mend(f, "chmod u+w %s, or go to a folder that can be written", folder);
}

/* Capture leaves 5 % of a disk free; below a shard more than that it soon stops. */
static void look_at_room(doctor *d, const char *check, const char *folder,
                         const char *variable)
{
    struct statvfs disk;
    if (statvfs(folder, &disk) != 0) return;
    const double size = (double)disk.f_blocks * (double)disk.f_frsize;
    const double left = (double)disk.f_bavail * (double)disk.f_frsize;
    const double kept = size / 20 < left / 2 ? size / 20 : left / 2;
    if (left - kept >= LEAST_ROOM && (disk.f_files == 0 || disk.f_favail > 1000)) {
        doctor_fine(d, check, "%s: can be written, room for %.0f GiB", folder,
                    (left - kept) / 1024 / MIB);
        return;
    }
    doctor_finding *f =
        disk.f_files > 0 && disk.f_favail <= 1000
            ? doctor_wrong(d, check, "%s: %lld more files fit on its disk", folder,
                           (long long)disk.f_favail)
            : doctor_wrong(
                  d, check,
                  "%s: room for %.0f MiB, for capture leaves 5 %% of a disk free", folder,
                  (left - kept) / MIB);
    if (variable != NULL)
        doctor_mend(f, "du -xhd1 %s | sort -h, or export %s=FOLDER of another disk",
                    folder, variable);
    else
        doctor_mend(f, "du -xhd1 %s | sort -h, or go to another disk", folder);
}

static void look_at_folder(doctor *d, const char *check, const char *folder,
                           const char *variable)
{
    long apart = 0;
    const char *what = try_to_write(folder, &apart);
    if (what != NULL) {
        const int why = errno;
        doctor_finding *f =
            doctor_wrong(d, check, "%s: %s: %s", folder, what, strerror(why));
        errno = why;
        mend_folder(f, folder, variable);
        return;
    }
    look_at_room(d, check, folder, variable);
    if (labs(apart) > CLOCKS_APART) {
        doctor_finding *f =
            doctor_wrong(d, "clock", "files in %s are dated %ld s %s the system's clock",
                         folder, labs(apart), apart > 0 ? "after" : "before");
        doctor_mend(f, "timedatectl set-ntp true, here and on the file server");
    }
}

/* The folder itself, or the nearest above it that is there: who makes it needs that. */
static void look_at_cache(doctor *d)
{
    char path[PATH_MAX];
    struct stat info;
    const char *cache = getenv("ULPSCOPE_CACHE"), *home = getenv("HOME");
    if (cache != NULL && cache[0] == '~' && home != NULL)
        (void)snprintf(path, sizeof path, "%s%s", home, cache + 1);
    else if (cache != NULL && cache[0] != '\0')
        (void)snprintf(path, sizeof path, "%s", cache);
    else
        (void)snprintf(path, sizeof path, "%s/.cache/ulpscope", home != NULL ? home : "");
    while (stat(path, &info) != 0) {
        char *slash = strrchr(path, '/');
        if (slash == NULL || (errno != ENOENT && errno != ENOTDIR)) break;
        *slash = '\0';
        if (slash == path) (void)strcpy(path, "/");
    }
    if (path[0] == '\0') (void)strcpy(path, ".");
    if (stat(path, &info) == 0 && !S_ISDIR(info.st_mode)) {
        doctor_finding *f =
            doctor_wrong(d, "cache", "%s is a file, where glue needs a folder", path);
        doctor_mend(f, "rm %s, or export ULPSCOPE_CACHE=FOLDER", path);
        return;
    }
    struct statvfs disk;
    if (statvfs(path, &disk) == 0 && (disk.f_flag & ST_NOEXEC) != 0) {
        doctor_finding *f = doctor_wrong(
            d, "cache", "%s is mounted noexec: no glue can be loaded from there", path);
        doctor_mend(f, "export ULPSCOPE_CACHE=FOLDER, one from which programs run");
        return;
    }
    look_at_folder(d, "cache", path, "ULPSCOPE_CACHE");
}

static void look_at_folders(doctor *d)
{
    char here[PATH_MAX];
    const char *temporary = getenv("TMPDIR");
    if (getcwd(here, sizeof here) == NULL) {
        doctor_finding *f =
            doctor_wrong(d, "folder", "the working folder is gone: %s", strerror(errno));
        doctor_mend(f, "cd to a folder that is there");
    } else {
        look_at_folder(d, "folder", here, NULL);
    }
    look_at_folder(d, "temporary",
                   temporary != NULL && temporary[0] != '\0' ? temporary : "/tmp",
                   "TMPDIR");
    look_at_cache(d);
}

/* ---- limits ---- */

static void look_at_limits(doctor *d)
{
    struct rlimit files, size, core, memory;
    const int n_before = d->n;
    (void)getrlimit(RLIMIT_NOFILE, &files);
    (void)getrlimit(RLIMIT_FSIZE, &size);
    (void)getrlimit(RLIMIT_CORE, &core);
    (void)getrlimit(RLIMIT_AS, &memory);
    if (files.rlim_cur < FEWEST_FILES)
        doctor_mend(doctor_wrong(d, "limits", "a process may open %llu files only",
                                 (unsigned long long)files.rlim_cur),
                    files.rlim_max >= FEWEST_FILES ? "ulimit -n %d"
                                                   : "ulimit -Hn %d, as root",
                    FEWEST_FILES);
    if (size.rlim_cur != RLIM_INFINITY && size.rlim_cur <= LEAST_ROOM)
        doctor_mend(doctor_wrong(d, "limits",
                                 "a file may have %llu KiB only: a shard of a trace has "
                                 "up to 1 GiB",
                                 (unsigned long long)size.rlim_cur / 1024),
                    "ulimit -f unlimited");
    if (memory.rlim_cur != RLIM_INFINITY && memory.rlim_cur < 16LL * LEAST_ROOM)
        doctor_mend(doctor_wrong(d, "limits",
                                 "a process may have %llu MiB of address space only: "
                                 "drivers map more than that",
                                 (unsigned long long)memory.rlim_cur / MIB),
                    "ulimit -v unlimited");
    if (d->n == n_before)
        doctor_fine(d, "limits", "%lld open files, files of any size%s",
                    (long long)files.rlim_cur,
                    core.rlim_cur == 0 ? "; a crash leaves no core dump (ulimit -c "
                                         "unlimited would have it)"
                                       : "");
}

/* ---- threads ---- */

/* Cores that the control group leaves of those that there are; 0: no limit. */
static double quota(void)
{
    double most = 0, period = 0;
    char text[64] = "";
    FILE *file = fopen("/sys/fs/cgroup/cpu.max", "r");
    if (file == NULL) return 0;
    const bool read = fgets(text, sizeof text, file) != NULL;
    (void)fclose(file);
    char *end;
    most = strtod(text, &end);
    period = strtod(end, NULL);
    return read && most > 0 && period > 0 ? most / period : 0;
}

static void look_at_threads(doctor *d)
{
    const int cores = cli_cores(), threads = cli_threads();
    const double allowed = quota();
    const char *world = getenv("LOCAL_WORLD_SIZE");
    const int ranks = world != NULL && atoi(world) > 0 ? atoi(world) : 1;
    const double usable = allowed > 0 && allowed < cores ? allowed : cores;
    const int wanted = threads > 0 ? threads : allowed > 0 || ranks > 1 ? cores : 0;
    int share = (int)usable / ranks;
    if (share < 1) share = 1;
    if (wanted * ranks > usable + 1) {
        doctor_finding *f = doctor_wrong(
            d, "threads", "%d threads%s for %.3g cores: they take them from each other",
            wanted * ranks, threads > 0 ? " (OMP_NUM_THREADS)" : "", usable);
        doctor_mend(f, "export OMP_NUM_THREADS=%d", share);
        return;
    }
    if (threads > 0)
        doctor_fine(d, "threads", "%.3g cores, OMP_NUM_THREADS is %d", usable, threads);
    else
        doctor_fine(d, "threads", "%.3g cores", usable);
}

/* ---- the locale ---- */

static const char *locale_named(void)
{
    static const char *const names[] = {"LC_ALL", "LC_CTYPE", "LANG"};
    for (size_t i = 0; i < 3; i++) {
        const char *value = getenv(names[i]);
        if (value != NULL && value[0] != '\0') return value;
    }
    return "";
}

/* Python takes UTF-8 where no locale is named, or C. */
static void look_at_locale(doctor *d)
{
    const char *name = locale_named();
    const bool plain =
        name[0] == '\0' || strcmp(name, "C") == 0 || strcmp(name, "POSIX") == 0;
    const locale_t there = newlocale(LC_CTYPE_MASK, "", (locale_t)0);
    if (there == (locale_t)0) {
        doctor_finding *f =
            doctor_wrong(d, "locale", "the locale '%s' is not installed here", name);
        doctor_mend(f, "export LC_ALL=C.UTF-8");
        return;
    }
    char codes[64];
    (void)snprintf(codes, sizeof codes, "%s", nl_langinfo_l(CODESET, there));
    freelocale(there);
    if (plain || strcmp(codes, "UTF-8") == 0) {
        doctor_fine(d, "locale", "%s", plain ? "C, which Python reads as UTF-8" : name);
        return;
    }
    doctor_finding *f = doctor_wrong(d, "locale",
                                     "'%s' has text in %s: names of files and modules "
                                     "may be told wrongly",
                                     name, codes);
    doctor_mend(f, "export LC_ALL=C.UTF-8");
}

void doctor_machine(doctor *d)
{
    look_at_clock(d);
    look_at_folders(d);
    look_at_limits(d);
    look_at_threads(d);
    look_at_locale(d);
}
