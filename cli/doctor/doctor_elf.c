// SPDX-License-Identifier: Apache-2.0
// ELF files of 64 bits in the machine's own order of bytes, by their sections. See
// doctor_elf.h.
#include "doctor/doctor_elf.h"

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- what a file holds */

/* `n` things of `size` bytes at an offset; NULL where they are not all in the file. */
static const void *things(const doctor_elf *e, uint64_t offset, uint64_t n, size_t size)
{
    if (offset > e->size || n > (e->size - offset) / size || offset % 8 != 0) return NULL;
    return e->bytes + offset;
}

static usc_status read_sections(doctor_elf *e, usc_error *err)
{
    const Elf64_Ehdr *head = (const void *)e->bytes;
    const Elf64_Shdr *section =
        things(e, head->e_shoff, head->e_shnum, sizeof(Elf64_Shdr));
    for (size_t i = 0; section != NULL && i < head->e_shnum; i++) {
        const Elf64_Shdr *s = &section[i];
        if (s->sh_type == SHT_DYNAMIC) {
            e->dynamic = things(e, s->sh_offset, s->sh_size / sizeof(Elf64_Dyn),
                                sizeof(Elf64_Dyn));
            e->n_dynamic = e->dynamic != NULL ? s->sh_size / sizeof(Elf64_Dyn) : 0;
        }
        if (s->sh_type != SHT_DYNSYM || s->sh_link >= head->e_shnum) continue;
        const Elf64_Shdr *names = &section[s->sh_link];
        e->n_symbols = s->sh_size / sizeof(Elf64_Sym);
        e->symbol = things(e, s->sh_offset, e->n_symbols, sizeof(Elf64_Sym));
        if (names->sh_offset > e->size || names->sh_size > e->size - names->sh_offset ||
            names->sh_size == 0)
            continue;
        e->names = e->bytes + names->sh_offset;
        e->names_size = names->sh_size;
    }
    if (e->symbol != NULL && e->names != NULL && e->names[e->names_size - 1] == '\0')
        return USC_OK;
    return usc_error_set(err, USC_E_CORRUPT, -1,
                         "%s: no whole library: it has no table of symbols", e->path);
}

static usc_status read_head(doctor_elf *e, usc_error *err)
{
    const Elf64_Ehdr *head = (const void *)e->bytes;
    const uint16_t one = 1;
    const unsigned char order =
        *(const unsigned char *)&one == 1 ? ELFDATA2LSB : ELFDATA2MSB;
    if (e->size < sizeof *head || memcmp(e->bytes, ELFMAG, SELFMAG) != 0)
        return usc_error_set(err, USC_E_CORRUPT, -1,
                             "%s: no library: %s (%zu bytes); install it again", e->path,
                             e->size < sizeof *head ? "it is too short"
                                                    : "it does not begin as one does",
                             e->size);
    if (head->e_ident[EI_CLASS] != ELFCLASS64 || head->e_ident[EI_DATA] != order)
        return usc_error_set(err, USC_E_CORRUPT, -1,
                             "%s: a library of another kind of machine", e->path);
    if (head->e_type != ET_DYN && head->e_type != ET_EXEC)
        return usc_error_set(err, USC_E_CORRUPT, -1,
                             "%s: no library: an object that is not linked yet", e->path);
    return read_sections(e, err);
}

usc_status doctor_elf_open(const char *path, doctor_elf *out, usc_error *err)
{
    struct stat about;
    *out = (doctor_elf){0};
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &about) != 0 || !S_ISREG(about.st_mode)) {
        const int why = errno;
        if (fd >= 0) (void)close(fd);
        return usc_error_set(err, USC_E_IO, -1, "%s: %s", path,
                             fd < 0 ? strerror(why) : "no file");
    }
    out->size = (size_t)about.st_size;
    out->path = strdup(path);
    void *bytes =
        out->size > 0 ? mmap(NULL, out->size, PROT_READ, MAP_PRIVATE, fd, 0) : NULL;
    (void)close(fd);
    usc_status st = USC_OK;
    if (bytes == MAP_FAILED || out->path == NULL)
        st = usc_error_set(err, USC_E_IO, -1, "%s: %s", path, strerror(errno));
    else
        out->bytes = bytes;
    if (st == USC_OK) st = read_head(out, err);
    if (st != USC_OK) doctor_elf_close(out);
    return st;
}

void doctor_elf_close(doctor_elf *e)
{
    if (e->bytes != NULL) (void)munmap((void *)(uintptr_t)e->bytes, e->size);
    free(e->path);
    *e = (doctor_elf){0};
}

