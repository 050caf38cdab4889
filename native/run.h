/* What is there while a program runs: values of a whole batch, and the memory they live in.
 *
 * A batch has items: the sources of `encode`, or the hypotheses of `step`. A value holds those of
 * all items one after the other, without padding.
 */
#ifndef DRAGOMAN_RUN_H
#define DRAGOMAN_RUN_H

#include "model.h"

/* How many rows (or columns) each item has, where that differs. */
struct extent {
    int32_t *count;             /* (items) */
    int64_t *first;             /* (items + 1): the sums of the counts before */
    int32_t *height, *breadth;  /* of pictures; otherwise NULL */
};

struct value {
    float *data;
    const struct extent *extent; /* NULL: each item has `unit` floats */
    int64_t unit;                /* floats of a whole item, or for each row (or column) of the extent */
    const int32_t *item;         /* of fixed values in a step: the source of each hypothesis; NULL: as they come */
    float *const *places;        /* where each item is, if they do not follow each other; otherwise NULL */
};

/* Rows of all items of a value together. Rounded up, or doubled, their number still is an int. */
enum { MOST_POSITIONS = 1 << 29 };

/* Token ids are stored in place of floats. */
static inline const int32_t *tokens_of(const struct value *value) { return (const int32_t *)(const void *)value->data; }

/* The floats of one item. */
static inline float *item_of(const struct value *value, int item) {
    int64_t at = value->item ? value->item[item] : item;
    if (value->places) return value->places[at];
    return value->data + (value->extent ? value->extent->first[at] : at) * value->unit;
}

static inline int count_of(const struct value *value, int item, int rows) {
    return value->extent ? value->extent->count[value->item ? value->item[item] : item] : rows;
}

/* Blocks of memory that are kept for the next time. */
struct block {
    void *data;
    size_t size;
    int is_used;
};

struct pool {
    struct block *blocks;
    int count, room;
};

void *pool_take(struct pool *pool, size_t count, size_t size); /* NULL: no memory */
void pool_give(struct pool *pool, const void *data);
void pool_free(struct pool *pool);

/* The sources of a batch after `encode`. */
struct memory {
    int sources;
    struct value *values;         /* of encode; those that are not needed any more have no data */
    const struct extent *states;  /* NULL: no source */
    float ***turned;              /* of each fixed value: where its transposed copy is for each source, or NULL */
};

struct table { /* sinusoids of one width, for positions 0 to rows - 1 */
    int width, rows;
    float *data;
};

struct dragoman_context {
    const struct dragoman_model *model;
    struct pool pool, stores; /* of values that come and go; of sources that are searched */
    struct memory memory;
    struct extent **extents; /* of the batch that was encoded */
    int extent_count, extent_room, encode_extents;
    struct table *tables;
    int table_count;
    float *arena; /* the buffers of a step, and where each begins */
    size_t arena_size;
    size_t *buffer_offset;
    struct value *values; /* of a step */
    int is_searched; /* a stream uses it */
    char message[256];
};

/* One run of a phase. */
struct run {
    struct dragoman_context *context;
    const struct dragoman_model *model;
    const struct kernels *kernels;
    const struct phase *phase;
    struct value *values;
    int is_step, items;
    /* of a step: */
    const struct memory *memory;
    const int32_t *source, *position; /* (items) */
    const struct extent *states;      /* source states of each hypothesis */
    const int32_t *numbers;           /* (items, number_pitch): the rows of the caches that a hypothesis looks back at */
    const int32_t *cached;            /* (items): how many */
    int number_pitch;
};

int fail(struct dragoman_context *context, int reason, const char *format, ...);

#define TRY(call) \
    do { \
        int reason = (call); \
        if (reason) return reason; \
    } while (0)

/* An extent of these counts, which are copied; it lasts until the next batch is encoded. */
struct extent *extent_make(struct dragoman_context *context, int items, const int32_t *counts, int is_picture);
void extents_drop(struct dragoman_context *context, int keep);

/* Make room for an output. `extent` NULL: a fixed number of rows. */
int output_make(struct run *run, const struct operation *operation, int index, const struct extent *extent, struct value **output);

/* All rows of a value, one after the other; `*owned` is to be given back to the pool if it is not NULL. */
int rows_of(struct run *run, int value, const float **data, int *rows, float **owned);

/* y (n, O) = activation(x (n, I) times the transpose of a weight, plus bias), and the output layer (kernels.h). */
int multiply(struct run *run, const struct weight *weight, const float *x, int rows, const float *bias, float *y, int activation);
int project(struct run *run, const struct weight *weight, const float *x, int rows, const float *bias, float *scores, struct row_sums *sums, float *best);

int run_operations(struct run *run, int skip);

/* The operations, by file. */
int run_rows(struct run *run, const struct operation *operation);      /* operations.c */
int run_sequence(struct run *run, const struct operation *operation);  /* sequences.c */
int run_picture(struct run *run, const struct operation *operation);   /* pictures.c */
int run_attention(struct run *run, const struct operation *operation); /* attention.c */
int activate_rows(struct run *run, float *data, int rows, int width, int activation, float *to);
const float *sinusoids(struct dragoman_context *context, int width, int rows);

/* Make room for the values of a step of up to so many hypotheses, which look at so many states in all. */
int step_reserve(struct dragoman_context *context, int rows, int64_t states);

/* Run the step, and the output layer: scores (rows, score_stride), their sums, and the best of each block. */
int step_run(struct run *run, float *scores, struct row_sums *sums, float *best);
ptrdiff_t score_stride(const struct dragoman_model *model);
void pool_give_all(struct pool *pool);

#endif
