/* Operations that treat each row, or each item, by itself. program/table.py says what each one means. */
#include "run.h"

#include <math.h>
#include <string.h>

static const struct shape *shape_in(const struct run *run, const struct operation *operation, int index) {
    return &run->phase->shapes[operation->inputs[index]];
}

static struct value *value_in(const struct run *run, const struct operation *operation, int index) {
    return &run->values[operation->inputs[index]];
}

static const float *plain(const struct run *run, const struct operation *operation, int index) {
    int number = operation->weights[index];
    return number == ABSENT ? NULL : run->model->weights[number].data;
}

/* The extent of an output that has as many rows as this input. */
static const struct extent *extent_like(const struct run *run, const struct value *value) {
    return value->extent && value->item ? run->states : value->extent;
}

/* Refuse items whose two values have different numbers of rows. */
static int check_same(struct run *run, const struct value *a, const struct value *b) {
    for (int i = 0; i < run->items && a->extent && b->extent; i++)
        if (count_of(a, i, 0) != count_of(b, i, 0)) return fail(run->context, DRAGOMAN_BAD_INPUT, "two values of one source have different lengths");
    return DRAGOMAN_OK;
}

int output_make(struct run *run, const struct operation *operation, int index, const struct extent *extent, struct value **output) {
    int number = operation->outputs[index];
    const struct shape *shape = &run->phase->shapes[number];
    struct value *value = &run->values[number];
    int64_t unit = shape->rows == MANY ? shape->width : shape->width == MANY ? shape->rows : (int64_t)shape->rows * shape->width;
    int is_many = shape->rows == MANY || shape->width == MANY;
    *value = (struct value){NULL, is_many ? extent : NULL, unit, NULL, NULL};
    if (run->is_step) {
        value->data = run->context->arena + run->context->buffer_offset[run->phase->buffer[number]];
    } else {
        int64_t size = is_many ? extent->first[run->items] : run->items;
        if (size > MOST_POSITIONS) return fail(run->context, DRAGOMAN_NO_MEMORY, "the sources are too long together");
        value->data = pool_take(&run->context->pool, (size_t)size, (size_t)unit * sizeof(float));
        if (!value->data) return fail(run->context, DRAGOMAN_NO_MEMORY, "there is not enough memory");
    }
    *output = value;
    return DRAGOMAN_OK;
}

int rows_of(struct run *run, int number, const float **data, int *rows, float **owned) {
    const struct value *value = &run->values[number];
    const struct shape *shape = &run->phase->shapes[number];
    *owned = NULL;
    *data = value->data;
    int64_t total = 0;
    if (!value->item) total = value->extent ? value->extent->first[run->items] : (int64_t)run->items * shape->rows;
    else
        for (int i = 0; i < run->items; i++) total += count_of(value, i, shape->rows);
    *rows = (int)total;
    if (!value->item) return DRAGOMAN_OK;
    *owned = pool_take(&run->context->pool, (size_t)total, (size_t)shape->width * sizeof(float));
    if (!*owned) return fail(run->context, DRAGOMAN_NO_MEMORY, "there is not enough memory");
    float *to = *owned;
    for (int i = 0; i < run->items; i++) {
        size_t size = (size_t)count_of(value, i, shape->rows) * (size_t)shape->width;
        memcpy(to, item_of(value, i), size * sizeof(float));
        to += size;
    }
    *data = *owned;
    return DRAGOMAN_OK;
}

/* Apply an activation to rows of `width`; only for glu `to` differs from `data`. */
int activate_rows(struct run *run, float *data, int rows, int width, int activation, float *to) {
    if (activation == ACT_GLU) run->kernels->glu(data, rows, width / 2, to);
    else run->kernels->activate(data, (size_t)rows * (size_t)width, activation);
    return DRAGOMAN_OK;
}

/* Room for what glu reads, or the output itself. */
static float *before_glu(struct run *run, int activation, int rows, int width, float *output) {
    return activation == ACT_GLU ? pool_take(&run->context->pool, (size_t)rows, (size_t)width * sizeof(float)) : output;
}

