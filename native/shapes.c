/* Infer the shapes of all values, and refuse a program that could not run. */
#include "model.h"

#include <stdio.h>
#include <string.h>

enum { WIDEST = 1 << 22, MOST = 1 << 26 };

struct inference {
    struct dragoman_model *model;
    struct phase *phase;
    const struct operation *operation;
    int number, is_step;
    char *message;
    size_t room;
};

static int refuse(const struct inference *at, const char *why) {
    snprintf(at->message, at->room, "operation %d of %s (%s): %s", at->number, at->is_step ? "step" : "encode",
             operation_forms[at->operation->kind].name, why);
    return -1;
}

#define NEED(condition, why) \
    do { \
        if (!(condition)) return refuse(at, why); \
    } while (0)

static const struct shape *input(const struct inference *at, int index) {
    int number = at->operation->inputs[index];
    return number == ABSENT ? NULL : &at->phase->shapes[number];
}

/* Rows of floats, as many as there may be; `MANY` columns only where an operation says so. */
static int is_rows(const struct shape *shape) { return shape && shape->kind == ROWS && shape->width != MANY; }
static int is_one_row(const struct shape *shape) { return is_rows(shape) && shape->rows == 1; }
static int is_states(const struct shape *shape) { return is_rows(shape) && shape->rows == MANY; }
static int is_weights(const struct shape *shape) { return shape && shape->kind == ROWS && shape->width == MANY; }
static int is_picture(const struct shape *shape) { return shape && shape->kind == PICTURE; }

static struct weight *weight_at(const struct inference *at, int index) {
    int number = at->operation->weights[index];
    return number == ABSENT ? NULL : &at->model->weights[number];
}

static int has_dims(const struct weight *weight, int rank, int64_t first, int64_t second) {
    return weight->rank == rank && weight->dims[0] == first && (rank < 2 || weight->dims[1] == second);
}

/* A vector that may be absent. */
static int is_vector(const struct weight *weight, int width) { return !weight || has_dims(weight, 1, width, 0); }

/* `model.c` makes what is wanted, once for each weight. */
static void want_packed(struct weight *weight) { weight->wants_packed = 1; }
static void want_plain(struct weight *weight) {
    if (weight) weight->wants_plain = 1;
}

static int set_output(const struct inference *at, int index, int kind, int64_t rows, int64_t width) {
    int number = at->operation->outputs[index];
    NEED(width == MANY || (width >= 1 && width <= WIDEST), "the result is too wide");
    NEED(rows == MANY || (rows >= 0 && rows <= WIDEST), "the result has too many rows");
    NEED(width == MANY || rows == MANY || rows * width <= MOST, "the result is too large");
    if (number != ABSENT) at->phase->shapes[number] = (struct shape){kind, (int)rows, (int)width};
    return 0;
}

static int activated_width(const struct inference *at, int setting, int64_t width, int64_t *result) {
    int activation = at->operation->settings[setting].number;
    NEED(activation != ACT_GLU || width % 2 == 0, "glu needs an even width");
    *result = activation == ACT_GLU ? width / 2 : width;
    return 0;
}

static int infer_recurrent(const struct inference *at) {
    const struct shape *x = input(at, 0), *hidden = input(at, 1), *cell = input(at, 2);
    int kind = at->operation->settings[RECURRENT_CELL].number, reverse = at->operation->settings[RECURRENT_REVERSE].number;
    int gates = kind == CELL_LSTM ? 4 : kind == CELL_GRU ? 3 : 1;
    struct weight *in = weight_at(at, 0), *own = weight_at(at, 1), *bias = weight_at(at, 2), *extra = weight_at(at, 3);
    NEED(is_rows(x) && (reverse == 0 || reverse == 1), "x must have rows");
    NEED(own->rank == 2 && own->dims[0] == (int64_t)gates * own->dims[1], "the recurrent weights have a wrong shape");
    int width = own->dims[1];
    NEED(has_dims(in, 2, own->dims[0], x->width), "the input weights have a wrong shape");
    NEED(is_vector(bias, own->dims[0]) && is_vector(extra, width), "a bias has a wrong shape");
    NEED(!hidden || (is_one_row(hidden) && hidden->width == width), "the hidden state has a wrong shape");
    NEED(!cell || (is_one_row(cell) && cell->width == width && kind == CELL_LSTM), "the cell has a wrong shape");
    NEED((at->operation->outputs[2] != ABSENT) == (kind == CELL_LSTM), "only an lstm has a cell");
    want_packed(in), want_packed(own), want_plain(bias), want_plain(extra);
    if (set_output(at, 0, ROWS, x->rows, width) || set_output(at, 1, ROWS, 1, width)) return -1;
    return set_output(at, 2, ROWS, 1, width);
}

