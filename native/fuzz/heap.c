/* Allocations of the library under the fuzzer: some are refused, and all are counted, so that a leak shows at once. */
#include "fuzz.h"

#include <malloc.h>
#include <stdlib.h>

enum { LARGEST = 1 << 26, MOST = 1 << 28 }; /* bytes of one block, and of all */

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *block, size_t size);
void __real_free(void *block);

static int is_watched;
static long countdown, blocks;
static size_t live;
long heap_refusals;

void heap_watch(long refused_after) { is_watched = 1, countdown = refused_after, blocks = 0, live = 0; }

long heap_unwatch(void) {
    is_watched = 0;
    return blocks;
}

void *heap_exact(size_t size) {
    void *block = __real_malloc(size);
    if (!block) abort();
    return block;
}

void heap_release(void *block) { __real_free(block); }

static int is_refused(size_t size) {
    if (!is_watched) return 0;
    int is_due = countdown >= 0 && countdown-- == 0;
    if (!is_due && size <= LARGEST && live + size <= MOST) return 0;
    heap_refusals++;
    return 1;
}

static void *note(void *block) {
    if (block) blocks++, live += malloc_usable_size(block);
    return block;
}

void *__wrap_malloc(size_t size) { return is_refused(size) ? NULL : note(__real_malloc(size)); }

void *__wrap_calloc(size_t count, size_t size) {
    if (size && count > SIZE_MAX / size) return NULL;
    return is_refused(count * size) ? NULL : note(__real_calloc(count, size));
}

void __wrap_free(void *block) {
    if (block) blocks--, live -= malloc_usable_size(block);
    __real_free(block);
}

void *__wrap_realloc(void *block, size_t size) {
    if (is_refused(size)) return NULL;
    size_t before = block ? malloc_usable_size(block) : 0;
    void *larger = __real_realloc(block, size);
    if (!larger) return NULL;
    if (block) blocks--, live -= before;
    return note(larger);
}
