/* Operations over pictures (H, W, C), one picture at a time. */
#include "run.h"

#include <math.h>
#include <string.h>

enum { STRIP = 256 }; /* positions whose squares are laid out for one product */

static int up(int n, int by) { return n / by + (n % by != 0); }

/* The extent of pictures that are smaller by a factor. */
static struct extent *smaller(struct run *run, const struct extent *from, int stride) {
    int32_t *counts = pool_take(&run->context->pool, (size_t)run->items, sizeof *counts);
    if (!counts) return NULL;
    for (int i = 0; i < run->items; i++) counts[i] = up(from->height[i], stride) * up(from->breadth[i], stride);
    struct extent *extent = extent_make(run->context, run->items, counts, 1);
    pool_give(&run->context->pool, counts);
    for (int i = 0; i < run->items && extent; i++) {
        extent->height[i] = up(from->height[i], stride);
        extent->breadth[i] = up(from->breadth[i], stride);
    }
    return extent;
}

static int run_group_norm(struct run *run, const struct operation *operation) {
    const struct value *x = &run->values[operation->inputs[0]];
    int width = run->phase->shapes[operation->inputs[0]].width, groups = operation->settings[GROUP_NORM_GROUPS].number, part = width / groups;
    const float *weight = run->model->weights[operation->weights[0]].data, *bias = run->model->weights[operation->weights[1]].data;
    struct value *y;
    TRY(output_make(run, operation, 0, x->extent, &y));
    for (int i = 0; i < run->items; i++)
        for (int group = 0; group < groups; group++) {
            const float *from = item_of(x, i) + group * part;
            float *to = item_of(y, i) + group * part;
            int places = x->extent->count[i];
            double sum = 0, squares = 0, size = (double)places * part;
            for (int p = 0; p < places; p++)
                for (int c = 0; c < part; c++) sum += from[(size_t)p * (size_t)width + (size_t)c];
            float mean = (float)(sum / size);
            for (int p = 0; p < places; p++)
                for (int c = 0; c < part; c++) {
                    double d = from[(size_t)p * (size_t)width + (size_t)c] - mean;
                    squares += d * d;
                }
            float scale = 1.0f / sqrtf((float)(squares / size) + operation->settings[GROUP_NORM_EPSILON].real);
            for (int p = 0; p < places; p++)
                for (int c = 0; c < part; c++) {
                    size_t at = (size_t)p * (size_t)width + (size_t)c;
                    to[at] = (from[at] - mean) * scale * weight[group * part + c] + bias[group * part + c];
                }
        }
    return DRAGOMAN_OK;
}

static int run_grid(struct run *run, const struct operation *operation) {
    const struct value *x = &run->values[operation->inputs[0]];
    const struct extent *extent = x->extent;
    const struct weight *table = operation->weights[0] == ABSENT ? NULL : &run->model->weights[operation->weights[0]];
    int width = run->phase->shapes[operation->inputs[0]].width, half = width / 2, most = 1;
    for (int i = 0; i < run->items; i++) {
        most = extent->height[i] > most ? extent->height[i] : most;
        most = extent->breadth[i] > most ? extent->breadth[i] : most;
    }
    if (table && most > table->dims[1])
        return fail(run->context, DRAGOMAN_TOO_LONG, "a picture of %d regions along a side is larger than the model knows; make it smaller", most);
    int has_places = operation->settings[GRID_VECTORS].number != GRID_NONE;
    const float *down = table ? table->data : has_places ? sinusoids(run->context, half, most) : NULL;
    if (has_places && !down) return fail(run->context, DRAGOMAN_NO_MEMORY, "there is not enough memory");
    const float *across = table ? table->data + (size_t)table->dims[1] * (size_t)half : down;
    struct extent *flat = extent_make(run->context, run->items, extent->count, 0);
    struct value *y;
    if (!flat) return fail(run->context, DRAGOMAN_NO_MEMORY, "there is not enough memory");
    TRY(output_make(run, operation, 0, flat, &y));
    for (int i = 0; i < run->items; i++) {
        const float *from = item_of(x, i);
        float *to = item_of(y, i);
        memcpy(to, from, (size_t)extent->count[i] * (size_t)width * sizeof(float));
        for (int row = 0; row < extent->height[i] && has_places; row++)
            for (int column = 0; column < extent->breadth[i]; column++, to += width) {
                run->kernels->add_scaled(to, down + (size_t)row * (size_t)half, 1.0f, half);
                run->kernels->add_scaled(to + half, across + (size_t)column * (size_t)half, 1.0f, half);
            }
    }
    return DRAGOMAN_OK;
}

