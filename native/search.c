/* One loop for every search: run a step, choose candidates, record them, continue with those kept. */
#include "search.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LEAST_ROWS = 18, MOST_ROWS = 96 };

/* How many rows the output layer computes at once. Few rows keep their scores in the cache until tokens are chosen;
 * more rows read large weights less often. */
static int rows_at_once(const struct weight *weight) {
    int bytes = weight->dims[1] < 1 << 16 ? weight->dims[1] * (weight->panels.bytes ? 1 : 4) : 1 << 16, rows = bytes / 24 / 6 * 6;
    return rows < LEAST_ROWS ? LEAST_ROWS : rows > MOST_ROWS ? MOST_ROWS : rows;
}

static int no_memory(struct search *search) { return fail(search->context, DRAGOMAN_NO_MEMORY, "there is not enough memory"); }

static int not_probabilities(struct search *search) {
    return fail(search->context, DRAGOMAN_BAD_INPUT,
                "the model's predictions are not probabilities (NaN, or zero for every token), so nothing can be searched: its training has "
                "diverged; train again with a smaller learning rate or use an earlier checkpoint");
}

/* ---- random numbers */

static uint64_t mix(uint64_t x) { /* SplitMix64 (Steele, Lea and Flood 2014) */
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/* The next numbers of one row of a source: they depend on the seed, the source, the row and the place alone. */
static void draw_numbers(const struct search *search, const struct flight *flight, int row, float *numbers) {
    const struct dragoman_settings *settings = search->settings;
    int block = flight->drawn / DRAGOMAN_DRAWS;
    if (settings->draw) {
        settings->draw(settings->user, flight->number, row, block, numbers);
        return;
    }
    uint64_t key = (uint64_t)(uint32_t)flight->key, state = mix(mix(mix((uint64_t)settings->values[DRAGOMAN_SEED]) ^ key) ^ (uint64_t)row);
    for (int i = 0; i < DRAGOMAN_DRAWS; i++)
        numbers[i] = (float)(mix(state + (uint64_t)(flight->drawn + i)) >> 40) * (1.0f / 16777216.0f);
}

static int draw_row(struct search *search, struct flight *flight, int r, struct distribution row) {
    const struct row *from = &search->now.rows[flight->first_row + r];
    int samples = flight->drawn ? 1 : whole(search->settings, DRAGOMAN_SAMPLES); /* several from the one row of a source */
    for (int i = 0; i < samples; i++) {
        float *numbers = flight->numbers + (size_t)(r + i) * DRAGOMAN_DRAWS;
        if (flight->drawn % DRAGOMAN_DRAWS == 0) draw_numbers(search, flight, r + i, numbers);
        if (choose_drawn(&search->chooser, row, r, from->total, from->candidate, numbers[flight->drawn % DRAGOMAN_DRAWS])) return not_probabilities(search);
    }
    return DRAGOMAN_OK;
}

/* ---- one row */

/* Where a row looked while it read its last token, (maps, S). */
static int attention_of(struct search *search, const struct run *run, int n, int states) {
    size_t width = (size_t)search->model->maps * (size_t)states;
    if (width > search->attention_room) {
        float *larger = realloc(search->attention, 2 * width * sizeof *larger);
        if (!larger) return no_memory(search);
        search->attention = larger, search->attention_room = 2 * width;
    }
    float *to = search->attention;
    for (int i = 0; i < search->model->attention_count; i++) {
        size_t size = (size_t)search->model->step.shapes[search->model->attention[i]].rows * (size_t)states;
        memcpy(to, item_of(&run->values[search->model->attention[i]], n), size * sizeof *to);
        to += size;
    }
    return DRAGOMAN_OK;
}

/* The tokens of the output that a row has so far, in `so_far`. */
static int spell(struct search *search, const struct flight *flight, int candidate) {
    int length = flight->record.steps;
    if (GROW(search->so_far, search->so_far_room, length + 1)) return no_memory(search);
    for (int t = length - 1; t >= 0; t--) {
        search->so_far[t] = flight->record.candidates[candidate].token;
        candidate = flight->record.candidates[candidate].before;
    }
    return DRAGOMAN_OK;
}

static int apply_rules(struct search *search, const struct flight *flight, const struct row *row, struct distribution distribution) {
    if (!search->rules.is_needed) return DRAGOMAN_OK;
    if (search->rules.needs_tokens) TRY(spell(search, flight, row->candidate));
    return rules_apply(&search->rules, search->so_far, flight->record.steps, distribution.scores, distribution.best) ? no_memory(search) : DRAGOMAN_OK;
}

static int take_row(struct search *search, const struct run *run, int n, struct distribution distribution, float entropy) {
    struct flight *flight = &search->flights[search->now.source[n]];
    const struct row *row = &search->now.rows[n];
    struct chooser *chooser = &search->chooser;
    int r = n - flight->first_row, wants_attention = whole(search->settings, DRAGOMAN_WANT_ATTENTION) && search->model->maps;
    struct row_facts facts = {entropy, margin_of(search->model->kernels, distribution, chooser->blocks)};
    if (wants_attention) TRY(attention_of(search, run, n, flight->states));
    if (record_row(&flight->record, facts, wants_attention ? search->attention : NULL, (size_t)search->model->maps * (size_t)flight->states)) return no_memory(search);
    if (r == 0) chooser->count = 0;
    if (flight->record.steps < flight->prefix_length) {
        int token = flight->prefix[flight->record.steps];
        float log_prob = distribution.scores[token] - distribution.normalizer;
        chooser->chosen[chooser->count++] = (struct candidate){row->total + (double)log_prob, log_prob, 0, token, row->candidate, KEPT};
        return DRAGOMAN_OK;
    }
    TRY(apply_rules(search, flight, row, distribution));
    if (whole(search->settings, DRAGOMAN_SAMPLE)) return draw_row(search, flight, r, distribution);
    choose_best(chooser, distribution, r, row->total, row->candidate);
    return DRAGOMAN_OK;
}

/* ---- one step of one source */

/* Does the beam lose a place when a hypothesis finishes? */
static int shrinks(const struct search *search) {
    return whole(search->settings, DRAGOMAN_STOP) == DRAGOMAN_COMPLETE || whole(search->settings, DRAGOMAN_BEAM) == 1;
}

/* Decide which candidates of a beam go on; they are sorted. */
static void decide_fates(struct search *search, struct flight *flight) {
    struct chooser *chooser = &search->chooser;
    int eos = whole(search->settings, DRAGOMAN_EOS), taken = 0, ended = 0;
    for (int i = 0; i < chooser->count; i++) {
        struct candidate *candidate = &chooser->chosen[i];
        int ends = candidate->token == eos;
        candidate->fate = taken >= flight->width ? PRUNED : ends ? FINISHED : KEPT;
        ended += candidate->fate == FINISHED;
        taken += shrinks(search) ? 1 : candidate->fate == KEPT;
    }
    if (shrinks(search)) flight->width -= ended;
}

/* Can no live hypothesis beat the finished ones that are asked for? (Huang, Zhao and Ma 2017) */
static int is_certain(struct search *search, struct flight *flight, double best_live) {
    const struct chooser *chooser = &search->chooser;
    int n_best = whole(search->settings, DRAGOMAN_N_BEST), length = flight->record.steps;
    for (int i = 0; i < chooser->count; i++) {
        double score = chooser->chosen[i].total / length_penalty(search->settings, length);
        if (chooser->chosen[i].fate != FINISHED || score <= flight->finished[n_best - 1]) continue;
        int place = n_best - 1;
        for (; place > 0 && flight->finished[place - 1] < score; place--) flight->finished[place] = flight->finished[place - 1];
        flight->finished[place] = score;
    }
    return flight->finished[n_best - 1] >= best_live / length_penalty(search->settings, flight->limit);
}

static int finish_step(struct search *search, struct flight *flight) {
    struct chooser *chooser = &search->chooser;
    struct record *record = &flight->record;
    int is_sampling = whole(search->settings, DRAGOMAN_SAMPLE), step = record->steps, is_prefix = step < flight->prefix_length, kept = 0;
    double best_live = -INFINITY;
    if (!chooser->count) return not_probabilities(search);
    if (is_prefix && flight->is_forced && chooser->chosen[0].token == whole(search->settings, DRAGOMAN_EOS)) chooser->chosen[0].fate = FINISHED;
    if (is_prefix && !flight->is_forced && !(chooser->chosen[0].total > -INFINITY))
        return fail(search->context, DRAGOMAN_BAD_INPUT, "a forced prefix is impossible for this model (probability zero); give another");
    if (!is_prefix && !is_sampling) decide_fates(search, flight);
    int first = record->candidate_count;
    if (record_step(record, chooser->chosen, chooser->count)) return no_memory(search);
    for (int i = 0; i < chooser->count; i++)
        if (chooser->chosen[i].fate == KEPT) {
            kept++;
            if (chooser->chosen[i].total > best_live) best_live = chooser->chosen[i].total;
        }
    int is_cut = kept && (is_prefix ? flight->is_forced && step + 1 == flight->prefix_length : flight->limit <= step + 1);
    for (int i = 0; i < chooser->count && is_cut; i++)
        if (chooser->chosen[i].fate == KEPT && record_ending(record, step, first + i, 0)) return no_memory(search);
    flight->is_done = is_cut || !kept;
    if (is_prefix) return DRAGOMAN_OK;
    if (is_sampling) flight->drawn++;
    else if (!shrinks(search) && is_certain(search, flight, best_live)) flight->is_done = 1;
    return DRAGOMAN_OK;
}

/* ---- all sources */

/* The output layer, some rows at a time, and what is chosen for them. */
static int choose_all(struct search *search, struct run *run) {
    const struct dragoman_model *model = search->model;
    const struct operation *readout = &run->phase->operations[model->readout];
    const struct weight *weight = &model->weights[readout->weights[0]];
    const float *bias = readout->weights[1] == ABSENT ? NULL : model->weights[readout->weights[1]].data, *x;
    ptrdiff_t stride = score_stride(model), blocks = stride / BLOCK;
    struct pool *pool = &search->context->pool;
    float *owned;
    int rows, inputs = weight->dims[1];
    TRY(rows_of(run, readout->inputs[0], &x, &rows, &owned));
    int some = rows < rows_at_once(weight) ? rows : rows_at_once(weight);
    float *scores = pool_take(pool, (size_t)some, (size_t)stride * sizeof *scores), *best = pool_take(pool, (size_t)some, (size_t)blocks * sizeof *best);
    struct row_sums sums[MOST_ROWS];
    if (!scores || !best) return no_memory(search);
    for (int first = 0; first < rows; first += some) {
        int count = rows - first < some ? rows - first : some;
        TRY(project(run, weight, x + (size_t)first * (size_t)inputs, count, bias, scores, sums, best));
        for (int i = 0; i < count; i++) {
            struct flight *flight = &search->flights[search->now.source[first + i]];
            if (flight->is_dropped) continue;
            TRY(take_row(search, run, first + i, (struct distribution){scores + i * stride, best + i * blocks, sums[i].normalizer}, sums[i].entropy));
            if (first + i == flight->first_row + flight->rows - 1) TRY(finish_step(search, flight));
        }
    }
    pool_give(pool, scores), pool_give(pool, best), pool_give(pool, owned);
    return DRAGOMAN_OK;
}

int search_advance(struct search *search) {
    const struct dragoman_settings *settings = search->settings;
    TRY(flights_enter(search));
    if (!search->active_count) return DRAGOMAN_OK;
    if (settings->cancel && settings->cancel(settings->user)) return fail(search->context, DRAGOMAN_CANCELLED, "the search was cancelled");
    struct memory memory;
    struct run run;
    TRY(flights_prepare(search, &run, &memory));
    TRY(run_operations(&run, search->model->readout));
    TRY(choose_all(search, &run));
    return flights_advance(search, &run);
}