static int run_embed(struct run *run, const struct operation *operation) {
    const struct value *tokens = value_in(run, operation, 0);
    const struct weight *table = &run->model->weights[operation->weights[0]];
    int width = table->dims[1], rows = tokens->extent ? (int)tokens->extent->first[run->items] : run->items;
    struct value *y;
    TRY(output_make(run, operation, 0, tokens->extent, &y));
    for (int i = 0; i < rows; i++)
        weight_row(table, tokens_of(tokens)[i], operation->settings[EMBED_SCALE].real, y->data + (size_t)i * (size_t)width);
    return DRAGOMAN_OK;
}

static int run_linear(struct run *run, const struct operation *operation) {
    const struct weight *weight = &run->model->weights[operation->weights[0]];
    int activation = operation->settings[LINEAR_ACTIVATION].number, outputs = weight->dims[0], rows;
    const float *x;
    float *owned;
    struct value *y;
    TRY(rows_of(run, operation->inputs[0], &x, &rows, &owned));
    TRY(output_make(run, operation, 0, extent_like(run, value_in(run, operation, 0)), &y));
    float *to = before_glu(run, activation, rows, outputs, y->data);
    if (!to) return fail(run->context, DRAGOMAN_NO_MEMORY, "there is not enough memory");
    int now = activation == ACT_GLU ? ACT_NONE : activation;
    TRY(multiply(run, weight, x, rows, plain(run, operation, 1), to, now));
    if (activation == ACT_GLU) run->kernels->glu(to, rows, outputs / 2, y->data);
    if (to != y->data) pool_give(&run->context->pool, to);
    pool_give(&run->context->pool, owned);
    return DRAGOMAN_OK;
}

static int run_affine(struct run *run, const struct operation *operation) {
    int activation = operation->settings[AFFINE_ACTIVATION].number, width = shape_in(run, operation, 0)->width, rows;
    const float *x;
    float *owned;
    struct value *y;
    TRY(rows_of(run, operation->inputs[0], &x, &rows, &owned));
    TRY(output_make(run, operation, 0, extent_like(run, value_in(run, operation, 0)), &y));
    float *to = before_glu(run, activation, rows, width, y->data);
    if (!to) return fail(run->context, DRAGOMAN_NO_MEMORY, "there is not enough memory");
    run->kernels->affine(x, rows, width, operation->settings[AFFINE_FACTOR].real, plain(run, operation, 0), plain(run, operation, 1), to);
    activate_rows(run, to, rows, width, activation, y->data);
    if (to != y->data) pool_give(&run->context->pool, to);
    pool_give(&run->context->pool, owned);
    return DRAGOMAN_OK;
}

/* How many floats an item has. */
static int64_t size_of(const struct value *value, int item) { return value->extent ? count_of(value, item, 0) * value->unit : value->unit; }

static int run_add(struct run *run, const struct operation *operation) {
    const struct value *a = value_in(run, operation, 0), *b = value_in(run, operation, 1);
    int activation = operation->settings[ADD_ACTIVATION].number, width = shape_in(run, operation, 0)->width;
    float factor = operation->settings[ADD_FACTOR].real;
    struct value *y;
    TRY(check_same(run, a, b));
    TRY(output_make(run, operation, 0, extent_like(run, a), &y));
    int64_t total = 0;
    for (int i = 0; i < run->items; i++) total += size_of(a, i);
    float *sums = before_glu(run, activation, (int)(total / (width == MANY ? 1 : width)), width, y->data), *to = sums;
    if (!sums) return fail(run->context, DRAGOMAN_NO_MEMORY, "there is not enough memory");
    if (!a->item && !b->item && (!a->extent || width != MANY)) {
        run->kernels->add(a->data, b->data, factor, to, (size_t)total);
    } else {
        for (int i = 0; i < run->items; i++) {
            int64_t size = size_of(a, i);
            run->kernels->add(item_of(a, i), item_of(b, i), factor, to, (size_t)size);
            to += size;
        }
    }
    if (activation == ACT_GLU) run->kernels->glu(sums, (int)(total / width), width / 2, y->data);
    else run->kernels->activate(sums, (size_t)total, activation);
    if (sums != y->data) pool_give(&run->context->pool, sums);
    return DRAGOMAN_OK;
}

