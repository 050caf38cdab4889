/* Operations that look at other positions: of the same source, of earlier tokens, of the source states. */
#include "run.h"

#include <math.h>
#include <string.h>

static int pitch_of(const struct run *run, int positions) {
    int lanes = run->kernels->lanes;
    return (positions + lanes - 1) / lanes * lanes;
}

static float *take(struct run *run, size_t rows, size_t width) { return pool_take(&run->context->pool, rows, width * sizeof(float)); }
static int no_memory(struct run *run) { return fail(run->context, DRAGOMAN_NO_MEMORY, "there is not enough memory"); }

static int run_self_attention(struct run *run, const struct operation *operation) {
    const struct value *x = &run->values[operation->inputs[0]];
    int heads = operation->settings[SELF_ATTENTION_HEADS].number, causal = operation->settings[SELF_ATTENTION_CAUSAL].number;
    int width = run->phase->shapes[operation->inputs[0]].width / 3, part = width / heads, longest = 0;
    struct value *y;
    for (int i = 0; i < run->items; i++) longest = x->extent->count[i] > longest ? x->extent->count[i] : longest;
    TRY(output_make(run, operation, 0, x->extent, &y));
    float *turned = take(run, (size_t)pitch_of(run, longest), (size_t)part);
    float *weights = take(run, (size_t)pitch_of(run, longest), (size_t)longest);
    if (!turned || !weights) return no_memory(run);
    for (int i = 0; i < run->items; i++)
        for (int head = 0; head < heads; head++) {
            const float *query = item_of(x, i) + head * part;
            int positions = x->extent->count[i];
            run->kernels->transpose(query + width, 3 * width, positions, part, turned);
            run->kernels->scores(query, 3 * width, positions, turned, positions, part, 1.0f / sqrtf((float)part), weights);
            run->kernels->attend(weights, positions, positions, causal ? 1 : 0, query + 2 * width, 3 * width, part, item_of(y, i) + head * part, width);
        }
    pool_give(&run->context->pool, turned), pool_give(&run->context->pool, weights);
    return DRAGOMAN_OK;
}

static int run_cached_attention(struct run *run, const struct operation *operation) {
    const float *keys = run->values[operation->inputs[1]].data, *values = run->values[operation->inputs[2]].data, *qkv;
    int heads = operation->settings[CACHED_ATTENTION_HEADS].number, width = run->phase->shapes[operation->inputs[1]].width, rows, most = 0;
    struct value *y, *key, *value;
    float *owned;
    TRY(rows_of(run, operation->inputs[0], &qkv, &rows, &owned));
    TRY(output_make(run, operation, 0, NULL, &y));
    TRY(output_make(run, operation, 1, NULL, &key));
    TRY(output_make(run, operation, 2, NULL, &value));
    for (int n = 0; n < run->items; n++) most = run->cached[n] > most ? run->cached[n] : most;
    float *weights = take(run, (size_t)heads, (size_t)most + 1);
    if (!weights) return no_memory(run);
    for (int n = 0; n < run->items; n++, qkv += 3 * width) {
        run->kernels->attend_cached(qkv, keys, values, run->numbers + (size_t)n * (size_t)run->number_pitch, run->cached[n], width, heads, weights, item_of(y, n));
        memcpy(item_of(key, n), qkv + width, (size_t)width * sizeof(float));
        memcpy(item_of(value, n), qkv + 2 * width, (size_t)width * sizeof(float));
    }
    pool_give(&run->context->pool, weights), pool_give(&run->context->pool, owned);
    return DRAGOMAN_OK;
}

/* Hypotheses of one source, which look at the same keys. */
struct group {
    int first, count, source, positions;
};

static struct group group_at(const struct run *run, int first, const struct value *keys) {
    struct group group = {first, 1, run->source[first], count_of(keys, first, 0)};
    /* Keys that a hypothesis has of its own are looked at alone. */
    while (keys->item && first + group.count < run->items && run->source[first + group.count] == group.source) group.count++;
    return group;
}

