/* Choose the candidates of a step: the best of all rows of a source (beam search), or one drawn for each row. */
#include "search.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { NUCLEUS = 64 }; /* tokens that top_p looks at before it sorts all */

int chooser_make(struct chooser *chooser, const struct dragoman_model *model, const struct dragoman_settings *settings, struct rules *rules) {
    int is_sampling = whole(settings, DRAGOMAN_SAMPLE), vocabulary = model->vocabulary, beam = whole(settings, DRAGOMAN_BEAM);
    *chooser = (struct chooser){.settings = settings, .kernels = model->kernels, .rules = rules, .vocabulary = vocabulary,
                                .blocks = (int)(score_stride(model) / BLOCK), .room = is_sampling ? whole(settings, DRAGOMAN_SAMPLES) : 2 * beam};
    chooser->considered = is_sampling ? vocabulary : chooser->room < vocabulary ? chooser->room : vocabulary;
    size_t room = (size_t)chooser->considered + 1;
    chooser->values = malloc(room * sizeof *chooser->values);
    chooser->tokens = malloc(room * sizeof *chooser->tokens);
    chooser->weights = malloc((size_t)score_stride(model) * sizeof *chooser->weights);
    chooser->chosen = malloc((size_t)chooser->room * sizeof *chooser->chosen);
    return !chooser->values || !chooser->tokens || !chooser->weights || !chooser->chosen;
}

void chooser_free(struct chooser *chooser) { free(chooser->values), free(chooser->tokens), free(chooser->weights), free(chooser->chosen); }

/* ---- beam search */

/* Equal sums are ordered by row and token. */
static int is_better(const struct candidate *a, const struct candidate *b) {
    if (a->total != b->total) return a->total > b->total;
    if (a->parent != b->parent) return a->parent < b->parent;
    return a->token < b->token;
}

static void insert(struct chooser *chooser, struct candidate candidate) {
    int place = chooser->count < chooser->room ? chooser->count++ : chooser->room - 1;
    for (; place > 0 && is_better(&candidate, &chooser->chosen[place - 1]); place--) chooser->chosen[place] = chooser->chosen[place - 1];
    chooser->chosen[place] = candidate;
}

/* The best tokens of one row, of those whose log-probability exceeds `floor`. */
static int best_of(struct chooser *chooser, struct distribution row, float floor) {
    return chooser->kernels->top(row.scores, row.best, chooser->blocks, row.normalizer, chooser->considered, floor, chooser->values, chooser->tokens);
}

/* Do the rules leave nothing? */
static int is_blocked(const struct chooser *chooser, struct distribution row) {
    return chooser->kernels->greatest(row.best, chooser->blocks) == -INFINITY;
}

void choose_best(struct chooser *chooser, struct distribution row, int parent, double total, int before) {
    int is_full = chooser->count == chooser->room;
    const struct candidate *last = &chooser->chosen[chooser->room - 1];
    /* What cannot exceed the last candidate is left out here, with some room for rounding, and exactly below. */
    float floor = is_full ? (float)(last->total - total) * 1.00001f - 1e-6f : -INFINITY;
    int count = best_of(chooser, row, floor);
    if (!count && is_blocked(chooser, row)) {
        rules_waive(chooser->rules, row.scores, row.best);
        count = best_of(chooser, row, floor);
    }
    for (int i = 0; i < count; i++) {
        struct candidate candidate = {total + (double)chooser->values[i], chooser->values[i], parent, chooser->tokens[i], before, PRUNED};
        if (chooser->count == chooser->room && !is_better(&candidate, last)) {
            if (candidate.total < last->total) break; /* the others are no better */
            continue;
        }
        insert(chooser, candidate);
    }
}

float margin_of(const struct kernels *kernels, struct distribution row, int blocks) {
    float values[2];
    int32_t tokens[2];
    int count = kernels->top(row.scores, row.best, blocks, row.normalizer, 2, -INFINITY, values, tokens);
    return count == 2 ? values[0] - values[1] : INFINITY;
}

/* ---- sampling */

struct ranked {
    float value;
    int32_t token;
};