static int infer_join(const struct inference *at) {
    int by_rows = at->operation->settings[JOIN_AXIS].number == AXIS_ROWS;
    const struct shape *first = input(at, 0);
    int64_t rows = 0, width = 0;
    NEED(is_rows(first), "inputs must have rows");
    for (int i = 0; i < at->operation->input_count; i++) {
        const struct shape *each = input(at, i);
        NEED(is_rows(each), "inputs must have rows");
        NEED(by_rows ? each->width == first->width : each->rows == first->rows, "the inputs do not fit each other");
        NEED(!at->is_step || each->rows != MANY || !by_rows, "rows of a step cannot be joined to source states");
        rows = rows == MANY || each->rows == MANY ? MANY : rows + each->rows;
        width += each->width;
        NEED(width <= WIDEST || by_rows, "the result is too wide");
    }
    return by_rows ? set_output(at, 0, ROWS, rows, first->width) : set_output(at, 0, ROWS, first->rows, width);
}

static int infer_slice(const struct inference *at) {
    const struct shape *x = input(at, 0);
    int64_t begin = at->operation->settings[SLICE_BEGIN].number, count = at->operation->settings[SLICE_COUNT].number;
    int by_rows = at->operation->settings[SLICE_AXIS].number == AXIS_ROWS;
    NEED(is_rows(x), "x must have rows");
    int64_t size = by_rows ? x->rows : x->width;
    NEED(count >= 1, "nothing is taken");
    if (size == MANY) {
        NEED(!at->is_step, "source states cannot be sliced in a step");
        NEED(begin < 0 ? begin + count <= 0 : 1, "it ends beyond the last row"); /* the rest is a matter of lengths */
    } else {
        begin += begin < 0 ? size : 0;
        NEED(begin >= 0 && begin + count <= size, "it reaches beyond its input");
    }
    return by_rows ? set_output(at, 0, ROWS, count, x->width) : set_output(at, 0, ROWS, x->rows, count);
}

static int infer_convolve(const struct inference *at) {
    const struct shape *x = input(at, 0);
    const union setting *settings = at->operation->settings;
    struct weight *weight = weight_at(at, 0), *bias = weight_at(at, 1);
    int64_t stride = settings[CONVOLVE_STRIDE].number, before = settings[CONVOLVE_BEFORE].number;
    int64_t after = settings[CONVOLVE_AFTER].number, width = 0;
    NEED(is_rows(x), "x must have rows");
    NEED(weight->rank == 3 && weight->dims[2] == x->width && is_vector(bias, weight->dims[0]), "the weights have a wrong shape");
    NEED(stride >= 1 && before >= 0 && after >= 0 && before <= weight->dims[1] && after <= weight->dims[1], "a setting is impossible");
    NEED(!at->is_step || x->rows != MANY, "source states cannot be convolved in a step");
    if (activated_width(at, CONVOLVE_ACTIVATION, weight->dims[0], &width)) return -1;
    int64_t rows = MANY;
    if (x->rows != MANY) {
        NEED(x->rows + before + after >= weight->dims[1], "the input is shorter than the filter");
        rows = (x->rows + before + after - weight->dims[1]) / stride + 1;
    }
    want_packed(weight), want_plain(bias);
    return set_output(at, 0, ROWS, rows, width);
}