static int run_multiply(struct run *run, const struct operation *operation) {
    const struct value *a = value_in(run, operation, 0), *b = value_in(run, operation, 1);
    int width = shape_in(run, operation, 0)->width, is_one = shape_in(run, operation, 1)->width == 1 && width > 1;
    struct value *y;
    TRY(check_same(run, a, b));
    TRY(output_make(run, operation, 0, extent_like(run, a), &y));
    float *to = y->data;
    for (int i = 0; i < run->items; i++) {
        int rows = count_of(a, i, shape_in(run, operation, 0)->rows);
        const float *left = item_of(a, i), *right = item_of(b, i);
        if (!is_one) run->kernels->multiply(left, right, to, (size_t)rows * (size_t)width);
        for (int row = 0; row < rows && is_one; row++)
            run->kernels->affine(left + (size_t)row * (size_t)width, 1, width, right[row], NULL, NULL, to + (size_t)row * (size_t)width);
        to += (size_t)rows * (size_t)width;
    }
    return DRAGOMAN_OK;
}

/* layer_norm and normalize */
static int run_norm(struct run *run, const struct operation *operation) {
    int width = shape_in(run, operation, 0)->width, rows;
    const float *x;
    float *owned;
    struct value *y;
    TRY(rows_of(run, operation->inputs[0], &x, &rows, &owned));
    TRY(output_make(run, operation, 0, extent_like(run, value_in(run, operation, 0)), &y));
    if (operation->kind == OP_LAYER_NORM) {
        run->kernels->layer_norm(x, rows, width, plain(run, operation, 0), plain(run, operation, 1),
                                 operation->settings[LAYER_NORM_EPSILON].real, y->data);
    } else {
        for (int row = 0; row < rows; row++) {
            const float *own = x + (size_t)row * (size_t)width;
            float length = sqrtf(run->kernels->dot(own, own, width));
            run->kernels->affine(own, 1, width, 1.0f / (length > 1e-12f ? length : 1e-12f), NULL, NULL, y->data + (size_t)row * (size_t)width);
        }
    }
    pool_give(&run->context->pool, owned);
    return DRAGOMAN_OK;
}

static int run_positions(struct run *run, const struct operation *operation) {
    const struct value *x = value_in(run, operation, 0);
    const struct shape *shape = shape_in(run, operation, 0);
    const struct weight *table = operation->weights[0] == ABSENT ? NULL : &run->model->weights[operation->weights[0]];
    int width = shape->width, last = 0;
    for (int i = 0; i < run->items; i++) {
        int end = (run->is_step ? run->position[i] : 0) + count_of(x, i, shape->rows);
        last = end > last ? end : last;
    }
    if (table && last > table->dims[0])
        return fail(run->context, DRAGOMAN_TOO_LONG, "a sequence of %d positions is longer than the %d that the model knows; cut it", last, table->dims[0]);
    const float *vectors = table ? table->data : sinusoids(run->context, width, last);
    struct value *y;
    if (!vectors) return fail(run->context, DRAGOMAN_NO_MEMORY, "there is not enough memory");
    TRY(output_make(run, operation, 0, extent_like(run, x), &y));
    float *to = y->data;
    for (int i = 0; i < run->items; i++) {
        size_t begin = run->is_step ? (size_t)run->position[i] : 0, size = (size_t)count_of(x, i, shape->rows) * (size_t)width;
        run->kernels->add(item_of(x, i), vectors + begin * (size_t)width, 1.0f, to, size);
        to += size;
    }
    return DRAGOMAN_OK;
}

