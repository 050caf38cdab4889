/* Run a program: encode a batch of sources, and advance hypotheses by one token. */
#include "run.h"

#include <stdlib.h>
#include <string.h>

enum { LONGEST = 1 << 26 };

static int no_memory(struct dragoman_context *context) { return fail(context, DRAGOMAN_NO_MEMORY, "there is not enough memory"); }

static int run_operation(struct run *run, const struct operation *operation) {
    switch (operation->kind) {
    case OP_RECURRENT:
    case OP_CONVOLVE: return run_sequence(run, operation);
    case OP_GROUP_NORM:
    case OP_GRID:
    case OP_CONVOLVE_PICTURE:
    case OP_MAX_POOL: return run_picture(run, operation);
    case OP_SELF_ATTENTION:
    case OP_CACHED_ATTENTION:
    case OP_CROSS_ATTENTION:
    case OP_DOT_SCORES:
    case OP_ADDITIVE_SCORES:
    case OP_LOCATE:
    case OP_WEIGHTED_SUM: return run_attention(run, operation);
    default: return run_rows(run, operation);
    }
}

/* Rows as bytes, in memory of the pool. */
static int quantize(struct run *run, const float *x, int rows, int inputs, uint8_t **bytes, float **scales) {
    *bytes = pool_take(&run->context->pool, (size_t)rows, (size_t)run->kernels->byte_stride(inputs));
    *scales = pool_take(&run->context->pool, (size_t)rows, sizeof **scales);
    if (!*bytes || !*scales) return no_memory(run->context);
    run->kernels->quantize(x, inputs, rows, inputs, *bytes, *scales);
    return DRAGOMAN_OK;
}

int multiply(struct run *run, const struct weight *weight, const float *x, int rows, const float *bias, float *y, int activation) {
    int outputs = weight->dims[0], inputs = (int)(weight->size / (size_t)outputs);
    if (!weight->panels.bytes) {
        run->kernels->product(x, inputs, rows, inputs, weight->packed, bias, outputs, y, outputs, activation);
        return DRAGOMAN_OK;
    }
    uint8_t *bytes;
    float *scales;
    TRY(quantize(run, x, rows, inputs, &bytes, &scales));
    run->kernels->product_bytes(bytes, scales, rows, &weight->panels, bias, y, outputs, activation);
    pool_give(&run->context->pool, bytes), pool_give(&run->context->pool, scales);
    return DRAGOMAN_OK;
}

int project(struct run *run, const struct weight *weight, const float *x, int rows, const float *bias, float *scores, struct row_sums *sums, float *best) {
    int outputs = weight->dims[0], inputs = weight->dims[1];
    ptrdiff_t stride = score_stride(run->model);
    if (!weight->panels.bytes) {
        run->kernels->project(x, rows, inputs, weight->packed, bias, outputs, scores, stride, sums, best);
        return DRAGOMAN_OK;
    }
    uint8_t *bytes;
    float *scales;
    TRY(quantize(run, x, rows, inputs, &bytes, &scales));
    run->kernels->project_bytes(bytes, scales, rows, &weight->panels, bias, scores, stride, sums, best);
    pool_give(&run->context->pool, bytes), pool_give(&run->context->pool, scales);
    return DRAGOMAN_OK;
}

/* Give the memory of a value back that nobody reads after operation `now`. */
static void drop_value(struct run *run, int number, int now) {
    if (number == ABSENT || run->is_step || run->phase->last_use[number] > now) return;
    pool_give(&run->context->pool, run->values[number].data);
    run->values[number].data = NULL;
}

int run_operations(struct run *run, int skip) {
    for (int i = 0; i < run->phase->count; i++) {
        const struct operation *operation = &run->phase->operations[i];
        if (i == skip) continue;
        TRY(run_operation(run, operation));
        for (int j = 0; j < operation->input_count; j++) drop_value(run, operation->inputs[j], i);
        for (int j = 0; j < MAX_OUTPUTS; j++) drop_value(run, operation->outputs[j], i);
    }
    return DRAGOMAN_OK;
}

/* ---- encode */

