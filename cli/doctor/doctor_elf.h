// SPDX-License-Identifier: Apache-2.0
// Libraries as the dynamic loader sees them: what one needs, where that lies, which symbols
// it has and lacks. Nothing is loaded or run. Neighbour: doctor_symbols.c.
#ifndef ULPSCOPE_CLI_DOCTOR_ELF_H
#define ULPSCOPE_CLI_DOCTOR_ELF_H

#include <elf.h>
#include <stdbool.h>
#include <stddef.h>

#include <ulpscope/status.h>

typedef struct doctor_elf {
    char *path;
    const char *bytes;
    size_t size;
    const Elf64_Sym *symbol;
    size_t n_symbols;
    const char *names;
    size_t names_size;
    const Elf64_Dyn *dynamic;
    size_t n_dynamic;
} doctor_elf;

/** Opens a library of this machine's kind. Errors: USC_E_IO; USC_E_CORRUPT (none: the text
 * says what it is instead). */
USC_NODISCARD usc_status doctor_elf_open(const char *path, doctor_elf *out,
                                         usc_error *err);

/** Closes; a zeroed one is allowed. */
void doctor_elf_close(doctor_elf *e);

/** The i-th entry of a kind (DT_NEEDED, DT_RUNPATH) as text; NULL beyond the last. */
const char *doctor_elf_text(const doctor_elf *e, Elf64_Sxword tag, size_t i);

/** The name of a symbol that others may use, or, with `lacks`, that it must get from
 * others; NULL: it is neither. */
const char *doctor_elf_symbol(const doctor_elf *e, size_t i, bool lacks);

/** Where the loader would find what `e` needs; false: nowhere. `more` is a folder that is
 * looked into as well; "" for none. */
bool doctor_elf_find(const doctor_elf *e, const char *needed, const char *more, char *out,
                     size_t size);

/** The i-th folder that libraries lie in by the system's rules; NULL beyond the last. */
const char *doctor_elf_folder(size_t i);

#endif
