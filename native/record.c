/* The record of a search, and the hypotheses that its back-pointers spell out. */
#include "search.h"

#include <stdlib.h>
#include <string.h>

int record_row(struct record *record, struct row_facts facts, const float *attention, size_t size) {
    if (GROW(record->rows, record->row_room, record->row_count + 1)) return 1;
    if (attention && size) {
        size_t needed = ((size_t)record->row_count + 1) * size;
        if (needed > record->attention_room) {
            if (needed > SIZE_MAX / 16) return 1;
            float *larger = realloc(record->attention, 2 * needed * sizeof *larger);
            if (!larger) return 1;
            record->attention = larger, record->attention_room = 2 * needed;
        }
        memcpy(record->attention + needed - size, attention, size * sizeof *attention);
    }
    record->rows[record->row_count++] = facts;
    return 0;
}

int record_step(struct record *record, const struct candidate *candidates, int count) {
    int room = record->step_room, first = record->candidate_count;
    if (GROW(record->candidates, record->candidate_room, first + count)) return 1;
    if (GROW(record->candidate_ends, room, record->steps + 1) || GROW(record->row_ends, record->step_room, record->steps + 1)) return 1;
    memcpy(record->candidates + first, candidates, (size_t)count * sizeof *candidates);
    record->candidate_count += count;
    record->candidate_ends[record->steps] = record->candidate_count;
    record->row_ends[record->steps] = record->row_count;
    for (int i = 0; i < count; i++)
        if (candidates[i].fate == FINISHED && record_ending(record, record->steps, first + i, 1)) return 1;
    record->steps++;
    return 0;
}

int record_ending(struct record *record, int step, int candidate, int is_finished) {
    if (GROW(record->endings, record->ending_room, record->ending_count + 1)) return 1;
    record->endings[record->ending_count++] = (struct ending){0.0, step, candidate, (int8_t)is_finished};
    return 0;
}

void record_clear(struct record *record) { record->candidate_count = record->row_count = record->steps = record->ending_count = 0; }

void record_free(struct record *record) {
    free(record->candidates), free(record->rows), free(record->attention), free(record->candidate_ends), free(record->row_ends), free(record->endings);
}

/* ---- hypotheses */

/* Finished ones first, then by score; equal ones keep their order. */
static void rank_endings(struct ending *endings, int count) {
    for (int i = 1; i < count; i++) {
        struct ending own = endings[i];
        int place = i;
        for (; place > 0; place--) {
            const struct ending *above = &endings[place - 1];
            if (above->is_finished != own.is_finished ? above->is_finished : above->score >= own.score) break;
            endings[place] = *above;
        }
        endings[place] = own;
    }
}

/* Rows keep their order from step to step, so the order of the paths is the order of the draws. Two endings are
 * compared where their paths part: at the first step at which their candidates differ. */
static int is_drawn_before(const struct record *record, const struct ending *a, const struct ending *b) {
    int left = a->candidate, right = b->candidate, steps = a->step < b->step ? a->step : b->step;
    for (int step = a->step; step > steps; step--) left = record->candidates[left].before;
    for (int step = b->step; step > steps; step--) right = record->candidates[right].before;
    if (left == right) return a->step < b->step;
    while (record->candidates[left].before != record->candidates[right].before) left = record->candidates[left].before, right = record->candidates[right].before;
    return left < right;
}

static void order_draws(const struct record *record, struct ending *endings) {
    for (int i = 1; i < record->ending_count; i++) {
        struct ending own = endings[i];
        int place = i;
        for (; place > 0 && is_drawn_before(record, &own, &endings[place - 1]); place--) endings[place] = endings[place - 1];
        endings[place] = own;
    }
}

/* ---- results as arrays */

