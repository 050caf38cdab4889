/* Rules that forbid tokens. A rule never changes the log-probability of a token that stays allowed. */
#include "search.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A node of the tree of all outputs that are allowed: a token, its first child, and its next sibling. */
struct only_node {
    int32_t token, child, sibling; /* -1: none */
};

static int only_child(const struct only_node *nodes, int node, int token) {
    int child = nodes[node].child;
    while (child >= 0 && nodes[child].token != token) child = nodes[child].sibling;
    return child;
}

static int only_make(struct rules *rules, const struct list *outputs) {
    size_t most = 1;
    for (int i = 0; i < outputs->count; i++) {
        int length;
        sequence_of(outputs, i, &length);
        most += (size_t)length + 1;
    }
    struct only_node *nodes = most < INT32_MAX ? malloc(most * sizeof *nodes) : NULL;
    if (!nodes) return 1;
    int count = 1;
    nodes[0] = (struct only_node){-1, -1, -1};
    for (int i = 0; i < outputs->count; i++) {
        int length, node = 0;
        const int32_t *tokens = sequence_of(outputs, i, &length);
        for (int t = 0; t <= length; t++) {
            int token = t < length ? tokens[t] : rules->eos, child = only_child(nodes, node, token);
            if (child < 0) {
                child = count++;
                nodes[child] = (struct only_node){token, -1, nodes[node].child};
                nodes[node].child = child;
            }
            node = child;
        }
    }
    rules->only = nodes;
    return 0;
}

int rules_make(struct rules *rules, const struct dragoman_model *model, const struct dragoman_settings *settings) {
    const struct list *lists = settings->lists;
    *rules = (struct rules){.settings = settings, .kernels = model->kernels, .vocabulary = model->vocabulary,
                            .eos = whole(settings, DRAGOMAN_EOS), .blocks = (int)(score_stride(model) / BLOCK)};
    rules->needs_tokens = whole(settings, DRAGOMAN_NO_REPEAT_NGRAM) || lists[DRAGOMAN_FORBIDDEN_RUNS].count || lists[DRAGOMAN_ONLY].count;
    rules->is_needed = rules->needs_tokens || whole(settings, DRAGOMAN_MIN_LENGTH) || lists[DRAGOMAN_FORBIDDEN].count;
    if (!lists[DRAGOMAN_ONLY].count) return 0;
    rules->backup = malloc((size_t)rules->blocks * (BLOCK + 1) * sizeof(float));
    return !rules->backup || only_make(rules, &lists[DRAGOMAN_ONLY]);
}

void rules_free(struct rules *rules) {
    free(rules->only), free(rules->banned), free(rules->scores), free(rules->backup);
}

static void set_score(struct rules *rules, float *scores, float *best, int token, float score) {
    int block = token / BLOCK;
    float old = scores[token];
    scores[token] = score;
    if (score > best[block]) best[block] = score;
    else if (old == best[block]) best[block] = rules->kernels->greatest(scores + (size_t)block * BLOCK, BLOCK);
}

static int ban(struct rules *rules, float *scores, float *best, int token) {
    if (scores[token] == -INFINITY) return 0;
    int room = rules->room;
    if (GROW(rules->banned, room, rules->count + 1) || GROW(rules->scores, rules->room, rules->count + 1)) return 1;
    rules->banned[rules->count] = token;
    rules->scores[rules->count++] = scores[token];
    set_score(rules, scores, best, token, -INFINITY);
    return 0;
}

/* Any run of `size` tokens that the output already has is not begun again. */
static int ban_ngrams(struct rules *rules, int size, const int32_t *tokens, int length, float *scores, float *best) {
    const int32_t *tail = tokens + length - size + 1;
    for (int i = 0; i + size <= length; i++)
        if (memcmp(tokens + i, tail, (size_t)(size - 1) * sizeof *tail) == 0 && ban(rules, scores, best, tokens[i + size - 1])) return 1;
    return 0;
}

/* Leave only the tokens that lead to one of the allowed outputs. An output that was forced off them is free. */
static void keep_only(struct rules *rules, const int32_t *tokens, int length, float *scores, float *best) {
    const struct only_node *nodes = rules->only;
    size_t stride = (size_t)rules->blocks * BLOCK, blocks = (size_t)rules->blocks;
    int node = 0;
    for (int t = 0; t < length && node >= 0; t++) node = only_child(nodes, node, tokens[t]);
    if (node < 0 || nodes[node].child < 0) return;
    rules->is_narrowed = 1;
    float *kept = rules->backup + stride;
    memcpy(rules->backup, scores, stride * sizeof *scores);
    memcpy(kept, best, blocks * sizeof *best);
    for (size_t i = 0; i < stride; i++) scores[i] = -INFINITY;
    for (size_t i = 0; i < blocks; i++) best[i] = -INFINITY;
    for (int child = nodes[node].child; child >= 0; child = nodes[child].sibling)
        set_score(rules, scores, best, nodes[child].token, rules->backup[nodes[child].token]);
}

int rules_apply(struct rules *rules, const int32_t *tokens, int length, float *scores, float *best) {
    const struct dragoman_settings *settings = rules->settings;
    const struct list *forbidden = &settings->lists[DRAGOMAN_FORBIDDEN], *runs = &settings->lists[DRAGOMAN_FORBIDDEN_RUNS];
    int size = whole(settings, DRAGOMAN_NO_REPEAT_NGRAM), failed = 0;
    rules->count = 0, rules->is_narrowed = 0;
    if (length < whole(settings, DRAGOMAN_MIN_LENGTH)) failed |= ban(rules, scores, best, rules->eos);
    for (int i = 0; i < forbidden->count; i++) failed |= ban(rules, scores, best, forbidden->numbers[i]);
    for (int i = 0; i < runs->count; i++) {
        int own;
        const int32_t *run = sequence_of(runs, i, &own);
        if (own && length >= own - 1 && memcmp(tokens + length - (own - 1), run, (size_t)(own - 1) * sizeof *run) == 0)
            failed |= ban(rules, scores, best, run[own - 1]);
    }
    if (size && length >= size) failed |= ban_ngrams(rules, size, tokens, length, scores, best);
    if (rules->only) keep_only(rules, tokens, length, scores, best);
    return failed;
}

void rules_waive(struct rules *rules, float *scores, float *best) {
    size_t stride = (size_t)rules->blocks * BLOCK;
    if (rules->is_narrowed) {
        memcpy(scores, rules->backup, stride * sizeof *scores);
        memcpy(best, rules->backup + stride, (size_t)rules->blocks * sizeof *best);
    }
    for (int i = rules->count - 1; i >= 0; i--) set_score(rules, scores, best, rules->banned[i], rules->scores[i]);
    float end = scores[rules->eos];
    if (end == -INFINITY) return;
    for (size_t i = 0; i < stride; i++) scores[i] = -INFINITY;
    for (int i = 0; i < rules->blocks; i++) best[i] = -INFINITY;
    set_score(rules, scores, best, rules->eos, end);
}
