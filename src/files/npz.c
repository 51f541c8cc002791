// SPDX-License-Identifier: Apache-2.0
// .npz: a zip archive of .npy files. The directory at its end says where each lies; sizes
// are held against the file before anything is taken, and the CRC after.
#include <stdlib.h>
#include <string.h>

#include <ulpscope/x/npy.h>

#include "base/little.h"
#include "base/number.h"
#include "files/inflate.h"
#include "files/tensor_set.h"

enum {
    END_SIZE = 22,
    ENTRY_SIZE = 46,
    LOCAL_SIZE = 30,
    COMMENT = 65535,
    MOST_PACKED = 1032, /* what deflate makes of a byte, at most */
    NAME = 512
};

static usc_status corrupt(const char *path, const char *what, usc_error *err)
{
    return usc_error_set(err, USC_E_CORRUPT, -1, "%s: a zip archive, but %s", path, what);
}

/* An entry of the directory. */
typedef struct entry {
    char name[NAME];
    uint64_t packed, size, at;
    unsigned method, crc;
} entry;

/* The three sizes that do not fit into 32 bits stand in a field of their own. */
static bool take_wide(const uint8_t *extra, size_t n, entry *e)
{
    while (n >= 4) {
        const size_t size = (size_t)usc_little(extra + 2, 2);
        if (size > n - 4) return false;
        if (usc_little(extra, 2) == 1) {
            const uint8_t *at = extra + 4, *const end = at + size;
            uint64_t *const fields[] = {&e->size, &e->packed, &e->at};
            for (int i = 0; i < 3; i++) {
                if (*fields[i] != UINT32_MAX) continue;
                if (end - at < 8) return false;
                *fields[i] = usc_little(at, 8);
                at += 8;
            }
            return true;
        }
        extra += 4 + size;
        n -= 4 + size;
    }
    return true;
}

/* The entry at `at`, of `left` bytes; 0: none. Else its size. */
static size_t take_entry(const uint8_t *at, size_t left, entry *e)
{
    if (left < ENTRY_SIZE || usc_little(at, 4) != 0x02014b50) return 0;
    const size_t n_name = (size_t)usc_little(at + 28, 2),
                 n_extra = (size_t)usc_little(at + 30, 2),
                 n_comment = (size_t)usc_little(at + 32, 2),
                 n = ENTRY_SIZE + n_name + n_extra + n_comment;
    if (n > left || n_name >= NAME) return 0;
    *e = (entry){.method = (unsigned)usc_little(at + 10, 2),
                 .crc = (unsigned)usc_little(at + 16, 4),
                 .packed = usc_little(at + 20, 4),
                 .size = usc_little(at + 24, 4),
                 .at = usc_little(at + 42, 4)};
    memcpy(e->name, at + ENTRY_SIZE, n_name);
    return take_wide(at + ENTRY_SIZE + n_name, n_extra, e) ? n : 0;
}

static usc_status take_member(usc_tensor_set *set, const char *path, const char *prefix,
                              const uint8_t *bytes, size_t n, const entry *e,
                              usc_error *err)
{
    char name[2 * NAME];
    if (e->at > n || n - e->at < LOCAL_SIZE || usc_little(bytes + e->at, 4) != 0x04034b50)
        return corrupt(path, "a member does not lie where its directory says", err);
    const uint8_t *local = bytes + e->at;
    const uint64_t first =
        e->at + LOCAL_SIZE + usc_little(local + 26, 2) + usc_little(local + 28, 2);
    if (first > n || e->packed > n - first || e->size / MOST_PACKED > e->packed + 1 ||
        (e->method == 0 && e->size != e->packed))
        return corrupt(path, "a member is larger than the file: was it cut off?", err);
    if (e->method != 0 && e->method != 8)
        return corrupt(path, "a member is packed in a way that NumPy never uses", err);
    uint8_t *unpacked = malloc((size_t)e->size + 1);
    if (unpacked == NULL) return usc_no_memory(path, err);
    usc_status st = USC_OK;
    if (e->method == 0)
        memcpy(unpacked, bytes + first, (size_t)e->size);
    else if (!usc_inflate(bytes + first, (size_t)e->packed, unpacked, (size_t)e->size))
        st = corrupt(path, "a member cannot be unpacked", err);
    if (st == USC_OK && usc_crc32(unpacked, (size_t)e->size) != e->crc)
        st = corrupt(path, "a member is damaged: its CRC is another", err);
    const size_t n_name = strlen(e->name);
    const size_t kept =
        n_name > 4 && strcmp(e->name + n_name - 4, ".npy") == 0 ? n_name - 4 : n_name;
    (void)usc_format(name, sizeof name, "%s%.*s", prefix, (int)kept, e->name);
    if (st == USC_OK) st = usc_take_npy(set, path, name, unpacked, (size_t)e->size, err);
    free(unpacked);
    return st;
}

/* What a zip archive is that is no .npz. */
static usc_status other_archive(const char *path, const char *member, usc_error *err)
{
    const char *name = strrchr(member, '/') != NULL ? strrchr(member, '/') + 1 : member;
    if (strcmp(name, "data.pkl") == 0)
        return usc_error_set(err, USC_E_UNSUPPORTED, -1,
                             "%s: a file of torch.save: it is read by torch, and this "
                             "library has none (ulpscope judge does it)",
                             path);
    return usc_error_set(err, USC_E_UNSUPPORTED, -1,
                         "%s: a zip archive of other things ('%s') than arrays of NumPy",
                         path, member);
}

/* Where the directory begins; NULL: there is none. */
static const uint8_t *find_directory(const uint8_t *bytes, size_t n, size_t *left)
{
    if (n < END_SIZE) return NULL;
    const size_t back = n - END_SIZE < COMMENT ? n - END_SIZE : COMMENT;
    for (size_t i = 0; i <= back; i++) {
        const uint8_t *end = bytes + n - END_SIZE - i;
        if (usc_little(end, 4) != 0x06054b50) continue;
        const uint64_t size = usc_little(end + 12, 4), at = usc_little(end + 16, 4);
        if (size > (uint64_t)(end - bytes) || at > (uint64_t)(end - bytes) - size)
            return NULL;
        *left = (size_t)size;
        return bytes + at;
    }
    return NULL;
}

usc_status usc_take_npz(usc_tensor_set *set, const char *path, const char *prefix,
                        const uint8_t *bytes, size_t n, usc_error *err)
{
    size_t left = 0;
    const uint8_t *at = find_directory(bytes, n, &left);
    usc_status st = USC_OK;
    if (at == NULL) return corrupt(path, "its end is missing: was it cut off?", err);
    while (st == USC_OK && left > 0) {
        entry e;
        const size_t size = take_entry(at, left, &e);
        if (size == 0) return corrupt(path, "its directory is damaged", err);
        const size_t n_name = strlen(e.name);
        if (n_name < 4 || strcmp(e.name + n_name - 4, ".npy") != 0)
            return other_archive(path, e.name, err);
        st = take_member(set, path, prefix, bytes, n, &e, err);
        at += size;
        left -= size;
    }
    return st;
}