/* Operations of encode alone: those over pictures, and over all positions of a source. */
static int infer_encode(const struct inference *at) {
    const struct operation *operation = at->operation;
    const union setting *settings = operation->settings;
    const struct shape *x = input(at, 0);
    struct weight *first = operation->weights[0] == ABSENT || !operation_forms[operation->kind].weights ? NULL : weight_at(at, 0);
    int64_t width = 0;
    NEED(!at->is_step, "it can only be in encode");
    switch (operation->kind) {
    case OP_POOL_SENTENCES:
        NEED(is_states(x) && input(at, 1)->kind == TOKENS, "it reads vectors and tokens");
        NEED(first->rank == 1 && first->dims[0] >= input(at, 1)->width, "there are more tokens than ends");
        want_plain(first);
        return set_output(at, 0, ROWS, MANY, x->width);
    case OP_GROUP_NORM:
        NEED(is_picture(x), "x must be a picture");
        NEED(settings[GROUP_NORM_GROUPS].number >= 1 && x->width % settings[GROUP_NORM_GROUPS].number == 0, "groups do not divide the channels");
        NEED(is_vector(first, x->width) && is_vector(weight_at(at, 1), x->width), "the weights have a wrong shape");
        want_plain(first), want_plain(weight_at(at, 1));
        return set_output(at, 0, PICTURE, MANY, x->width);
    case OP_GRID:
        NEED(is_picture(x), "x must be a picture");
        NEED(settings[GRID_VECTORS].number == GRID_NONE || x->width % 2 == 0, "the width must be even");
        NEED((settings[GRID_VECTORS].number == GRID_LEARNED) == (first != NULL), "only learned positions have a table");
        NEED(!first || (first->rank == 3 && first->dims[0] == 2 && first->dims[2] == x->width / 2), "the table has a wrong shape");
        want_plain(first);
        return set_output(at, 0, ROWS, MANY, x->width);
    case OP_SELF_ATTENTION:
        NEED(is_states(x) && x->width % 3 == 0, "qkv has a wrong shape");
        NEED(settings[0].number >= 1 && x->width / 3 % settings[0].number == 0, "heads do not divide the width");
        return set_output(at, 0, ROWS, MANY, x->width / 3);
    case OP_CONVOLVE_PICTURE:
        NEED(is_picture(x), "x must be a picture");
        NEED(first->rank == 4 && first->dims[3] == x->width && first->dims[1] == first->dims[2], "the weights have a wrong shape");
        NEED(is_vector(weight_at(at, 1), first->dims[0]), "the bias has a wrong shape");
        NEED(settings[CONVOLVE_PICTURE_STRIDE].number >= 1 && settings[CONVOLVE_PICTURE_BEFORE].number >= 0 &&
             settings[CONVOLVE_PICTURE_BEFORE].number < first->dims[1], "a setting is impossible");
        if (activated_width(at, CONVOLVE_PICTURE_ACTIVATION, first->dims[0], &width)) return -1;
        want_packed(first), want_plain(weight_at(at, 1));
        return set_output(at, 0, PICTURE, MANY, width);
    case OP_MAX_POOL:
        NEED(is_picture(x), "x must be a picture");
        NEED(settings[MAX_POOL_SIZE].number >= 1 && settings[MAX_POOL_SIZE].number <= 1024 && settings[MAX_POOL_STRIDE].number >= 1 &&
             settings[MAX_POOL_BEFORE].number >= 0 && settings[MAX_POOL_BEFORE].number < settings[MAX_POOL_SIZE].number,
             "a setting is impossible");
        return set_output(at, 0, PICTURE, MANY, x->width);
    case OP_PAIR:
        NEED(is_states(x), "x must have rows");
        return set_output(at, 0, ROWS, MANY, 2 * (int64_t)x->width);
    default: /* OP_ZEROS */
        NEED(is_states(x), "x must have rows");
        return set_output(at, 0, ROWS, 1, MANY);
    }
}