static const size_t part_sizes[DRAGOMAN_PARTS] = {
    [DRAGOMAN_HYPOTHESIS_ENDS] = 4, [DRAGOMAN_TOKEN_ENDS] = 4, [DRAGOMAN_SCORES] = 8, [DRAGOMAN_FINISHED] = 1, [DRAGOMAN_TOKENS] = 4,
    [DRAGOMAN_LOG_PROBS] = 4, [DRAGOMAN_ENTROPIES] = 4, [DRAGOMAN_MARGINS] = 4, [DRAGOMAN_PATH] = 4, [DRAGOMAN_STATE_COUNTS] = 4,
    [DRAGOMAN_ATTENTION] = 4, [DRAGOMAN_STEP_ENDS] = 4, [DRAGOMAN_CANDIDATE_ENDS] = 4, [DRAGOMAN_CANDIDATE_PARENTS] = 4,
    [DRAGOMAN_CANDIDATE_TOKENS] = 4, [DRAGOMAN_CANDIDATE_LOG_PROBS] = 4, [DRAGOMAN_CANDIDATE_TOTALS] = 8,
    [DRAGOMAN_CANDIDATE_FATES] = 1, [DRAGOMAN_ROW_ATTENTION] = 4,
};

static void *part_make(struct dragoman_result *result, int part, size_t length) {
    void *data = length > SIZE_MAX / 4 / part_sizes[part] ? NULL : malloc(length * part_sizes[part] + 1);
    result->parts[part] = (struct part){data, data ? length : 0};
    return data;
}

void result_clear(struct dragoman_result *result) {
    for (int i = 0; i < DRAGOMAN_PARTS; i++) free(result->parts[i].data), result->parts[i] = (struct part){0};
}

static int trace_parts(const struct record *record, size_t width, struct dragoman_result *result) {
    size_t steps = (size_t)record->steps, count = (size_t)record->candidate_count;
    int32_t *step_ends = part_make(result, DRAGOMAN_STEP_ENDS, 1), *ends = part_make(result, DRAGOMAN_CANDIDATE_ENDS, steps);
    int32_t *parents = part_make(result, DRAGOMAN_CANDIDATE_PARENTS, count), *tokens = part_make(result, DRAGOMAN_CANDIDATE_TOKENS, count);
    float *log_probs = part_make(result, DRAGOMAN_CANDIDATE_LOG_PROBS, count);
    double *totals = part_make(result, DRAGOMAN_CANDIDATE_TOTALS, count);
    int8_t *fates = part_make(result, DRAGOMAN_CANDIDATE_FATES, count);
    if (!step_ends || !ends || !parents || !tokens || !log_probs || !totals || !fates) return 1;
    *step_ends = record->steps;
    memcpy(ends, record->candidate_ends, steps * sizeof *ends);
    for (size_t i = 0; i < count; i++) {
        const struct candidate *candidate = &record->candidates[i];
        parents[i] = candidate->parent, tokens[i] = candidate->token, fates[i] = candidate->fate;
        log_probs[i] = candidate->log_prob, totals[i] = candidate->total;
    }
    if (!width) return 0;
    float *attention = part_make(result, DRAGOMAN_ROW_ATTENTION, (size_t)record->row_count * width);
    if (!attention) return 1;
    memcpy(attention, record->attention, (size_t)record->row_count * width * sizeof *attention);
    return 0;
}

/* Write one hypothesis from its last token to its first; `end` is where its tokens end. */
static void trace_back(const struct record *record, const struct ending *ending, size_t end, size_t width, struct dragoman_result *result) {
    struct part *parts = result->parts;
    int number = ending->candidate;
    for (int step = ending->step; step >= 0; step--) {
        const struct candidate *candidate = &record->candidates[number];
        int row = (step ? record->row_ends[step - 1] : 0) + candidate->parent;
        end--;
        ((int32_t *)parts[DRAGOMAN_TOKENS].data)[end] = candidate->token;
        ((float *)parts[DRAGOMAN_LOG_PROBS].data)[end] = candidate->log_prob;
        ((float *)parts[DRAGOMAN_ENTROPIES].data)[end] = record->rows[row].entropy;
        ((float *)parts[DRAGOMAN_MARGINS].data)[end] = record->rows[row].margin;
        ((int32_t *)parts[DRAGOMAN_PATH].data)[end] = number - (step ? record->candidate_ends[step - 1] : 0);
        if (width) memcpy((float *)parts[DRAGOMAN_ATTENTION].data + end * width, record->attention + (size_t)row * width, width * sizeof(float));
        number = candidate->before;
    }
}