const char *doctor_elf_text(const doctor_elf *e, Elf64_Sxword tag, size_t i)
{
    for (size_t k = 0; k < e->n_dynamic && e->dynamic[k].d_tag != DT_NULL; k++)
        if (e->dynamic[k].d_tag == tag && i-- == 0)
            return e->dynamic[k].d_un.d_val < e->names_size
                       ? e->names + e->dynamic[k].d_un.d_val
                       : NULL;
    return NULL;
}

const char *doctor_elf_symbol(const doctor_elf *e, size_t i, bool lacks)
{
    const Elf64_Sym *s = &e->symbol[i];
    const unsigned bind = ELF64_ST_BIND(s->st_info),
                   seen = ELF64_ST_VISIBILITY(s->st_other);
    if (s->st_name == 0 || s->st_name >= e->names_size) return NULL;
    if (lacks)
        return s->st_shndx == SHN_UNDEF && bind == STB_GLOBAL ? e->names + s->st_name
                                                              : NULL;
    if (s->st_shndx == SHN_UNDEF || bind == STB_LOCAL || seen == STV_HIDDEN) return NULL;
    return e->names + s->st_name;
}

/* ---- where libraries lie */

static bool there(const char *folder, size_t n, const char *name, char *out, size_t size)
{
    if (n == 0) return false;
    const int length = snprintf(out, size, "%.*s/%s", (int)n, folder, name);
    return length > 0 && (size_t)length < size && access(out, R_OK) == 0;
}

/* In a list of folders, divided by colons; $ORIGIN is where the library lies. */
static bool in_list(const doctor_elf *e, const char *list, const char *name, char *out,
                    size_t size)
{
    char own[PATH_MAX], folder[PATH_MAX];
    if (list == NULL) return false;
    (void)snprintf(own, sizeof own, "%s", e->path);
    char *slash = strrchr(own, '/');
    if (slash != NULL)
        *slash = '\0';
    else
        (void)snprintf(own, sizeof own, ".");
    for (size_t n; *list != '\0'; list += n + (list[n] == ':')) {
        n = strcspn(list, ":");
        const size_t skip = strncmp(list, "$ORIGIN", 7) == 0     ? 7
                            : strncmp(list, "${ORIGIN}", 9) == 0 ? 9
                                                                 : 0;
        const int length = snprintf(folder, sizeof folder, "%s%.*s", skip > 0 ? own : "",
                                    (int)(n - (skip < n ? skip : n)), list + skip);
        if (length > 0 && (size_t)length < sizeof folder &&
            there(folder, (size_t)length, name, out, size))
            return true;
    }
    return false;
}

static char folders[64][256];
static size_t n_folders;

static void add_folder(const char *folder)
{
    if (n_folders < 64 && strlen(folder) < sizeof folders[0])
        (void)snprintf(folders[n_folders++], sizeof folders[0], "%s", folder);
}

/* What the loader is configured to look into, then what it does by itself. */
static void read_folders(void)
{
    static const char *const own[] = {"/lib64", "/usr/lib64", "/lib", "/usr/lib"};
    glob_t found;
    char line[256];
    if (glob("/etc/ld.so.conf.d/*.conf", 0, NULL, &found) == 0) {
        for (size_t i = 0; i < found.gl_pathc; i++) {
            FILE *file = fopen(found.gl_pathv[i], "re");
            while (file != NULL && fgets(line, sizeof line, file) != NULL) {
                line[strcspn(line, " \t\r\n#")] = '\0';
                if (line[0] == '/') add_folder(line);
            }
            if (file != NULL) (void)fclose(file);
        }
        globfree(&found);
    }
    for (size_t i = 0; i < sizeof own / sizeof own[0]; i++)
        add_folder(own[i]);
}

const char *doctor_elf_folder(size_t i)
{
    if (n_folders == 0) read_folders();
    return i < n_folders ? folders[i] : NULL;
}

bool doctor_elf_find(const doctor_elf *e, const char *needed, const char *more, char *out,
                     size_t size)
{
    if (strchr(needed, '/') != NULL) {
        (void)snprintf(out, size, "%s", needed);
        return access(out, R_OK) == 0;
    }
    if (in_list(e, doctor_elf_text(e, DT_RPATH, 0), needed, out, size) ||
        in_list(e, getenv("LD_LIBRARY_PATH"), needed, out, size) ||
        in_list(e, doctor_elf_text(e, DT_RUNPATH, 0), needed, out, size) ||
        there(more, strlen(more), needed, out, size))
        return true;
    for (size_t i = 0; doctor_elf_folder(i) != NULL; i++)
        if (there(doctor_elf_folder(i), strlen(doctor_elf_folder(i)), needed, out, size))
            return true;
    return false;
}