/* Turn the queries and keys of every head by the angles of their positions. */
static int run_rotate(struct run *run, const struct operation *operation) {
    const struct value *x = value_in(run, operation, 0);
    const struct shape *shape = shape_in(run, operation, 0);
    int width = shape->width / 3, heads = operation->settings[ROTATE_HEADS].number, part = width / heads, last = 0;
    for (int i = 0; i < run->items; i++) {
        int end = (run->is_step ? run->position[i] : 0) + count_of(x, i, shape->rows);
        last = end > last ? end : last;
    }
    const float *turns = sinusoids(run->context, part, last);
    struct value *y;
    if (!turns) return fail(run->context, DRAGOMAN_NO_MEMORY, "there is not enough memory");
    TRY(output_make(run, operation, 0, extent_like(run, x), &y));
    float *to = y->data;
    for (int i = 0; i < run->items; i++) {
        const float *from = item_of(x, i), *own = turns + (size_t)(run->is_step ? run->position[i] : 0) * (size_t)part;
        for (int row = count_of(x, i, shape->rows); row > 0; row--, own += part, from += 3 * width, to += 3 * width) {
            for (int begin = 0; begin < 2 * width; begin += part)
                for (int k = 0; k < part; k += 2) {
                    float left = from[begin + k], right = from[begin + k + 1], sine = own[k], cosine = own[k + 1];
                    to[begin + k] = left * cosine - right * sine;
                    to[begin + k + 1] = left * sine + right * cosine;
                }
            memcpy(to + 2 * width, from + 2 * width, (size_t)width * sizeof(float));
        }
    }
    return DRAGOMAN_OK;
}

/* softmax and select_best, also of weights over source states */
static int run_choice(struct run *run, const struct operation *operation) {
    const struct value *x = value_in(run, operation, 0);
    const struct shape *shape = shape_in(run, operation, 0);
    struct value *y;
    TRY(output_make(run, operation, 0, extent_like(run, x), &y));
    for (int i = 0; i < run->items; i++) {
        int rows = shape->rows == MANY ? count_of(x, i, 0) : shape->rows, width = shape->width == MANY ? count_of(x, i, 0) : shape->width;
        for (int row = 0; row < rows; row++) {
            const float *own = item_of(x, i) + (size_t)row * (size_t)width;
            float *to = item_of(y, i) + (size_t)row * (size_t)width;
            memcpy(to, own, (size_t)width * sizeof(float));
            if (operation->kind == OP_SOFTMAX) {
                run->kernels->softmax(to, width);
                continue;
            }
            int best = 0;
            for (int j = 1; j < width; j++) best = own[j] > own[best] ? j : best;
            memset(to, 0, (size_t)width * sizeof(float));
            to[best] = 1.0f;
        }
    }
    return DRAGOMAN_OK;
}

static int run_mean(struct run *run, const struct operation *operation) {
    const struct value *x = value_in(run, operation, 0);
    int width = shape_in(run, operation, 0)->width;
    struct value *y;
    TRY(output_make(run, operation, 0, NULL, &y));
    memset(y->data, 0, (size_t)run->items * (size_t)width * sizeof(float));
    for (int i = 0; i < run->items; i++) {
        int rows = count_of(x, i, shape_in(run, operation, 0)->rows);
        float *to = item_of(y, i);
        for (int row = 0; row < rows; row++) run->kernels->add_scaled(to, item_of(x, i) + (size_t)row * (size_t)width, 1.0f, width);
        run->kernels->affine(to, 1, width, 1.0f / (float)rows, NULL, NULL, to);
    }
    return DRAGOMAN_OK;
}

/* Counts of rows that an operation computes itself, as the extent of its output. */
static struct extent *own_extent(struct run *run, int32_t *counts) {
    return extent_make(run->context, run->items, counts, 0);
}

