/* Generated from src/dragoman/program/table.py by native/generate.py. Do not edit. */
#ifndef DRAGOMAN_OPERATIONS_H
#define DRAGOMAN_OPERATIONS_H

enum { PROGRAM_VERSION = 1 };

/* The kinds of operations, by their numbers in files. */
enum operation_kind {
    OP_EMBED,
    OP_POOL_SENTENCES,
    OP_LINEAR,
    OP_AFFINE,
    OP_ADD,
    OP_MULTIPLY,
    OP_LAYER_NORM,
    OP_GROUP_NORM,
    OP_POSITIONS,
    OP_GRID,
    OP_SELF_ATTENTION,
    OP_CACHED_ATTENTION,
    OP_CROSS_ATTENTION,
    OP_DOT_SCORES,
    OP_ADDITIVE_SCORES,
    OP_LOCATE,
    OP_SOFTMAX,
    OP_SELECT_BEST,
    OP_WEIGHTED_SUM,
    OP_NORMALIZE,
    OP_RECURRENT,
    OP_JOIN,
    OP_SLICE,
    OP_CONVOLVE,
    OP_CONVOLVE_PICTURE,
    OP_MAX_POOL,
    OP_MEAN,
    OP_PAIR,
    OP_ZEROS,
    OP_ROTATE,
    OP_COUNT,
};

/* The words that settings may be. */
enum { ACT_NONE, ACT_RELU, ACT_TANH, ACT_SIGMOID, ACT_GLU, ACT_COUNT };
enum { AXIS_ROWS, AXIS_COLUMNS, AXIS_COUNT };
enum { CELL_LSTM, CELL_GRU, CELL_TANH, CELL_RELU, CELL_COUNT };
enum { GRID_NONE, GRID_SINUSOIDAL, GRID_LEARNED, GRID_COUNT };

/* The place of each setting among those of its operation. */
enum { EMBED_SCALE };
enum { LINEAR_ACTIVATION };
enum { AFFINE_FACTOR, AFFINE_ACTIVATION };
enum { ADD_FACTOR, ADD_ACTIVATION };
enum { LAYER_NORM_EPSILON };
enum { GROUP_NORM_GROUPS, GROUP_NORM_EPSILON };
enum { GRID_VECTORS };
enum { SELF_ATTENTION_HEADS, SELF_ATTENTION_CAUSAL };
enum { CACHED_ATTENTION_HEADS };
enum { CROSS_ATTENTION_HEADS, CROSS_ATTENTION_SCALE };
enum { DOT_SCORES_SCALE };
enum { RECURRENT_CELL, RECURRENT_REVERSE };
enum { JOIN_AXIS };
enum { SLICE_AXIS, SLICE_BEGIN, SLICE_COUNT };
enum { CONVOLVE_STRIDE, CONVOLVE_BEFORE, CONVOLVE_AFTER, CONVOLVE_ACTIVATION };
enum { CONVOLVE_PICTURE_STRIDE, CONVOLVE_PICTURE_BEFORE, CONVOLVE_PICTURE_ACTIVATION };
enum { MAX_POOL_SIZE, MAX_POOL_STRIDE, MAX_POOL_BEFORE };
enum { ROTATE_HEADS };

/* How many inputs, outputs, weights and settings an operation has; inputs -1: two or more. A bit of
 * `needed_*` is 1 where the name may not be absent; `setting_types`: 0 int, 1 float, 2 word, and the
 * number of words. */
struct operation_form {
    const char *name;
    int inputs, outputs, weights, settings;
    unsigned needed_inputs, needed_outputs, needed_weights;
    signed char setting_types[4], setting_words[4];
};

static const struct operation_form operation_forms[OP_COUNT] = {
    {"embed", 1, 1, 1, 1, 1, 1, 1, {1}, {0}},
    {"pool_sentences", 2, 1, 1, 0, 3, 1, 1, {0}, {0}},
    {"linear", 1, 1, 2, 1, 1, 1, 1, {2}, {5}},
    {"affine", 1, 1, 2, 2, 1, 1, 0, {1, 2}, {0, 5}},
    {"add", 2, 1, 0, 2, 3, 1, 0, {1, 2}, {0, 5}},
    {"multiply", 2, 1, 0, 0, 3, 1, 0, {0}, {0}},
    {"layer_norm", 1, 1, 2, 1, 1, 1, 3, {1}, {0}},
    {"group_norm", 1, 1, 2, 2, 1, 1, 3, {0, 1}, {0, 0}},
    {"positions", 1, 1, 1, 0, 1, 1, 0, {0}, {0}},
    {"grid", 1, 1, 1, 1, 1, 1, 0, {2}, {3}},
    {"self_attention", 1, 1, 0, 2, 1, 1, 0, {0, 0}, {0, 0}},
    {"cached_attention", 3, 3, 0, 1, 7, 7, 0, {0}, {0}},
    {"cross_attention", 3, 2, 0, 2, 7, 3, 0, {0, 1}, {0, 0}},
    {"dot_scores", 2, 1, 0, 1, 3, 1, 0, {1}, {0}},
    {"additive_scores", 2, 1, 1, 0, 3, 1, 1, {0}, {0}},
    {"locate", 2, 1, 2, 0, 3, 1, 3, {0}, {0}},
    {"softmax", 1, 1, 0, 0, 1, 1, 0, {0}, {0}},
    {"select_best", 1, 1, 0, 0, 1, 1, 0, {0}, {0}},
    {"weighted_sum", 2, 1, 0, 0, 3, 1, 0, {0}, {0}},
    {"normalize", 1, 1, 0, 0, 1, 1, 0, {0}, {0}},
    {"recurrent", 3, 3, 4, 2, 1, 3, 7, {2, 0}, {4, 0}},
    {"join", -1, 1, 0, 1, 0, 1, 0, {2}, {2}},
    {"slice", 1, 1, 0, 3, 1, 1, 0, {2, 0, 0}, {2, 0, 0}},
    {"convolve", 1, 1, 2, 4, 1, 1, 1, {0, 0, 0, 2}, {0, 0, 0, 5}},
    {"convolve_picture", 1, 1, 2, 3, 1, 1, 1, {0, 0, 2}, {0, 0, 5}},
    {"max_pool", 1, 1, 0, 3, 1, 1, 0, {0, 0, 0}, {0, 0, 0}},
    {"mean", 1, 1, 0, 0, 1, 1, 0, {0}, {0}},
    {"pair", 1, 1, 0, 0, 1, 1, 0, {0}, {0}},
    {"zeros", 1, 1, 0, 0, 1, 1, 0, {0}, {0}},
    {"rotate", 1, 1, 0, 1, 1, 1, 0, {0}, {0}},
};

#endif