/* Lay the squares of `count` output positions from `first` on side by side; zeros are outside. */
static void lay_out(const float *from, int height, int breadth, int channels, int size, int stride, int before,
                    int out_breadth, int first, int count, float *to) {
    for (int place = first; place < first + count; place++) {
        int64_t top = (int64_t)(place / out_breadth) * stride - before, left = (int64_t)(place % out_breadth) * stride - before;
        for (int i = 0; i < size; i++)
            for (int j = 0; j < size; j++, to += channels) {
                int64_t row = top + i, column = left + j;
                int is_inside = row >= 0 && row < height && column >= 0 && column < breadth;
                if (is_inside) memcpy(to, from + (size_t)(row * breadth + column) * (size_t)channels, (size_t)channels * sizeof(float));
                else memset(to, 0, (size_t)channels * sizeof(float));
            }
    }
}

static int run_convolve_picture(struct run *run, const struct operation *operation) {
    const struct value *x = &run->values[operation->inputs[0]];
    const struct weight *weight = &run->model->weights[operation->weights[0]];
    const float *bias = operation->weights[1] == ABSENT ? NULL : run->model->weights[operation->weights[1]].data;
    int stride = operation->settings[CONVOLVE_PICTURE_STRIDE].number, before = operation->settings[CONVOLVE_PICTURE_BEFORE].number;
    int activation = operation->settings[CONVOLVE_PICTURE_ACTIVATION].number, outputs = weight->dims[0];
    int size = weight->dims[1], channels = weight->dims[3], wide = size * size * channels;
    int width = activation == ACT_GLU ? outputs / 2 : outputs;
    struct extent *extent = smaller(run, x->extent, stride);
    struct value *y;
    if (!extent) return fail(run->context, DRAGOMAN_NO_MEMORY, "there is not enough memory");
    TRY(output_make(run, operation, 0, extent, &y));
    float *squares = pool_take(&run->context->pool, STRIP, (size_t)wide * sizeof(float));
    float *sums = pool_take(&run->context->pool, STRIP, (size_t)outputs * sizeof(float));
    if (!squares || !sums) return fail(run->context, DRAGOMAN_NO_MEMORY, "there is not enough memory");
    for (int i = 0; i < run->items; i++)
        for (int first = 0; first < extent->count[i]; first += STRIP) {
            int count = extent->count[i] - first < STRIP ? extent->count[i] - first : STRIP;
            float *to = item_of(y, i) + (size_t)first * (size_t)width, *made = activation == ACT_GLU ? sums : to;
            lay_out(item_of(x, i), x->extent->height[i], x->extent->breadth[i], channels, size, stride, before, extent->breadth[i], first, count, squares);
            TRY(multiply(run, weight, squares, count, bias, made, activation == ACT_GLU ? ACT_NONE : activation));
            if (activation == ACT_GLU) run->kernels->glu(sums, count, width, to);
        }
    pool_give(&run->context->pool, squares), pool_give(&run->context->pool, sums);
    return DRAGOMAN_OK;
}

static int run_max_pool(struct run *run, const struct operation *operation) {
    const struct value *x = &run->values[operation->inputs[0]];
    int size = operation->settings[MAX_POOL_SIZE].number, stride = operation->settings[MAX_POOL_STRIDE].number;
    int before = operation->settings[MAX_POOL_BEFORE].number, width = run->phase->shapes[operation->inputs[0]].width;
    struct extent *extent = smaller(run, x->extent, stride);
    struct value *y;
    if (!extent) return fail(run->context, DRAGOMAN_NO_MEMORY, "there is not enough memory");
    TRY(output_make(run, operation, 0, extent, &y));
    for (int i = 0; i < run->items; i++) {
        const float *from = item_of(x, i);
        float *to = item_of(y, i);
        int height = x->extent->height[i], breadth = x->extent->breadth[i];
        for (int place = 0; place < extent->count[i]; place++, to += width) {
            int64_t top = (int64_t)(place / extent->breadth[i]) * stride - before, left = (int64_t)(place % extent->breadth[i]) * stride - before;
            int64_t bottom = top + size < height ? top + size : height, right = left + size < breadth ? left + size : breadth;
            int is_inside = top >= 0 && left >= 0 && top + size <= height && left + size <= breadth;
            for (int c = 0; c < width; c++) to[c] = is_inside ? -INFINITY : 0.0f;
            for (int64_t row = top < 0 ? 0 : top; row < bottom; row++)
                for (int64_t column = left < 0 ? 0 : left; column < right; column++) {
                    const float *own = from + (size_t)(row * breadth + column) * (size_t)width;
                    for (int c = 0; c < width; c++) to[c] = own[c] > to[c] ? own[c] : to[c];
                }
        }
    }
    return DRAGOMAN_OK;
}

int run_picture(struct run *run, const struct operation *operation) {
    switch (operation->kind) {
    case OP_GROUP_NORM: return run_group_norm(run, operation);
    case OP_GRID: return run_grid(run, operation);
    case OP_CONVOLVE_PICTURE: return run_convolve_picture(run, operation);
    default: return run_max_pool(run, operation);
    }
}