static int run_join(struct run *run, const struct operation *operation) {
    int by_rows = operation->settings[JOIN_AXIS].number == AXIS_ROWS;
    const struct shape *shape = &run->phase->shapes[operation->outputs[0]];
    const struct extent *extent = extent_like(run, value_in(run, operation, 0));
    struct value *y;
    if (by_rows && shape->rows == MANY) {
        int32_t *counts = pool_take(&run->context->pool, (size_t)run->items, sizeof *counts);
        if (!counts) return fail(run->context, DRAGOMAN_NO_MEMORY, "there is not enough memory");
        for (int i = 0; i < run->items; i++) {
            int64_t sum = 0;
            for (int j = 0; j < operation->input_count; j++) sum += count_of(value_in(run, operation, j), i, shape_in(run, operation, j)->rows);
            counts[i] = (int32_t)(sum > INT32_MAX ? INT32_MAX : sum);
        }
        extent = own_extent(run, counts);
        pool_give(&run->context->pool, counts);
        if (!extent) return fail(run->context, DRAGOMAN_NO_MEMORY, "there is not enough memory");
    }
    for (int j = 1; j < operation->input_count && !by_rows; j++) TRY(check_same(run, value_in(run, operation, 0), value_in(run, operation, j)));
    TRY(output_make(run, operation, 0, extent, &y));
    for (int i = 0; i < run->items; i++) {
        float *to = item_of(y, i);
        for (int j = 0; j < operation->input_count; j++) {
            const struct shape *own = shape_in(run, operation, j);
            const float *from = item_of(value_in(run, operation, j), i);
            int rows = count_of(value_in(run, operation, j), i, own->rows);
            size_t width = (size_t)own->width, step = by_rows ? width : (size_t)shape->width;
            for (int row = 0; row < rows; row++) memcpy(to + (size_t)row * step, from + (size_t)row * width, width * sizeof(float));
            to += by_rows ? (size_t)rows * width : width;
        }
    }
    return DRAGOMAN_OK;
}

static int run_slice(struct run *run, const struct operation *operation) {
    const struct value *x = value_in(run, operation, 0);
    const struct shape *shape = shape_in(run, operation, 0);
    int by_rows = operation->settings[SLICE_AXIS].number == AXIS_ROWS, count = operation->settings[SLICE_COUNT].number;
    struct value *y;
    TRY(output_make(run, operation, 0, by_rows ? NULL : extent_like(run, x), &y));
    for (int i = 0; i < run->items; i++) {
        int rows = count_of(x, i, shape->rows), size = by_rows ? rows : shape->width;
        int64_t begin = operation->settings[SLICE_BEGIN].number;
        begin += begin < 0 ? size : 0;
        if (begin < 0 || begin + count > size)
            return fail(run->context, DRAGOMAN_BAD_INPUT, "a source of %d positions is too short for this model", size);
        const float *from = item_of(x, i) + (size_t)begin * (by_rows ? (size_t)shape->width : 1);
        size_t width = by_rows ? (size_t)shape->width : (size_t)count;
        for (int row = 0; row < (by_rows ? count : rows); row++)
            memcpy(item_of(y, i) + (size_t)row * width, from + (size_t)row * (size_t)shape->width, width * sizeof(float));
    }
    return DRAGOMAN_OK;
}

static int run_zeros(struct run *run, const struct operation *operation) {
    const struct value *x = value_in(run, operation, 0);
    struct value *y;
    TRY(output_make(run, operation, 0, x->extent, &y));
    memset(y->data, 0, (size_t)x->extent->first[run->items] * sizeof(float));
    return DRAGOMAN_OK;
}

