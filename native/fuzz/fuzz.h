/* What the files of the fuzzer share: random numbers, memory that fails, and mutations. */
#ifndef DRAGOMAN_FUZZ_H
#define DRAGOMAN_FUZZ_H

#include <stddef.h>
#include <stdint.h>

/* ---- random numbers: those of a case depend on the seed and the number of the case alone */

struct random {
    uint64_t state;
};

static inline uint64_t draw(struct random *random) { /* SplitMix64 (Steele, Lea and Flood 2014) */
    uint64_t x = random->state += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static inline size_t below(struct random *random, size_t limit) { return limit ? (size_t)(draw(random) % limit) : 0; }
static inline int between(struct random *random, int least, int most) { return least + (int)below(random, (size_t)(most - least + 1)); }
static inline int one_in(struct random *random, int times) { return below(random, (size_t)times) == 0; }

int32_t interesting(struct random *random);        /* a number at which checks are easily wrong */
float interesting_float(struct random *random);    /* the same, with NaN and the infinities */

/* ---- memory (heap.c): the linker leads all allocations of the library there */

/* From now on the allocation after `refused_after` others fails; negative: only large ones do. */
void heap_watch(long refused_after);
/* The blocks that were not freed since then. */
long heap_unwatch(void);
extern long heap_refusals; /* of all cases */
/* Memory of the fuzzer itself: of exactly this size, never refused, not counted. */
void *heap_exact(size_t size);
void heap_release(void *block);

/* ---- mutations (mutate.c) */

struct bytes {
    uint8_t *at;
    size_t size;
};

/* Change a copy of `seed` in some places; `others` are for splices. The block has exactly its size. */
struct bytes mutate_model(struct random *random, struct bytes seed, const struct bytes *others, int count);
struct bytes mutate_table(struct random *random, struct bytes seed, const struct bytes *others, int count);

/* ---- the cases (models.c, tables.c) */

struct counts {
    long opened, refused, encoded, stepped, searched, streamed, refused_inputs, out_of_memory;
    long tables_opened, tables_refused, texts;
};

void try_model(struct random *random, struct bytes file, struct counts *counts);
void try_table(struct random *random, struct bytes table, struct counts *counts);

#endif