static int greater_first(const void *a, const void *b) {
    const struct ranked *left = a, *right = b;
    if (left->value != right->value) return left->value < right->value ? 1 : -1;
    return left->token < right->token ? -1 : 1;
}

/* All tokens by their weights, the greatest first, as `values` and `tokens`; 0: no memory. */
static int sort_all(struct chooser *chooser) {
    struct ranked *ranked = malloc((size_t)chooser->vocabulary * sizeof *ranked);
    if (!ranked) return 0;
    for (int v = 0; v < chooser->vocabulary; v++) ranked[v] = (struct ranked){chooser->weights[v], v};
    qsort(ranked, (size_t)chooser->vocabulary, sizeof *ranked, greater_first);
    for (int v = 0; v < chooser->vocabulary; v++) chooser->values[v] = ranked[v].value, chooser->tokens[v] = ranked[v].token;
    free(ranked);
    return chooser->vocabulary;
}

/* Invert the cumulative distribution of `count` weights, which need not add up to 1, at `number`; the first `top_p`
 * of their sum count. */
static int invert(const float *weights, int count, float top_p, float number) {
    double sum = 0.0;
    int kept = 0;
    float all = 0.0f;
    for (; kept < count; kept++) { /* the weights before a token that is kept are less than top_p */
        float after = (float)(sum + (double)weights[kept]);
        if (top_p < 1.0f && after - weights[kept] >= top_p) break;
        sum += (double)weights[kept];
        all = after;
    }
    float target = number * all;
    int best = 0;
    sum = 0.0;
    for (int i = 0; i < kept; i++) {
        sum += (double)weights[i];
        if ((float)sum > target) return i; /* so its weight is not 0 */
        if (weights[i] > weights[best]) best = i;
    }
    return best;
}

/* The token that is drawn from one row, -1: none. */
static int draw(struct chooser *chooser, struct distribution row, float number) {
    const struct dragoman_settings *settings = chooser->settings;
    const struct kernels *kernels = chooser->kernels;
    int vocabulary = chooser->vocabulary, top_k = whole(settings, DRAGOMAN_TOP_K);
    float temperature = (float)settings->values[DRAGOMAN_TEMPERATURE], top_p = (float)settings->values[DRAGOMAN_TOP_P];
    float *weights = chooser->weights, *values = chooser->values;
    if (top_k > 0 && top_k < vocabulary) {
        int count = kernels->top(row.scores, row.best, chooser->blocks, row.normalizer, top_k, -INFINITY, values, chooser->tokens);
        for (int i = 0; i < count; i++) values[i] /= temperature;
        kernels->softmax(values, count);
        return count ? chooser->tokens[invert(values, count, top_p, number)] : -1;
    }
    for (int v = 0; v < vocabulary; v++) weights[v] = (row.scores[v] - row.normalizer) / temperature;
    kernels->softmax(weights, vocabulary);
    if (top_p >= 1.0f) return invert(weights, vocabulary, 1.0f, number);
    int wanted = vocabulary < NUCLEUS ? vocabulary : NUCLEUS;
    int count = kernels->top(row.scores, row.best, chooser->blocks, row.normalizer, wanted, -INFINITY, values, chooser->tokens);
    float reached = 0.0f;
    for (int i = 0; i < count; i++) reached += values[i] = weights[chooser->tokens[i]];
    if (count == NUCLEUS && reached < top_p + 1e-4f) count = sort_all(chooser); /* these may not be enough */
    return count ? chooser->tokens[invert(values, count, top_p, number)] : -1;
}

int choose_drawn(struct chooser *chooser, struct distribution row, int parent, double total, int before, float number) {
    if (is_blocked(chooser, row)) rules_waive(chooser->rules, row.scores, row.best);
    int token = draw(chooser, row, number);
    if (token < 0) return 1;
    float log_prob = row.scores[token] - row.normalizer;
    if (!(log_prob > -INFINITY)) return 1;
    int is_end = token == whole(chooser->settings, DRAGOMAN_EOS);
    chooser->chosen[chooser->count++] = (struct candidate){total + (double)log_prob, log_prob, parent, token, before, is_end ? FINISHED : KEPT};
    return 0;
}
