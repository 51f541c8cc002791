// SPDX-License-Identifier: Apache-2.0
// Which files a trace consists of, told without opening it: another process may be
// writing it, or somebody's own files may lie in its folder.
#include <ulpscope/trace.h>

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "trace/trace_schema.h"

bool usc_trace_is_file(const char *name)
{
    static const char database[] = "trace.db", shard[] = "tensors-";
    static const char *const after_database[] = {"", "-journal", "-wal", "-shm"},
                             *const after_number[] = {".safetensors",
                                                      ".safetensors.part"};
    if (strncmp(name, database, sizeof database - 1) == 0)
        for (size_t i = 0; i < sizeof after_database / sizeof after_database[0]; i++)
            if (strcmp(name + sizeof database - 1, after_database[i]) == 0) return true;
    if (strncmp(name, shard, sizeof shard - 1) != 0) return false;
    name += sizeof shard - 1;
    const size_t n = strspn(name, "0123456789");
    return n > 0 && (strcmp(name + n, after_number[0]) == 0 ||
                     strcmp(name + n, after_number[1]) == 0);
}

bool usc_trace_is_database(const char *path)
{
    enum { ID_AT = 68, HEAD_SIZE = 72 }; /* SQLite's file format, "The Database Header" */
    static const char begin[] = "SQLite format 3";
    unsigned char head[HEAD_SIZE];
    const int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return false;
    const ssize_t n = read(file, head, sizeof head);
    (void)close(file);
    if (n != HEAD_SIZE || memcmp(head, begin, sizeof begin) != 0) return false;
    uint32_t id = 0;
    for (int i = ID_AT; i < HEAD_SIZE; i++)
        id = id << 8 | head[i];
    return id == (uint32_t)usc_trace_kind.application_id;
}
