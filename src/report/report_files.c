// SPDX-License-Identifier: Apache-2.0
// Writes the files of OUT, each under a temporary name first.
#include "report/report_model.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

typedef usc_status (*renderer)(usc_report *, const usc_sink *, usc_error *);

static usc_status io_error(usc_error *err, const char *path)
{
    return usc_error_set(err, USC_E_IO, -1, "cannot write %s: %s", path, strerror(errno));
}

static FILE *open_temporary(const char *path)
{
    (void)unlink(path); /* left by a process of the same id that was killed */
    const int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0) return NULL;
    FILE *stream = fdopen(fd, "w");
    if (stream == NULL) (void)close(fd);
    return stream;
}

static usc_status write_file(usc_report *r, const char *name, renderer render,
                             usc_error *err)
{
    usc_status st = USC_OK;
    FILE *stream = NULL;
    const size_t size = strlen(r->folder) + strlen(name) + 32;
    char *path = usc_report_take(r, size), *temporary = usc_report_take(r, size);
    if (path == NULL || temporary == NULL)
        return usc_error_set(err, USC_E_NOMEM, -1, "report of %s: out of memory",
                             r->folder);
    (void)snprintf(path, size, "%s/%s", r->folder, name);
    (void)snprintf(temporary, size, "%s/.%s.%ld", r->folder, name, (long)getpid());

    stream = open_temporary(temporary);
    if (stream == NULL) return io_error(err, path);
    const usc_sink sink = usc_sink_stream(stream);
    st = render(r, &sink, err);
    if (ferror(stream)) st = io_error(err, path); /* the sink does not know the name */
    if (fclose(stream) != 0 && st == USC_OK) st = io_error(err, path);
    if (st == USC_OK && rename(temporary, path) != 0) st = io_error(err, path);
    if (st != USC_OK) (void)unlink(temporary);
    return st;
}

usc_status usc_report_write_files(usc_report *report, usc_error *err)
{
    static const struct {
        const char *name;
        renderer render;
    } files[] = {{"result.csv", usc_report_csv},
                 {"details.csv", usc_report_details},
                 {"result.json", usc_report_json},
                 {"report.html", usc_report_html}};
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        const usc_status st = write_file(report, files[i].name, files[i].render, err);
        if (st != USC_OK) return st;
    }
    return USC_OK;
}