/* Operations of step alone: a hypothesis looks at what is before it, or at the source. */
static int infer_step(const struct inference *at) {
    const struct operation *operation = at->operation;
    const struct shape *a = input(at, 0), *b = input(at, 1), *c = operation->input_count > 2 ? input(at, 2) : NULL;
    int heads = operation->settings[0].number;
    NEED(at->is_step, "it can only be in step");
    switch (operation->kind) {
    case OP_CACHED_ATTENTION:
        NEED(is_one_row(a) && b->kind == CACHE && c->kind == CACHE && b->width == c->width && a->width == 3 * (int64_t)b->width,
             "qkv and the caches do not fit each other");
        NEED(heads >= 1 && b->width % heads == 0, "heads do not divide the width");
        if (set_output(at, 0, ROWS, 1, b->width) || set_output(at, 1, ROWS, 1, b->width)) return -1;
        return set_output(at, 2, ROWS, 1, b->width);
    case OP_CROSS_ATTENTION:
        NEED(is_one_row(a) && is_states(b) && is_states(c) && a->width == b->width, "query, keys and values do not fit each other");
        NEED(heads >= 1 && b->width % heads == 0 && c->width % heads == 0, "heads do not divide the width");
        return set_output(at, 0, ROWS, 1, c->width) || set_output(at, 1, ROWS, heads, MANY);
    case OP_DOT_SCORES:
        NEED(is_one_row(a) && is_states(b) && a->width == b->width, "query and keys do not fit each other");
        return set_output(at, 0, ROWS, 1, MANY);
    case OP_ADDITIVE_SCORES:
        NEED(is_one_row(a) && is_states(b) && a->width == b->width && is_vector(weight_at(at, 0), a->width),
             "query, keys and vector do not fit each other");
        want_plain(weight_at(at, 0));
        return set_output(at, 0, ROWS, 1, MANY);
    case OP_LOCATE: {
        struct weight *filters = weight_at(at, 0), *place = weight_at(at, 1);
        NEED(is_weights(a) && a->rows == 1 && is_states(b), "it reads weights and keys");
        NEED(filters->rank == 2 && filters->dims[1] % 2 == 1 && has_dims(place, 2, b->width, filters->dims[0]), "the weights have a wrong shape");
        want_plain(filters), want_plain(place);
        return set_output(at, 0, ROWS, MANY, b->width);
    }
    default: /* OP_WEIGHTED_SUM */
        NEED(is_weights(a) && a->rows == 1 && is_states(b), "it reads weights and values");
        return set_output(at, 0, ROWS, 1, b->width);
    }
}

static int same_shape(const struct shape *a, const struct shape *b) {
    return a->kind == b->kind && a->rows == b->rows && a->width == b->width;
}