/* The transposed keys of a group: the copy that was made once, or one made now in `room`. */
static const float *turned_keys(struct run *run, const struct operation *operation, const struct group *group, float *room) {
    const struct value *keys = &run->values[operation->inputs[1]];
    int fixed = operation->inputs[1] - 1, width = run->phase->shapes[operation->inputs[1]].width;
    if (keys->item && fixed < run->model->fixed_count && run->memory->turned[fixed])
        return run->memory->turned[fixed][group->source];
    run->kernels->transpose(item_of(keys, group->first), width, group->positions, width, room);
    return room;
}

static int run_cross_attention(struct run *run, const struct operation *operation) {
    const struct value *query = &run->values[operation->inputs[0]], *keys = &run->values[operation->inputs[1]], *values = &run->values[operation->inputs[2]];
    int width = run->phase->shapes[operation->inputs[1]].width, wide = run->phase->shapes[operation->inputs[2]].width;
    int heads = operation->settings[CROSS_ATTENTION_HEADS].number, part = width / heads, broad = wide / heads, longest = 0, rows;
    float scale = operation->settings[CROSS_ATTENTION_SCALE].real, *owned;
    const float *queries;
    struct value *y, *weights;
    (void)query;
    TRY(rows_of(run, operation->inputs[0], &queries, &rows, &owned));
    TRY(output_make(run, operation, 0, NULL, &y));
    TRY(output_make(run, operation, 1, run->states, &weights));
    for (int n = 0; n < run->items; n++) longest = count_of(keys, n, 0) > longest ? count_of(keys, n, 0) : longest;
    float *turned = take(run, (size_t)pitch_of(run, longest), (size_t)width), *scores = take(run, (size_t)pitch_of(run, longest), (size_t)run->items);
    if (!turned || !scores) return no_memory(run);
    for (int n = 0; n < run->items;) {
        struct group group = group_at(run, n, keys);
        int pitch = pitch_of(run, group.positions);
        const float *own = turned_keys(run, operation, &group, turned);
        for (int head = 0; head < heads; head++) {
            run->kernels->scores(queries + (size_t)n * (size_t)width + head * part, width, group.count, own + (size_t)(head * part) * (size_t)pitch, group.positions, part, scale, scores);
            run->kernels->attend(scores, group.count, group.positions, 0, item_of(values, n) + head * broad, wide, broad, item_of(y, n) + head * broad, wide);
            for (int i = 0; i < group.count; i++)
                memcpy(item_of(weights, n + i) + (size_t)head * (size_t)group.positions, scores + (size_t)i * (size_t)pitch, (size_t)group.positions * sizeof(float));
        }
        n += group.count;
    }
    pool_give(&run->context->pool, turned), pool_give(&run->context->pool, scores), pool_give(&run->context->pool, owned);
    return DRAGOMAN_OK;
}

static int run_dot_scores(struct run *run, const struct operation *operation) {
    const struct value *keys = &run->values[operation->inputs[1]];
    int width = run->phase->shapes[operation->inputs[1]].width, longest = 0, rows;
    const float *queries;
    float *owned;
    struct value *y;
    TRY(rows_of(run, operation->inputs[0], &queries, &rows, &owned));
    TRY(output_make(run, operation, 0, run->states, &y));
    for (int n = 0; n < run->items; n++) longest = count_of(keys, n, 0) > longest ? count_of(keys, n, 0) : longest;
    float *turned = take(run, (size_t)pitch_of(run, longest), (size_t)width), *scores = take(run, (size_t)pitch_of(run, longest), (size_t)run->items);
    if (!turned || !scores) return no_memory(run);
    for (int n = 0; n < run->items;) {
        struct group group = group_at(run, n, keys);
        const float *own = turned_keys(run, operation, &group, turned);
        run->kernels->scores(queries + (size_t)n * (size_t)width, width, group.count, own, group.positions, width, operation->settings[DOT_SCORES_SCALE].real, scores);
        for (int i = 0; i < group.count; i++)
            memcpy(item_of(y, n + i), scores + (size_t)i * (size_t)pitch_of(run, group.positions), (size_t)group.positions * sizeof(float));
        n += group.count;
    }
    pool_give(&run->context->pool, turned), pool_give(&run->context->pool, scores), pool_give(&run->context->pool, owned);
    return DRAGOMAN_OK;
}