/* Copy one source of all inputs, one after the other, and check what is in it. */
static int load_source(struct run *run, int index, const struct dragoman_input *inputs) {
    const struct source *source = &run->model->sources[index];
    int sources = run->model->source_count;
    int32_t *counts = pool_take(&run->context->pool, (size_t)run->items, sizeof *counts);
    if (!counts) return no_memory(run->context);
    for (int i = 0; i < run->items; i++) {
        const struct dragoman_input *input = &inputs[i * sources + index];
        int is_picture = source->kind == PICTURE;
        if (!input->data || input->length < 1 || input->length > LONGEST ||
            (is_picture && (input->height < 1 || input->breadth < 1 || (int64_t)input->height * input->breadth != input->length)))
            return fail(run->context, DRAGOMAN_BAD_INPUT, "input %d has an impossible length", i + 1);
        counts[i] = input->length;
    }
    struct extent *extent = extent_make(run->context, run->items, counts, source->kind == PICTURE);
    pool_give(&run->context->pool, counts);
    if (!extent) return no_memory(run->context);
    if (extent->first[run->items] > MOST_POSITIONS) return fail(run->context, DRAGOMAN_NO_MEMORY, "the sources are too long together");
    int64_t unit = source->kind == TOKENS ? 1 : source->width;
    float *data = pool_take(&run->context->pool, (size_t)extent->first[run->items], (size_t)unit * sizeof(float)), *to = data;
    if (!data) return no_memory(run->context);
    for (int i = 0; i < run->items; i++) {
        const struct dragoman_input *input = &inputs[i * sources + index];
        if (extent->height) extent->height[i] = input->height, extent->breadth[i] = input->breadth;
        memcpy(to, input->data, (size_t)input->length * (size_t)unit * sizeof(float));
        const int32_t *tokens = (const int32_t *)(const void *)to;
        for (int t = 0; t < input->length && source->kind == TOKENS; t++)
            if (tokens[t] < 0 || tokens[t] >= source->width)
                return fail(run->context, DRAGOMAN_BAD_INPUT, "input %d has a token that the model does not know", i + 1);
        to += (size_t)input->length * (size_t)unit;
    }
    run->values[index] = (struct value){data, extent, unit, NULL, NULL};
    return DRAGOMAN_OK;
}

static int same_counts(const struct extent *a, const struct extent *b, int items) {
    return a == b || (a && b && memcmp(a->count, b->count, (size_t)items * sizeof *a->count) == 0);
}

/* What a step takes for granted: all that has as many rows as there are states really has. */
static int check_lengths(struct run *run) {
    const struct dragoman_model *model = run->model;
    const struct memory *memory = run->memory;
    const struct extent *cached = NULL;
    int is_same = 1, has_cache = 0;
    for (int i = 0; i < model->fixed_count; i++) {
        const struct extent *extent = memory->values[model->fixed[i]].extent;
        is_same &= !extent || same_counts(extent, memory->states, run->items);
    }
    for (int i = 0; i < model->slot_count; i++) {
        const struct slot *slot = &model->slots[i];
        const struct extent *extent = slot->begin == ABSENT ? NULL : memory->values[slot->begin].extent;
        if (slot->grows) {
            is_same &= !has_cache || extent == cached || same_counts(extent, cached, run->items);
            is_same &= slot->begin == ABSENT || extent;
            cached = extent, has_cache = 1;
        } else {
            is_same &= !extent || same_counts(extent, memory->states, run->items);
        }
    }
    return is_same ? DRAGOMAN_OK : fail(run->context, DRAGOMAN_BAD_INPUT, "values of one source that belong together have different lengths");
}

/* Keep transposed copies of the keys that every step compares with. */
static int turn_keys(struct run *run, struct memory *memory) {
    int lanes = run->kernels->lanes;
    for (int i = 0; i < run->model->fixed_count; i++) {
        const struct value *keys = &memory->values[run->model->fixed[i]];
        memory->turned[i] = NULL;
        if (!run->model->is_turned[i]) continue;
        int width = run->model->step.shapes[1 + i].width;
        int64_t size = 0;
        for (int b = 0; b < run->items; b++) size += (int64_t)((keys->extent->count[b] + lanes - 1) / lanes * lanes) * width;
        float **places = pool_take(&run->context->pool, (size_t)run->items, sizeof *places);
        float *turned = pool_take(&run->context->pool, (size_t)size, sizeof *turned);
        if (!places || !turned) return no_memory(run->context);
        for (int b = 0; b < run->items; b++) {
            run->kernels->transpose(item_of(keys, b), width, keys->extent->count[b], width, turned);
            places[b] = turned;
            turned += (int64_t)((keys->extent->count[b] + lanes - 1) / lanes * lanes) * width;
        }
        memory->turned[i] = places;
    }
    return DRAGOMAN_OK;
}

