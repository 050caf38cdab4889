/* The computing part of the library: one table of functions for each instruction set.
 *
 * kernels.c is compiled once for each instruction set. `kernels_choose` picks the best table that
 * this processor can run. All matrices are row-major float32. A "stride" is the distance between
 * two rows, counted in floats.
 *
 * Law: within one instruction set, the result for a row is the same, bit for bit, whatever the
 * number of rows in the call. Every sum has an order that depends on the row alone.
 */
#ifndef DRAGOMAN_KERNELS_H
#define DRAGOMAN_KERNELS_H

#include "operations.h"

#include <stddef.h>
#include <stdint.h>

/* The tokens of one block of `project`: the greatest score of each block is kept. */
enum { BLOCK = 64 };

/* What `project` returns of each row besides its scores. */
struct row_sums {
    float normalizer; /* log of the sum of exp(score) */
    float entropy;    /* of the softmax of the scores, in nats */
};

/* A weight (O, I) of 8 bits as panels; starts and scales have as many entries as the panels have columns. */
struct byte_panels {
    int outputs, inputs;
    int8_t *bytes;
    int32_t *starts;
    float *scales;
};

struct kernels {
    const char *name;
    int lanes; /* floats in a vector */

    /* Weights (O, I) as panels of columns. `packed_size` counts floats. */
    size_t (*packed_size)(int outputs, int inputs);
    void (*pack)(const float *weight, int outputs, int inputs, float *packed);

    /* y (n, O) = activation(x (n, I) W' + bias); bias may be NULL. Not for glu. */
    void (*product)(const float *x, ptrdiff_t x_stride, int rows, int inputs, const float *packed,
                    const float *bias, int outputs, float *y, ptrdiff_t y_stride, int activation);

    /* The output layer in one pass: scores (n, stride), the sums of each row, and the greatest
     * score of each block, best (n, stride / BLOCK). `stride` is V rounded up to a multiple of
     * BLOCK; the scores beyond V are -infinity. */
    void (*project)(const float *x, int rows, int inputs, const float *packed, const float *bias,
                    int outputs, float *scores, ptrdiff_t stride, struct row_sums *sums, float *best);

    /* The same with weights of 8 bits; all NULL where the instruction set has nothing for them. `quantize`
     * rounds rows to bytes (n, byte_stride) with a scale for each row. `columns` rounds O up to whole panels. */
    size_t (*byte_panels_size)(int outputs, int inputs);
    int (*columns)(int outputs);
    int (*byte_stride)(int inputs);
    void (*pack_bytes)(const int8_t *weight, int outputs, int inputs, int8_t *packed, int32_t *starts);
    void (*quantize)(const float *x, ptrdiff_t x_stride, int rows, int inputs, uint8_t *bytes, float *scales);
    void (*product_bytes)(const uint8_t *x, const float *row_scales, int rows, const struct byte_panels *panels,
                          const float *bias, float *y, ptrdiff_t y_stride, int activation);
    void (*project_bytes)(const uint8_t *x, const float *row_scales, int rows, const struct byte_panels *panels,
                          const float *bias, float *scores, ptrdiff_t stride, struct row_sums *sums, float *best);

    /* The `count` best tokens of one row of `project`, best first; of equal ones the lower token
     * comes first. What is compared is score - normalizer, rounded; it must exceed `floor`. Returns how
     * many there are. */
    int (*top)(const float *scores, const float *best, int blocks, float normalizer, int count,
               float floor, float *log_probs, int32_t *tokens);
    float (*greatest)(const float *x, int n); /* of one block, to repair `best` */

    void (*softmax)(float *x, int n);
    void (*log_softmax)(const float *x, float *y, int n);
    void (*layer_norm)(const float *x, int rows, int width, const float *weight, const float *bias,
                       float epsilon, float *y);
    void (*activate)(float *x, size_t n, int activation);             /* in place; not glu */
    void (*glu)(const float *x, int rows, int width, float *y);       /* (n, 2 width) to (n, width) */
    void (*add)(const float *a, const float *b, float factor, float *y, size_t n);
    void (*multiply)(const float *a, const float *b, float *y, size_t n);
    void (*affine)(const float *x, int rows, int width, float factor, const float *scale,
                   const float *shift, float *y);
    void (*add_scaled)(float *y, const float *x, float factor, int n); /* y += factor * x */
    float (*dot)(const float *a, const float *b, int n);
    float (*tanh_dot)(const float *a, const float *b, const float *vector, int n);

    /* Keys (S, D) as (D, pitch), for `attend` and `scores`; pitch is S rounded up to `lanes`. */
    void (*transpose)(const float *keys, ptrdiff_t stride, int positions, int width, float *turned);

    /* y (n, S) = scale * query (n, D) keys'; y has room for `pitch` columns in each row. */
    void (*scores)(const float *query, ptrdiff_t query_stride, int rows, const float *turned,
                   int positions, int width, float scale, float *y);

    /* One head: y (n, E) = softmax(scores) values (S, E). weights (n, pitch) hold the scores and
     * then the weights. `seen`: how many positions the first row sees, each later row one more
     * (causal); 0: all rows see all. */
    void (*attend)(float *weights, int rows, int positions, int seen, const float *values,
                   ptrdiff_t values_stride, int width, float *y, ptrdiff_t y_stride);

    /* The newest position of one hypothesis looks at `count` rows of the caches keys and values
     * (., D), those with these numbers, and at itself, qkv (3 D). weights: heads * (count + 1). */
    void (*attend_cached)(const float *qkv, const float *keys, const float *values,
                          const int32_t *numbers, int count, int width, int heads, float *weights,
                          float *y);

    /* One step of n recurrent cells: gates (n, G H) is the recurrent part, input[i] the input part
     * of row i. hidden and cell (n, H) are read and replaced. */
    void (*recur)(int kind, int rows, int width, const float *gates, const float *const *input,
                  const float *new_bias, float *hidden, float *cell);
};

/* The best table for this processor; `limit`, if not NULL, names a table to take instead. */
const struct kernels *kernels_choose(const char *limit);

#endif