static int run_additive_scores(struct run *run, const struct operation *operation) {
    const struct value *query = &run->values[operation->inputs[0]], *keys = &run->values[operation->inputs[1]];
    const float *vector = run->model->weights[operation->weights[0]].data;
    int width = run->phase->shapes[operation->inputs[1]].width;
    struct value *y;
    TRY(output_make(run, operation, 0, run->states, &y));
    for (int n = 0; n < run->items; n++) {
        const float *own = item_of(query, n), *key = item_of(keys, n);
        float *to = item_of(y, n);
        for (int s = 0; s < count_of(keys, n, 0); s++, key += width) to[s] = run->kernels->tanh_dot(own, key, vector, width);
    }
    return DRAGOMAN_OK;
}

/* Location-aware attention (Chorowski et al. 2015, equation 8): the previous weights are convolved. */
static int run_locate(struct run *run, const struct operation *operation) {
    const struct value *previous = &run->values[operation->inputs[0]], *keys = &run->values[operation->inputs[1]];
    const struct weight *filters = &run->model->weights[operation->weights[0]], *place = &run->model->weights[operation->weights[1]];
    int width = run->phase->shapes[operation->inputs[1]].width, size = filters->dims[1], count = filters->dims[0];
    struct value *y;
    TRY(output_make(run, operation, 0, run->states, &y));
    float *features = take(run, 1, (size_t)count);
    if (!features) return no_memory(run);
    for (int n = 0; n < run->items; n++) {
        const float *weights = item_of(previous, n), *key = item_of(keys, n);
        float *to = item_of(y, n);
        int positions = count_of(keys, n, 0);
        for (int s = 0; s < positions; s++, key += width, to += width) {
            for (int f = 0; f < count; f++) {
                features[f] = 0.0f;
                for (int k = 0; k < size; k++) {
                    int at = s + k - size / 2;
                    if (at >= 0 && at < positions) features[f] += filters->data[(size_t)f * (size_t)size + (size_t)k] * weights[at];
                }
            }
            for (int k = 0; k < width; k++) to[k] = key[k] + run->kernels->dot(features, place->data + (size_t)k * (size_t)count, count);
        }
    }
    pool_give(&run->context->pool, features);
    return DRAGOMAN_OK;
}

static int run_weighted_sum(struct run *run, const struct operation *operation) {
    const struct value *weights = &run->values[operation->inputs[0]], *values = &run->values[operation->inputs[1]];
    int width = run->phase->shapes[operation->inputs[1]].width;
    struct value *y;
    TRY(output_make(run, operation, 0, NULL, &y));
    for (int n = 0; n < run->items; n++) {
        float *to = item_of(y, n);
        memset(to, 0, (size_t)width * sizeof(float));
        for (int s = 0; s < count_of(values, n, 0); s++)
            run->kernels->add_scaled(to, item_of(values, n) + (size_t)s * (size_t)width, item_of(weights, n)[s], width);
    }
    return DRAGOMAN_OK;
}

int run_attention(struct run *run, const struct operation *operation) {
    switch (operation->kind) {
    case OP_SELF_ATTENTION: return run_self_attention(run, operation);
    case OP_CACHED_ATTENTION: return run_cached_attention(run, operation);
    case OP_CROSS_ATTENTION: return run_cross_attention(run, operation);
    case OP_DOT_SCORES: return run_dot_scores(run, operation);
    case OP_ADDITIVE_SCORES: return run_additive_scores(run, operation);
    case OP_LOCATE: return run_locate(run, operation);
    default: return run_weighted_sum(run, operation);
    }
}
