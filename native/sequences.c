/* Operations over the rows of a sequence in their order: recurrent layers and convolutions. */
#include "run.h"

#include <stdlib.h>
#include <string.h>

struct ordered {
    int32_t item, length;
};

static int longer_first(const void *a, const void *b) {
    const struct ordered *left = a, *right = b;
    if (left->length != right->length) return left->length < right->length ? 1 : -1;
    return left->item < right->item ? -1 : 1;
}

/* What a recurrent layer works with; all arrays are taken from the pool. */
struct layer {
    struct ordered *order;  /* items, the longest first: at any time those that go on are the first ones */
    float *input;           /* (rows, G H): the input part of the gates */
    float *gates;           /* (items, G H): the recurrent part */
    float *hidden, *cell;   /* (items, H), in the order of `order` */
    const float **place;    /* (items): the input part of each item's row */
};

static int layer_take(struct run *run, struct layer *layer, int rows, int width, int wide) {
    struct pool *pool = &run->context->pool;
    size_t items = (size_t)run->items;
    *layer = (struct layer){
        .order = pool_take(pool, items, sizeof *layer->order),
        .input = pool_take(pool, (size_t)rows, (size_t)wide * sizeof(float)),
        .gates = pool_take(pool, items, (size_t)wide * sizeof(float)),
        .hidden = pool_take(pool, items, (size_t)width * sizeof(float)),
        .cell = pool_take(pool, items, (size_t)width * sizeof(float)),
        .place = pool_take(pool, items, sizeof *layer->place),
    };
    return layer->order && layer->input && layer->gates && layer->hidden && layer->cell && layer->place
               ? DRAGOMAN_OK : fail(run->context, DRAGOMAN_NO_MEMORY, "there is not enough memory");
}

static void layer_give(struct run *run, struct layer *layer) {
    struct pool *pool = &run->context->pool;
    pool_give(pool, layer->order), pool_give(pool, layer->input), pool_give(pool, layer->gates);
    pool_give(pool, layer->hidden), pool_give(pool, layer->cell), pool_give(pool, layer->place);
}

/* The first state of each item, or zeros. */
static void load_state(struct run *run, const struct layer *layer, int number, int width, float *to) {
    for (int i = 0; i < run->items; i++) {
        float *own = to + (size_t)i * (size_t)width;
        if (number == ABSENT) memset(own, 0, (size_t)width * sizeof(float));
        else memcpy(own, item_of(&run->values[number], layer->order[i].item), (size_t)width * sizeof(float));
    }
}

static void save_state(struct run *run, const struct layer *layer, const struct value *to, int width, const float *from) {
    for (int i = 0; i < run->items; i++)
        memcpy(item_of(to, layer->order[i].item), from + (size_t)i * (size_t)width, (size_t)width * sizeof(float));
}

static int run_recurrent(struct run *run, const struct operation *operation) {
    const struct weight *weights = run->model->weights, *in = &weights[operation->weights[0]], *own = &weights[operation->weights[1]];
    const float *bias = weights[operation->weights[2]].data, *x;
    const float *new_bias = operation->weights[3] == ABSENT ? NULL : weights[operation->weights[3]].data;
    const struct value *source = &run->values[operation->inputs[0]];
    const struct shape *shape = &run->phase->shapes[operation->inputs[0]];
    int kind = operation->settings[RECURRENT_CELL].number, reverse = operation->settings[RECURRENT_REVERSE].number;
    int width = own->dims[1], wide = own->dims[0], rows;
    struct value *y, *hidden, *cell = NULL;
    struct layer layer;
    float *owned;
    TRY(rows_of(run, operation->inputs[0], &x, &rows, &owned));
    TRY(output_make(run, operation, 0, source->item && source->extent ? run->states : source->extent, &y));
    TRY(output_make(run, operation, 1, NULL, &hidden));
    if (kind == CELL_LSTM) TRY(output_make(run, operation, 2, NULL, &cell));
    TRY(layer_take(run, &layer, rows, width, wide));
    for (int i = 0; i < run->items; i++) layer.order[i] = (struct ordered){i, count_of(source, i, shape->rows)};
    if (source->extent) qsort(layer.order, (size_t)run->items, sizeof *layer.order, longer_first);
    load_state(run, &layer, operation->inputs[1], width, layer.hidden);
    load_state(run, &layer, operation->inputs[2], width, layer.cell);
    TRY(multiply(run, in, x, rows, bias, layer.input, ACT_NONE));
    int live = run->items;
    for (int t = 0; t < layer.order[0].length; t++) {
        while (layer.order[live - 1].length <= t) live--;
        for (int i = 0; i < live; i++) {
            int64_t begin = y->extent ? y->extent->first[layer.order[i].item] : (int64_t)layer.order[i].item * shape->rows;
            int64_t row = begin + (reverse ? layer.order[i].length - 1 - t : t);
            layer.place[i] = layer.input + (size_t)row * (size_t)wide;
        }
        TRY(multiply(run, own, layer.hidden, live, NULL, layer.gates, ACT_NONE));
        run->kernels->recur(kind, live, width, layer.gates, layer.place, new_bias, layer.hidden, layer.cell);
        for (int i = 0; i < live; i++) {
            size_t row = (size_t)(layer.place[i] - layer.input) / (size_t)wide;
            memcpy(y->data + row * (size_t)width, layer.hidden + (size_t)i * (size_t)width, (size_t)width * sizeof(float));
        }
    }
    save_state(run, &layer, hidden, width, layer.hidden);
    if (cell) save_state(run, &layer, cell, width, layer.cell);
    layer_give(run, &layer);
    pool_give(&run->context->pool, owned);
    return DRAGOMAN_OK;
}

