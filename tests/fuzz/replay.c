// SPDX-License-Identifier: Apache-2.0
// Runs a fuzz target over files: `fuzz_NAME FOLDER`. What libFuzzer does without a
// fuzzer.
#include <dirent.h>

#include "fuzz.h"

static void replay(const char *path)
{
    FILE *f = fopen(path, "rb");
    FUZZ_REQUIRE(f != NULL && fseek(f, 0, SEEK_END) == 0);
    const size_t size = (size_t)ftell(f);
    rewind(f);
    /* Of exactly that size, so that a sanitizer sees what reads behind it. */
    uint8_t *data = malloc(size > 0 ? size : 1);
    FUZZ_REQUIRE(data != NULL && fread(data, 1, size, f) == size);
    (void)fclose(f);
    fuzz_taken = true;
    (void)LLVMFuzzerTestOneInput(data, size);
    const char *name = strrchr(path, '/');
    if (name != NULL && strcmp(name, "/sound") == 0 && !fuzz_taken) {
        puts("a sound input was refused: bring the corpus up to date");
        exit(1);
    }
    free(data);
}

int main(int argc, char **argv)
{
    DIR *folder = argc == 2 ? opendir(argv[1]) : NULL;
    char path[1024];
    int n = 0;
    if (folder == NULL) {
        fputs("usage: fuzz_NAME FOLDER\n", stderr);
        return 2;
    }
    for (const struct dirent *e = readdir(folder); e != NULL; e = readdir(folder)) {
        if (e->d_name[0] == '.') continue;
        snprintf(path, sizeof path, "%s/%s", argv[1], e->d_name);
        printf("%s\n", path);
        (void)fflush(stdout);
        replay(path);
        n++;
    }
    (void)closedir(folder);
    printf("%d inputs\n", n);
    return n > 0 ? 0 : 1;
}