static int infer_operation(const struct inference *at) {
    const struct operation *operation = at->operation;
    const struct shape *x = input(at, 0);
    int64_t width = 0;
    if (operation->kind != OP_CACHED_ATTENTION)
        for (int i = 0; i < operation->input_count; i++)
            NEED(!input(at, i) || input(at, i)->kind != CACHE, "only cached_attention reads a slot that grows");
    switch (operation->kind) {
    case OP_EMBED:
        NEED(x->kind == TOKENS, "it reads tokens");
        NEED(weight_at(at, 0)->rank == 2 && weight_at(at, 0)->dims[0] >= x->width, "the table has fewer rows than there are tokens");
        return set_output(at, 0, ROWS, x->rows, weight_at(at, 0)->dims[1]);
    case OP_LINEAR:
        NEED(is_rows(x) || is_picture(x), "x must have rows");
        NEED(weight_at(at, 0)->rank == 2 && weight_at(at, 0)->dims[1] == x->width, "the weights have a wrong shape");
        NEED(is_vector(weight_at(at, 1), weight_at(at, 0)->dims[0]), "the bias has a wrong shape");
        if (activated_width(at, LINEAR_ACTIVATION, weight_at(at, 0)->dims[0], &width)) return -1;
        want_packed(weight_at(at, 0)), want_plain(weight_at(at, 1));
        return set_output(at, 0, x->kind, x->rows, width);
    case OP_AFFINE:
        NEED(is_rows(x) || is_picture(x), "x must have rows");
        NEED(is_vector(weight_at(at, 0), x->width) && is_vector(weight_at(at, 1), x->width), "the weights have a wrong shape");
        if (activated_width(at, AFFINE_ACTIVATION, x->width, &width)) return -1;
        want_plain(weight_at(at, 0)), want_plain(weight_at(at, 1));
        return set_output(at, 0, x->kind, x->rows, width);
    case OP_ADD:
        NEED((x->kind == ROWS || x->kind == PICTURE) && same_shape(x, input(at, 1)), "the inputs do not fit each other");
        NEED(operation->settings[ADD_ACTIVATION].number != ACT_GLU || x->width != MANY, "glu needs a known width");
        if (activated_width(at, ADD_ACTIVATION, x->width, &width)) return -1;
        return set_output(at, 0, x->kind, x->rows, width);
    case OP_MULTIPLY:
        NEED(is_rows(x) && is_rows(input(at, 1)) && input(at, 1)->rows == x->rows &&
             (input(at, 1)->width == x->width || input(at, 1)->width == 1), "the inputs do not fit each other");
        return set_output(at, 0, ROWS, x->rows, x->width);
    case OP_LAYER_NORM:
        NEED(is_rows(x) && is_vector(weight_at(at, 0), x->width) && is_vector(weight_at(at, 1), x->width), "the weights have a wrong shape");
        want_plain(weight_at(at, 0)), want_plain(weight_at(at, 1));
        return set_output(at, 0, ROWS, x->rows, x->width);
    case OP_POSITIONS:
        NEED(is_rows(x) && (!at->is_step || x->rows != MANY), "x must have rows");
        NEED(!weight_at(at, 0) || (weight_at(at, 0)->rank == 2 && weight_at(at, 0)->dims[1] == x->width), "the table has a wrong shape");
        want_plain(weight_at(at, 0));
        return set_output(at, 0, ROWS, x->rows, x->width);
    case OP_ROTATE:
        NEED(is_rows(x) && (!at->is_step || x->rows != MANY) && x->width % 3 == 0, "qkv has a wrong shape");
        NEED(operation->settings[ROTATE_HEADS].number >= 1 && x->width / 3 % operation->settings[ROTATE_HEADS].number == 0 &&
             x->width / 3 / operation->settings[ROTATE_HEADS].number % 2 == 0, "heads do not divide the width into even parts");
        return set_output(at, 0, ROWS, x->rows, x->width);
    case OP_SOFTMAX:
    case OP_SELECT_BEST:
        NEED(x->kind == ROWS && (at->is_step || x->width != MANY), "x must have rows");
        return set_output(at, 0, ROWS, x->rows, x->width);
    case OP_NORMALIZE:
        NEED(is_rows(x), "x must have rows");
        return set_output(at, 0, ROWS, x->rows, x->width);
    case OP_MEAN:
        NEED(is_rows(x) && x->rows != 0 && (!at->is_step || x->rows != MANY), "x must have rows");
        return set_output(at, 0, ROWS, 1, x->width);
    case OP_RECURRENT: return infer_recurrent(at);
    case OP_JOIN: return infer_join(at);
    case OP_SLICE: return infer_slice(at);
    case OP_CONVOLVE: return infer_convolve(at);
    case OP_CACHED_ATTENTION:
    case OP_CROSS_ATTENTION:
    case OP_DOT_SCORES:
    case OP_ADDITIVE_SCORES:
    case OP_LOCATE:
    case OP_WEIGHTED_SUM: return infer_step(at);
    default: return infer_encode(at);
    }
}

