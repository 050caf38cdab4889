/* Try the library on mutated model files, tokeniser tables and inputs, under AddressSanitizer.
 *
 *     fuzz SEED FIRST CASES FILE...
 *
 * FILEs are what native/fuzz/seeds.py writes: *.dragoman and *.table. A case that reads or writes out of bounds, has
 * undefined behaviour, leaks memory or takes more than two seconds of processor time ends the program with its number:
 * `fuzz SEED NUMBER 1 FILE...` runs that case alone.
 */
#include "fuzz.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

enum { MOST_FILES = 256, MOST_SECONDS = 2 };

void __sanitizer_set_death_callback(void (*call)(void));
#define SEEN __attribute__((visibility("default"))) /* by the sanitizers' own library */
SEEN const char *__asan_default_options(void);
SEEN const char *__ubsan_default_options(void);
/* heap.c counts what is not freed; an abort shows where it was, and which case. */
const char *__asan_default_options(void) { return "detect_leaks=0:handle_abort=1:allocator_may_return_null=1"; }
const char *__ubsan_default_options(void) { return "print_stacktrace=1:abort_on_error=1"; }

static unsigned long long seed;
static long now;

static void say_case(void) { fprintf(stderr, "the case that failed: seed %llu, number %ld\n", seed, now); }

static void too_slow(int signal) { /* the sanitizer shows where it was */
    (void)signal;
    fprintf(stderr, "a case took more than %d seconds\n", MOST_SECONDS);
    abort();
}

static struct bytes read_file(const char *name) {
    FILE *file = fopen(name, "rb");
    if (!file || fseek(file, 0, SEEK_END)) {
        fprintf(stderr, "%s cannot be read; write the files with native/fuzz/seeds.py\n", name);
        exit(2);
    }
    long size = ftell(file);
    struct bytes bytes = {heap_exact((size_t)size), (size_t)size};
    rewind(file);
    if (fread(bytes.at, 1, bytes.size, file) != bytes.size) exit(2);
    fclose(file);
    return bytes;
}

static void run_case(const struct bytes *models, int model_count, const struct bytes *tables, int table_count, struct counts *counts) {
    struct random random = {seed * 0x9e3779b97f4a7c15u ^ (uint64_t)now << 20};
    draw(&random);
    struct itimerval limit = {.it_value = {MOST_SECONDS, 0}};
    setitimer(ITIMER_VIRTUAL, &limit, NULL);
    int is_table = !model_count || (table_count && one_in(&random, 4));
    const struct bytes *files = is_table ? tables : models;
    int count = is_table ? table_count : model_count;
    struct bytes chosen = files[below(&random, (size_t)count)];
    struct bytes file = (is_table ? mutate_table : mutate_model)(&random, chosen, files, count);
    heap_watch(one_in(&random, 10) ? (long)below(&random, one_in(&random, 2) ? 40 : 400) : -1);
    (is_table ? try_table : try_model)(&random, file, counts);
    long left = heap_unwatch();
    heap_release(file.at);
    if (left) {
        fprintf(stderr, "%ld blocks of memory were not freed\n", left);
        say_case();
        exit(1);
    }
}

int main(int argc, char **argv) {
    if (argc < 5) {
        fprintf(stderr, "usage: fuzz SEED FIRST CASES FILE...\n");
        return 2;
    }
    static struct bytes models[MOST_FILES], tables[MOST_FILES];
    int model_count = 0, table_count = 0;
    seed = strtoull(argv[1], NULL, 10);
    long first = atol(argv[2]), cases = atol(argv[3]);
    for (int i = 4; i < argc && i < MOST_FILES; i++) {
        const char *suffix = strrchr(argv[i], '.');
        if (suffix && strcmp(suffix, ".table") == 0) tables[table_count++] = read_file(argv[i]);
        else models[model_count++] = read_file(argv[i]);
    }
    signal(SIGVTALRM, too_slow);
    __sanitizer_set_death_callback(say_case);
    struct counts counts = {0};
    for (now = first; now < first + cases; now++) run_case(models, model_count, tables, table_count, &counts);
    printf("%ld cases: %ld models opened and %ld refused; %ld encoded, %ld steps, %ld searches, %ld calls of streams, %ld inputs refused, %ld out of memory; "
           "%ld tables opened and %ld refused, %ld texts; %ld allocations refused\n",
           cases, counts.opened, counts.refused, counts.encoded, counts.stepped, counts.searched, counts.streamed, counts.refused_inputs, counts.out_of_memory,
           counts.tables_opened, counts.tables_refused, counts.texts, heap_refusals);
    return 0;
}