static int encode(struct dragoman_context *context, int count, const struct dragoman_input *inputs) {
    const struct dragoman_model *model = context->model;
    struct memory *memory = &context->memory;
    struct run run = {.context = context, .model = model, .kernels = model->kernels, .phase = &model->encode, .values = memory->values, .items = count, .memory = memory};
    for (int i = 0; i < model->source_count; i++) TRY(load_source(&run, i, inputs));
    TRY(run_operations(&run, ABSENT));
    memory->states = model->states == ABSENT ? NULL : memory->values[model->states].extent;
    for (int i = 0; i < count && memory->states; i++)
        if (memory->states->count[i] < 1) return fail(context, DRAGOMAN_BAD_INPUT, "input %d is too short for this model", i + 1);
    TRY(check_lengths(&run));
    return turn_keys(&run, memory);
}

int dragoman_encode(dragoman_context *context, int count, const struct dragoman_input *inputs) {
    context->memory.sources = 0;
    pool_give_all(&context->pool);
    extents_drop(context, 0);
    memset(context->memory.values, 0, (size_t)context->model->encode.values * sizeof *context->memory.values);
    if (count < 1 || count > 1 << 20) return fail(context, DRAGOMAN_BAD_INPUT, "the number of inputs is impossible");
    int reason = encode(context, count, inputs);
    if (!reason) context->memory.sources = count, context->encode_extents = context->extent_count;
    return reason;
}

/* ---- copies for others */

static int find_value(const struct dragoman_context *context, int which, int index) {
    const struct dragoman_model *model = context->model;
    switch (which) {
    case DRAGOMAN_OF_FIXED: return index >= 0 && index < model->fixed_count ? model->fixed[index] : ABSENT;
    case DRAGOMAN_OF_SLOT: return index >= 0 && index < model->slot_count ? model->slots[index].begin : ABSENT;
    case DRAGOMAN_OF_STATES: return model->states;
    case DRAGOMAN_OF_BEGIN: return model->begin;
    case DRAGOMAN_OF_CTC: return model->ctc;
    case DRAGOMAN_OF_SUMMARY: return model->summary;
    default: return ABSENT;
    }
}

int dragoman_lengths(const dragoman_context *context, int which, int index, int32_t *lengths) {
    int number = find_value(context, which, index);
    if (number == ABSENT || !context->memory.sources) return DRAGOMAN_BAD_INPUT;
    for (int i = 0; i < context->memory.sources; i++) lengths[i] = count_of(&context->memory.values[number], i, context->model->encode.shapes[number].rows);
    return DRAGOMAN_OK;
}

int dragoman_copy(const dragoman_context *context, int which, int index, float *to, size_t pitch) {
    int number = find_value(context, which, index);
    if (number == ABSENT || !context->memory.sources) return DRAGOMAN_BAD_INPUT;
    const struct value *value = &context->memory.values[number];
    for (int i = 0; i < context->memory.sources; i++) {
        size_t size = (size_t)(value->extent ? value->extent->count[i] * value->unit : value->unit);
        if (size > pitch) return DRAGOMAN_BAD_INPUT;
        memcpy(to + (size_t)i * pitch, item_of(value, i), size * sizeof(float));
    }
    return DRAGOMAN_OK;
}

/* ---- step */

ptrdiff_t score_stride(const struct dragoman_model *model) { return (model->vocabulary + BLOCK - 1) / BLOCK * BLOCK; }

int step_reserve(struct dragoman_context *context, int rows, int64_t states) {
    const struct phase *step = &context->model->step;
    size_t *sizes = context->buffer_offset, total = 0;
    memset(sizes, 0, (size_t)step->buffers * sizeof *sizes);
    for (int i = step->given; i < step->values; i++) {
        const struct shape *shape = &step->shapes[i];
        if (i == context->model->logits) continue;
        int64_t unit = shape->rows == MANY ? shape->width : shape->width == MANY ? shape->rows : (int64_t)shape->rows * shape->width;
        int64_t count = shape->rows == MANY || shape->width == MANY ? states : rows;
        if (unit && count > INT64_MAX / 64 / unit) return no_memory(context);
        size_t size = ((size_t)(unit * count) + 31) / 16 * 16;
        if (size > sizes[step->buffer[i]]) sizes[step->buffer[i]] = size;
    }
    for (int i = 0; i < step->buffers; i++) {
        size_t size = sizes[i];
        sizes[i] = total;
        if (size > SIZE_MAX / 8 - total) return no_memory(context);
        total += size;
    }
    if (total <= context->arena_size) return DRAGOMAN_OK;
    free(context->arena);
    context->arena = malloc(total * sizeof(float));
    context->arena_size = context->arena ? total : 0;
    return context->arena ? DRAGOMAN_OK : no_memory(context);
}