int result_of_record(const struct record *record, const struct dragoman_settings *settings, int is_forced, int states, size_t width, struct dragoman_result *result) {
    int is_sampling = whole(settings, DRAGOMAN_SAMPLE), wanted = is_forced ? 1 : whole(settings, DRAGOMAN_N_BEST);
    int found = is_sampling && !is_forced ? record->ending_count : wanted < record->ending_count ? wanted : record->ending_count;
    int copies = is_sampling && is_forced ? whole(settings, DRAGOMAN_SAMPLES) : 1; /* a forced output is the same every time */
    size_t count = (size_t)found * (size_t)copies, total = 0, end = 0;
    struct ending *endings = malloc(((size_t)record->ending_count + 1) * sizeof *endings);
    int32_t *hypothesis_ends = part_make(result, DRAGOMAN_HYPOTHESIS_ENDS, 1), *token_ends = part_make(result, DRAGOMAN_TOKEN_ENDS, count);
    int32_t *state_counts = part_make(result, DRAGOMAN_STATE_COUNTS, 1);
    double *scores = part_make(result, DRAGOMAN_SCORES, count);
    int8_t *finished = part_make(result, DRAGOMAN_FINISHED, count);
    int failed = !endings || !hypothesis_ends || !token_ends || !state_counts || !scores || !finished;
    if (!failed) {
        memcpy(endings, record->endings, (size_t)record->ending_count * sizeof *endings);
        for (int i = 0; i < record->ending_count; i++)
            endings[i].score = record->candidates[endings[i].candidate].total / length_penalty(settings, endings[i].step + 1);
        if (is_sampling) order_draws(record, endings);
        else rank_endings(endings, record->ending_count);
        for (size_t i = 0; i < count; i++) total += (size_t)endings[i % (size_t)found].step + 1;
        static const int of_tokens[] = {DRAGOMAN_TOKENS, DRAGOMAN_LOG_PROBS, DRAGOMAN_ENTROPIES, DRAGOMAN_MARGINS, DRAGOMAN_PATH};
        for (int i = 0; i < 5; i++) failed |= !part_make(result, of_tokens[i], total);
        if (width) failed |= total > SIZE_MAX / 16 / width || !part_make(result, DRAGOMAN_ATTENTION, total * width);
    }
    for (size_t i = 0; i < count && !failed; i++) {
        const struct ending *ending = &endings[i % (size_t)found];
        end += (size_t)ending->step + 1;
        failed |= end > INT32_MAX;
        token_ends[i] = (int32_t)end, scores[i] = ending->score, finished[i] = ending->is_finished;
        trace_back(record, ending, end, width, result);
    }
    if (!failed) *hypothesis_ends = (int32_t)count, *state_counts = states;
    free(endings);
    return failed || (whole(settings, DRAGOMAN_WANT_TRACE) && trace_parts(record, width, result));
}

int results_join(const struct dragoman_result *results, int count, struct dragoman_result *joined) {
    for (int part = 0; part < DRAGOMAN_PARTS; part++) {
        static const int counted[DRAGOMAN_PARTS] = {/* what the ends of a part count */
            [DRAGOMAN_HYPOTHESIS_ENDS] = DRAGOMAN_TOKEN_ENDS, [DRAGOMAN_TOKEN_ENDS] = DRAGOMAN_TOKENS,
            [DRAGOMAN_STEP_ENDS] = DRAGOMAN_CANDIDATE_ENDS, [DRAGOMAN_CANDIDATE_ENDS] = DRAGOMAN_CANDIDATE_TOKENS};
        size_t total = 0, size = part_sizes[part], base = 0;
        for (int i = 0; i < count; i++) total += results[i].parts[part].length;
        if (total > INT32_MAX / 2 && size != 4) return 1;
        char *to = part_make(joined, part, total);
        if (!to) return 1;
        for (int i = 0; i < count; i++) {
            const struct part *own = &results[i].parts[part];
            if (own->length) memcpy(to, own->data, own->length * size);
            for (size_t j = 0; j < own->length && counted[part]; j++) ((int32_t *)(void *)to)[j] += (int32_t)base;
            to += own->length * size;
            if (counted[part]) base += results[i].parts[counted[part]].length;
            if (base > INT32_MAX) return 1;
        }
    }
    return 0;
}

void dragoman_result_free(dragoman_result *result) {
    if (result) result_clear(result);
    free(result);
}

const void *dragoman_result_part(const dragoman_result *result, int part, size_t *length) {
    *length = part >= 0 && part < DRAGOMAN_PARTS ? result->parts[part].length : 0;
    return *length ? result->parts[part].data : NULL;
}