static int infer_phase(struct inference *at, struct phase *phase, int is_step) {
    at->phase = phase;
    at->is_step = is_step;
    for (at->number = 0; at->number < phase->count; at->number++) {
        at->operation = &phase->operations[at->number];
        if (infer_operation(at)) return -1;
    }
    return 0;
}

/* What stands around the operations: fixed values, slots, logits and attention. */
static const char *check_frame(struct dragoman_model *model) {
    struct phase *encode = &model->encode, *step = &model->step;
    for (int i = 0; i < model->slot_count; i++) {
        const struct slot *slot = &model->slots[i];
        const struct shape *end = &step->shapes[slot->end];
        if (slot->end == model->logits) return "a slot becomes the logits, which the output layer makes after the step";
        if (end->kind != ROWS || end->width != slot->width) return "a slot and the value that it becomes differ in width";
        if (end->rows != (slot->grows ? 1 : slot->rows)) return "a slot and the value that it becomes differ in rows";
        if (slot->begin == ABSENT) continue;
        const struct shape *begin = &encode->shapes[slot->begin];
        if (begin->kind != ROWS || begin->width != slot->width) return "a slot and its first value differ in width";
        if (!slot->grows && begin->rows != slot->rows) return "a slot and its first value differ in rows";
    }
    const struct shape *logits = &step->shapes[model->logits];
    if (logits->kind != ROWS || logits->rows != 1 || logits->width != model->vocabulary) return "the logits have a wrong shape";
    model->maps = 0;
    for (int i = 0; i < model->attention_count; i++) {
        const struct shape *weights = &step->shapes[model->attention[i]];
        if (!is_weights(weights) || weights->rows < 1) return "an attention value is not weights over source states";
        model->maps += weights->rows;
        if (model->maps > WIDEST) return "there are too many attention maps";
    }
    if (model->ctc != ABSENT && (!is_states(&encode->shapes[model->ctc]) || encode->shapes[model->ctc].width != model->vocabulary))
        return "the CTC logits have a wrong shape";
    if (model->summary != ABSENT && !is_one_row(&encode->shapes[model->summary])) return "the summary has a wrong shape";
    if (model->begin != ABSENT && encode->shapes[model->begin].kind != ROWS) return "the beginning has no rows";
    return NULL;
}

int shapes_infer(struct dragoman_model *model, char *message, size_t room) {
    struct inference at = {.model = model, .message = message, .room = room};
    for (int i = 0; i < model->source_count; i++)
        model->encode.shapes[i] = (struct shape){model->sources[i].kind, MANY, model->sources[i].width};
    if (infer_phase(&at, &model->encode, 0)) return -1;
    const char *problem = NULL;
    int has_states = model->states != ABSENT;
    if (has_states && !is_states(&model->encode.shapes[model->states])) problem = "the source states have no rows";
    struct shape *given = model->step.shapes;
    *given++ = (struct shape){TOKENS, 1, model->vocabulary};
    for (int i = 0; i < model->fixed_count; i++) {
        struct shape *fixed = &model->encode.shapes[model->fixed[i]];
        if (fixed->kind != ROWS || fixed->width == MANY || (fixed->rows == MANY && !has_states)) problem = "a fixed value has a wrong shape";
        *given++ = *fixed;
    }
    for (int i = 0; i < model->slot_count; i++) {
        struct slot *slot = &model->slots[i];
        int is_possible = slot->grows ? slot->width > 0 : slot->rows > 0 && (slot->width > 0 || (has_states && slot->width == MANY));
        if (!is_possible || slot->width > WIDEST || slot->rows > WIDEST || (int64_t)slot->rows * slot->width > MOST) problem = "a slot has a wrong shape";
        *given++ = slot->grows ? (struct shape){CACHE, 0, slot->width} : (struct shape){ROWS, slot->rows, slot->width};
        model->has_caches |= slot->grows;
    }
    if (!problem && infer_phase(&at, &model->step, 1)) return -1;
    if (!problem) problem = check_frame(model);
    if (problem) snprintf(message, room, "%s", problem);
    return problem ? -1 : 0;
}