int step_run(struct run *run, float *scores, struct row_sums *sums, float *best) {
    const struct operation *readout = &run->phase->operations[run->model->readout];
    const struct weight *weight = &run->model->weights[readout->weights[0]];
    const float *bias = readout->weights[1] == ABSENT ? NULL : run->model->weights[readout->weights[1]].data, *x;
    float *owned;
    int rows;
    TRY(run_operations(run, run->model->readout));
    TRY(rows_of(run, readout->inputs[0], &x, &rows, &owned));
    TRY(project(run, weight, x, rows, bias, scores, sums, best));
    pool_give(&run->context->pool, owned);
    return DRAGOMAN_OK;
}

/* The fixed values and slots as a caller holds them, with padding. */
static int given_values(struct run *run, const struct dragoman_rows *rows, const struct extent *padded, const struct extent *columns) {
    const struct dragoman_model *model = run->model;
    struct value *given = run->values;
    *given++ = (struct value){(float *)(void *)(uintptr_t)rows->tokens, NULL, 1, NULL, NULL};
    for (int i = 0; i < model->fixed_count; i++) {
        const struct shape *shape = &model->step.shapes[1 + i];
        size_t least = (size_t)shape->width * (size_t)(shape->rows == MANY ? rows->longest : shape->rows);
        if (rows->fixed_pitch[i] != least) return fail(run->context, DRAGOMAN_BAD_INPUT, "fixed value %d has a wrong size", i);
        *given++ = (struct value){(float *)(uintptr_t)rows->fixed[i], shape->rows == MANY ? padded : NULL,
                                  shape->rows == MANY ? shape->width : (int64_t)least, rows->source, NULL};
    }
    for (int i = 0; i < model->slot_count; i++) {
        const struct slot *slot = &model->slots[i];
        size_t size = (size_t)slot->rows * (size_t)(slot->width == MANY ? rows->longest : slot->width);
        if (slot->grows ? rows->slot_pitch[i] != (size_t)run->number_pitch * (size_t)slot->width : rows->slot_pitch[i] != size)
            return fail(run->context, DRAGOMAN_BAD_INPUT, "slot %d has a wrong size", i);
        *given++ = (struct value){(float *)(uintptr_t)rows->slots[i], slot->width == MANY ? columns : NULL, slot->width == MANY ? slot->rows : (int64_t)size, NULL, NULL};
    }
    return DRAGOMAN_OK;
}

/* The numbers of cached rows: those of hypothesis n follow each other from n * pitch on. */
static int32_t *plain_numbers(struct run *run, const struct dragoman_rows *rows) {
    for (int n = 0; n < rows->rows; n++) run->number_pitch = rows->cached[n] > run->number_pitch ? rows->cached[n] : run->number_pitch;
    int32_t *numbers = pool_take(&run->context->pool, (size_t)rows->rows, (size_t)run->number_pitch * sizeof *numbers);
    for (int n = 0; n < rows->rows && numbers; n++)
        for (int p = 0; p < run->number_pitch; p++) numbers[(size_t)n * (size_t)run->number_pitch + (size_t)p] = n * run->number_pitch + p;
    return numbers;
}

static int check_rows(struct dragoman_context *context, const struct dragoman_rows *rows) {
    const struct dragoman_model *model = context->model;
    int is_right = rows->rows >= 1 && rows->sources >= 1 && rows->rows <= 1 << 24 && rows->sources <= 1 << 24 && rows->longest >= 0;
    for (int n = 0; n < rows->rows && is_right; n++) {
        is_right &= rows->source[n] >= 0 && rows->source[n] < rows->sources && rows->tokens[n] >= 0 && rows->tokens[n] < model->vocabulary;
        is_right &= rows->positions[n] >= 0 && rows->positions[n] < LONGEST && (!model->has_caches || (rows->cached[n] >= 0 && rows->cached[n] < LONGEST));
    }
    for (int b = 0; b < rows->sources && is_right && model->states != ABSENT; b++) is_right &= rows->lengths[b] >= 1 && rows->lengths[b] <= rows->longest;
    return is_right ? DRAGOMAN_OK : fail(context, DRAGOMAN_BAD_INPUT, "the rows of a step are impossible");
}