/* A convolution as a product: the rows that an output looks at are laid side by side. */
static int run_convolve(struct run *run, const struct operation *operation) {
    const struct weight *weight = &run->model->weights[operation->weights[0]];
    const float *bias = operation->weights[1] == ABSENT ? NULL : run->model->weights[operation->weights[1]].data;
    const struct value *x = &run->values[operation->inputs[0]];
    const struct shape *shape = &run->phase->shapes[operation->inputs[0]];
    const union setting *settings = operation->settings;
    int64_t stride = settings[CONVOLVE_STRIDE].number, before = settings[CONVOLVE_BEFORE].number, after = settings[CONVOLVE_AFTER].number;
    int size = weight->dims[1], inputs = weight->dims[2], outputs = weight->dims[0], wide = size * inputs;
    int activation = settings[CONVOLVE_ACTIVATION].number;
    struct pool *pool = &run->context->pool;
    struct extent *extent = NULL;
    struct value *y;
    int32_t *counts = pool_take(pool, (size_t)run->items, sizeof *counts);
    if (!counts) return fail(run->context, DRAGOMAN_NO_MEMORY, "there is not enough memory");
    int64_t total = 0;
    for (int i = 0; i < run->items; i++) {
        int64_t length = count_of(x, i, shape->rows) + before + after;
        if (length < size) return fail(run->context, DRAGOMAN_BAD_INPUT, "a source is shorter than the filters of this model");
        counts[i] = (int32_t)((length - size) / stride + 1);
        total += counts[i];
    }
    if (total > MOST_POSITIONS) return fail(run->context, DRAGOMAN_NO_MEMORY, "the sources are too long together");
    if (shape->rows == MANY && !(extent = extent_make(run->context, run->items, counts, 0)))
        return fail(run->context, DRAGOMAN_NO_MEMORY, "there is not enough memory");
    TRY(output_make(run, operation, 0, extent, &y));
    float *windows = pool_take(pool, (size_t)total, (size_t)wide * sizeof(float)), *to = windows;
    float *sums = activation == ACT_GLU ? pool_take(pool, (size_t)total, (size_t)outputs * sizeof(float)) : y->data;
    if (!windows || !sums) return fail(run->context, DRAGOMAN_NO_MEMORY, "there is not enough memory");
    for (int i = 0; i < run->items; i++) {
        const float *from = item_of(x, i);
        int length = count_of(x, i, shape->rows);
        for (int64_t row = -before, n = 0; n < counts[i]; n++, row += stride)
            for (int k = 0; k < size; k++, to += inputs) {
                if (row + k < 0 || row + k >= length) memset(to, 0, (size_t)inputs * sizeof(float));
                else memcpy(to, from + (size_t)(row + k) * (size_t)inputs, (size_t)inputs * sizeof(float));
            }
    }
    TRY(multiply(run, weight, windows, (int)total, bias, sums, activation == ACT_GLU ? ACT_NONE : activation));
    if (activation == ACT_GLU) run->kernels->glu(sums, (int)total, outputs / 2, y->data), pool_give(pool, sums);
    pool_give(pool, windows), pool_give(pool, counts);
    return DRAGOMAN_OK;
}

int run_sequence(struct run *run, const struct operation *operation) {
    return operation->kind == OP_RECURRENT ? run_recurrent(run, operation) : run_convolve(run, operation);
}