static int run_pair(struct run *run, const struct operation *operation) {
    const struct value *x = value_in(run, operation, 0);
    size_t width = (size_t)shape_in(run, operation, 0)->width;
    int32_t *counts = pool_take(&run->context->pool, (size_t)run->items, sizeof *counts);
    struct value *y;
    if (!counts) return fail(run->context, DRAGOMAN_NO_MEMORY, "there is not enough memory");
    for (int i = 0; i < run->items; i++) counts[i] = count_of(x, i, 0) / 2 + count_of(x, i, 0) % 2;
    struct extent *extent = own_extent(run, counts);
    pool_give(&run->context->pool, counts);
    if (!extent) return fail(run->context, DRAGOMAN_NO_MEMORY, "there is not enough memory");
    TRY(output_make(run, operation, 0, extent, &y));
    for (int i = 0; i < run->items; i++) {
        size_t size = (size_t)count_of(x, i, 0) * width, whole = (size_t)extent->count[i] * 2 * width;
        memcpy(item_of(y, i), item_of(x, i), size * sizeof(float));
        memset(item_of(y, i) + size, 0, (whole - size) * sizeof(float));
    }
    return DRAGOMAN_OK;
}

/* Sum the vectors of each sentence, weighted by place (Sukhbaatar et al. 2015, section 4.1). */
static int run_pool_sentences(struct run *run, const struct operation *operation) {
    const struct value *x = value_in(run, operation, 0), *tokens = value_in(run, operation, 1);
    const float *ends = plain(run, operation, 0);
    int width = shape_in(run, operation, 0)->width;
    int32_t *counts = pool_take(&run->context->pool, (size_t)run->items, sizeof *counts);
    struct value *y;
    if (!counts) return fail(run->context, DRAGOMAN_NO_MEMORY, "there is not enough memory");
    TRY(check_same(run, x, tokens));
    for (int i = 0; i < run->items; i++) {
        counts[i] = 0;
        for (int t = 0; t < count_of(x, i, 0); t++) counts[i] += ends[tokens_of(tokens)[tokens->extent->first[i] + t]] != 0.0f;
        if (!counts[i]) return fail(run->context, DRAGOMAN_BAD_INPUT, "a source has no token that ends a sentence");
    }
    struct extent *extent = own_extent(run, counts);
    pool_give(&run->context->pool, counts);
    if (!extent) return fail(run->context, DRAGOMAN_NO_MEMORY, "there is not enough memory");
    TRY(output_make(run, operation, 0, extent, &y));
    memset(y->data, 0, (size_t)extent->first[run->items] * (size_t)width * sizeof(float));
    for (int i = 0; i < run->items; i++) {
        const int32_t *own = tokens_of(tokens) + tokens->extent->first[i];
        float *to = item_of(y, i);
        for (int begin = 0, length = count_of(x, i, 0); begin < length; to += width) {
            int end = begin;
            while (end < length && ends[own[end]] == 0.0f) end++;
            if (end == length) break;
            for (int t = begin; t <= end; t++) {
                const float *word = item_of(x, i) + (size_t)t * (size_t)width;
                float j = (float)(t - begin + 1) / (float)(end - begin + 1);
                for (int k = 0; k < width; k++) to[k] += word[k] * ((1.0f - j) - (float)(k + 1) / (float)width * (1.0f - 2.0f * j));
            }
            begin = end + 1;
        }
    }
    return DRAGOMAN_OK;
}

int run_rows(struct run *run, const struct operation *operation) {
    switch (operation->kind) {
    case OP_EMBED: return run_embed(run, operation);
    case OP_LINEAR: return run_linear(run, operation);
    case OP_AFFINE: return run_affine(run, operation);
    case OP_ADD: return run_add(run, operation);
    case OP_MULTIPLY: return run_multiply(run, operation);
    case OP_LAYER_NORM:
    case OP_NORMALIZE: return run_norm(run, operation);
    case OP_POSITIONS: return run_positions(run, operation);
    case OP_ROTATE: return run_rotate(run, operation);
    case OP_SOFTMAX:
    case OP_SELECT_BEST: return run_choice(run, operation);
    case OP_MEAN: return run_mean(run, operation);
    case OP_JOIN: return run_join(run, operation);
    case OP_SLICE: return run_slice(run, operation);
    case OP_ZEROS: return run_zeros(run, operation);
    case OP_PAIR: return run_pair(run, operation);
    default: return run_pool_sentences(run, operation);
    }
}