static void copy_results(const struct run *run, const struct dragoman_rows *rows, const float *scores, ptrdiff_t stride, const struct row_sums *sums) {
    const struct dragoman_model *model = run->model;
    for (int n = 0; n < rows->rows; n++)
        for (int v = 0; v < model->vocabulary; v++)
            rows->log_probs[(size_t)n * (size_t)model->vocabulary + (size_t)v] = scores[n * stride + v] - sums[n].normalizer;
    for (int i = 0; i < model->slot_count; i++) {
        const struct slot *slot = &model->slots[i];
        const struct value *end = &run->values[slot->end];
        for (int n = 0; n < rows->rows; n++) {
            float *to = rows->next[i] + (size_t)n * rows->next_pitch[i];
            size_t size = (size_t)(end->extent ? count_of(end, n, 0) * end->unit : end->unit);
            memcpy(to, item_of(end, n), size * sizeof(float));
        }
    }
    if (!rows->attention) return;
    for (int n = 0; n < rows->rows; n++) {
        float *to = rows->attention + (size_t)n * (size_t)model->maps * (size_t)rows->longest;
        memset(to, 0, (size_t)model->maps * (size_t)rows->longest * sizeof(float));
        for (int i = 0; i < model->attention_count; i++) {
            const struct value *weights = &run->values[model->attention[i]];
            int positions = count_of(weights, n, 0);
            for (int a = 0; a < model->step.shapes[model->attention[i]].rows; a++, to += rows->longest)
                memcpy(to, item_of(weights, n) + (size_t)a * (size_t)positions, (size_t)positions * sizeof(float));
        }
    }
}

static int step(struct dragoman_context *context, const struct dragoman_rows *rows) {
    const struct dragoman_model *model = context->model;
    struct memory memory = {.sources = rows->sources};
    struct run run = {.context = context, .model = model, .kernels = model->kernels, .phase = &model->step, .values = context->values, .is_step = 1,
                      .items = rows->rows, .memory = &memory, .source = rows->source, .position = rows->positions, .cached = rows->cached};
    struct extent *padded = NULL, *columns = NULL, *states = NULL;
    int32_t *numbers = NULL, *counts = pool_take(&context->pool, (size_t)rows->rows, sizeof *counts);
    memory.turned = pool_take(&context->pool, (size_t)model->fixed_count + 1, sizeof *memory.turned);
    if (!counts || !memory.turned) return no_memory(context);
    memset(memory.turned, 0, ((size_t)model->fixed_count + 1) * sizeof *memory.turned);
    if (model->states != ABSENT) {
        for (int n = 0; n < rows->rows; n++) counts[n] = rows->lengths[rows->source[n]];
        padded = extent_make(context, rows->sources, rows->lengths, 0);
        columns = extent_make(context, rows->rows, counts, 0);
        states = extent_make(context, rows->rows, counts, 0);
        if (!padded || !columns || !states) return no_memory(context);
        for (int b = 0; b < rows->sources; b++) padded->first[b] = (int64_t)b * rows->longest;
        for (int n = 0; n < rows->rows; n++) columns->first[n] = (int64_t)n * rows->longest;
        run.states = states;
    }
    if (model->has_caches && !(numbers = plain_numbers(&run, rows))) return no_memory(context);
    run.numbers = numbers;
    TRY(given_values(&run, rows, padded, columns));
    TRY(step_reserve(context, rows->rows, states ? states->first[rows->rows] : 0));
    ptrdiff_t stride = score_stride(model);
    float *scores = pool_take(&context->pool, (size_t)rows->rows, (size_t)stride * sizeof *scores);
    float *best = pool_take(&context->pool, (size_t)rows->rows, (size_t)(stride / BLOCK) * sizeof *best);
    struct row_sums *sums = pool_take(&context->pool, (size_t)rows->rows, sizeof *sums);
    if (!scores || !best || !sums) return no_memory(context);
    TRY(step_run(&run, scores, sums, best));
    copy_results(&run, rows, scores, stride, sums);
    return DRAGOMAN_OK;
}

/* A step of the caller's rows. What was encoded before is given up: the context keeps one or the other. */
int dragoman_step(dragoman_context *context, const struct dragoman_rows *rows) {
    TRY(check_rows(context, rows));
    context->memory.sources = 0;
    pool_give_all(&context->pool);
    extents_drop(context, 0);
    return step(context, rows);
}
