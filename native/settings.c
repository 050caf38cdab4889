/* The settings of a search. */
#include "search.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { WIDEST = 10000, MOST = 10000000 };

/* Of each setting: its default, its least and greatest value, and whether it is a whole number. */
static const struct {
    double value, least, most;
    int is_whole;
} bounds[SETTING_COUNT] = {
    [DRAGOMAN_BOS] = {2, 0, INT32_MAX, 1}, [DRAGOMAN_EOS] = {3, 0, INT32_MAX, 1},
    [DRAGOMAN_BEAM] = {5, 1, WIDEST, 1}, [DRAGOMAN_N_BEST] = {1, 1, WIDEST, 1},
    [DRAGOMAN_NORMALIZE] = {DRAGOMAN_AVERAGE, DRAGOMAN_NONE, DRAGOMAN_GNMT, 1}, [DRAGOMAN_ALPHA] = {0.6, 0, 1e6, 0},
    [DRAGOMAN_STOP] = {DRAGOMAN_COMPLETE, DRAGOMAN_COMPLETE, DRAGOMAN_CERTAIN, 1},
    [DRAGOMAN_MIN_LENGTH] = {0, 0, INT32_MAX, 1}, [DRAGOMAN_MAX_LENGTH] = {0, 0, MOST, 1},
    [DRAGOMAN_NO_REPEAT_NGRAM] = {0, 0, INT32_MAX, 1},
    [DRAGOMAN_SAMPLE] = {0, 0, 1, 1}, [DRAGOMAN_SAMPLES] = {1, 1, WIDEST, 1},
    [DRAGOMAN_TEMPERATURE] = {1, 1e-30, 1e30, 0}, [DRAGOMAN_TOP_K] = {0, 0, INT32_MAX, 1},
    [DRAGOMAN_TOP_P] = {1, 1e-30, 1, 0}, [DRAGOMAN_SEED] = {0, 0, 9007199254740992.0, 1},
    [DRAGOMAN_BATCH] = {64, 1, 1 << 16, 1}, [DRAGOMAN_WANT_ATTENTION] = {0, 0, 1, 1}, [DRAGOMAN_WANT_TRACE] = {0, 0, 1, 1},
};

dragoman_settings *dragoman_settings_new(void) {
    struct dragoman_settings *settings = calloc(1, sizeof *settings);
    for (int i = 0; i < SETTING_COUNT && settings; i++) settings->values[i] = bounds[i].value;
    return settings;
}

static void list_free(struct list *list) {
    free(list->numbers), free(list->ends);
    *list = (struct list){0};
}

void dragoman_settings_free(dragoman_settings *settings) {
    for (int i = 0; i < LIST_COUNT && settings; i++) list_free(&settings->lists[i]);
    free(settings);
}

static int32_t *copy_of(const int32_t *numbers, int count) {
    int32_t *copy = malloc(((size_t)count + 1) * sizeof *copy);
    if (copy && count) memcpy(copy, numbers, (size_t)count * sizeof *copy);
    return copy;
}

/* How many numbers a list has. */
static int total_of(const struct list *list) { return !list->ends ? list->count : list->count ? list->ends[list->count - 1] : 0; }

struct dragoman_settings *settings_copy(const struct dragoman_settings *settings) {
    static const int copied[] = {DRAGOMAN_FORBIDDEN, DRAGOMAN_FORBIDDEN_RUNS, DRAGOMAN_ONLY};
    struct dragoman_settings *copy = malloc(sizeof *copy);
    int failed = !copy;
    if (copy) *copy = *settings, memset(copy->lists, 0, sizeof copy->lists);
    for (int i = 0; i < 3 && !failed; i++) {
        const struct list *list = &settings->lists[copied[i]];
        struct list *to = &copy->lists[copied[i]];
        if (!list->is_set) continue;
        *to = (struct list){list->count, 1, copy_of(list->numbers, total_of(list)), list->ends ? copy_of(list->ends, list->count) : NULL};
        failed = !to->numbers || (list->ends && !to->ends);
    }
    if (!failed) return copy;
    dragoman_settings_free(copy);
    return NULL;
}

int dragoman_set(dragoman_settings *settings, int setting, double value) {
    if (setting < 0 || setting >= SETTING_COUNT || !(value >= bounds[setting].least && value <= bounds[setting].most)) return DRAGOMAN_BAD_INPUT;
    if (bounds[setting].is_whole && value != floor(value)) return DRAGOMAN_BAD_INPUT;
    settings->values[setting] = value;
    return DRAGOMAN_OK;
}

int dragoman_set_list(dragoman_settings *settings, int list, int count, const int32_t *numbers, const int32_t *ends) {
    if (list < 0 || list >= LIST_COUNT || count < 0) return DRAGOMAN_BAD_INPUT;
    int has_ends = list == DRAGOMAN_FORBIDDEN_RUNS || list == DRAGOMAN_ONLY || list == DRAGOMAN_PREFIXES;
    if (count && has_ends != (ends != NULL)) return DRAGOMAN_BAD_INPUT;
    for (int i = 0; i < count && has_ends; i++)
        if (ends[i] < (i ? ends[i - 1] : 0)) return DRAGOMAN_BAD_INPUT;
    int total = has_ends ? (count ? ends[count - 1] : 0) : count;
    for (int i = 0; i < total && list != DRAGOMAN_KEYS; i++)
        if (numbers[i] < (list == DRAGOMAN_LIMITS)) return DRAGOMAN_BAD_INPUT;
    struct list copy = {count, 1, copy_of(numbers, total), has_ends ? copy_of(ends, count) : NULL};
    if (!copy.numbers || (has_ends && !copy.ends)) {
        list_free(&copy);
        return DRAGOMAN_NO_MEMORY;
    }
    list_free(&settings->lists[list]);
    settings->lists[list] = copy;
    return DRAGOMAN_OK;
}

void dragoman_set_calls(dragoman_settings *settings, dragoman_draw *draw, dragoman_cancel *cancel, void *user) {
    settings->draw = draw, settings->cancel = cancel, settings->user = user;
}

double length_penalty(const struct dragoman_settings *settings, int length) {
    switch (whole(settings, DRAGOMAN_NORMALIZE)) {
    case DRAGOMAN_AVERAGE: return length > 1 ? length : 1;
    case DRAGOMAN_GNMT: return pow((5.0 + length) / 6.0, settings->values[DRAGOMAN_ALPHA]); /* Wu et al. 2016, equation 14 */
    default: return 1.0;
    }
}

static int check_tokens(struct dragoman_context *context, const int32_t *tokens, int count, const char *name) {
    for (int i = 0; i < count; i++)
        if (tokens[i] < 0 || tokens[i] >= context->model->vocabulary)
            return fail(context, DRAGOMAN_BAD_INPUT, "search.%s: there is no token %d, the vocabulary ends at %d; give token numbers of this model",
                        name, tokens[i], context->model->vocabulary - 1);
    return DRAGOMAN_OK;
}

static int check_list(struct dragoman_context *context, const struct list *list, const char *name) { return check_tokens(context, list->numbers, total_of(list), name); }

int settings_check(struct dragoman_context *context, const struct dragoman_settings *settings) {
    const struct list *lists = settings->lists;
    int max_length = whole(settings, DRAGOMAN_MAX_LENGTH);
    if (whole(settings, DRAGOMAN_EOS) >= context->model->vocabulary || whole(settings, DRAGOMAN_BOS) >= context->model->vocabulary)
        return fail(context, DRAGOMAN_BAD_INPUT, "the start or the end symbol is outside the vocabulary");
    if (!whole(settings, DRAGOMAN_SAMPLE) && whole(settings, DRAGOMAN_N_BEST) > whole(settings, DRAGOMAN_BEAM))
        return fail(context, DRAGOMAN_BAD_INPUT, "n_best = %d needs a beam at least as wide, but beam = %d", whole(settings, DRAGOMAN_N_BEST), whole(settings, DRAGOMAN_BEAM));
    if (max_length && whole(settings, DRAGOMAN_MIN_LENGTH) >= max_length)
        return fail(context, DRAGOMAN_BAD_INPUT, "min_length = %d leaves no room for the end symbol: max_length = %d", whole(settings, DRAGOMAN_MIN_LENGTH), max_length);
    TRY(check_list(context, &lists[DRAGOMAN_FORBIDDEN], "forbidden"));
    TRY(check_list(context, &lists[DRAGOMAN_FORBIDDEN_RUNS], "forbidden_runs"));
    return check_list(context, &lists[DRAGOMAN_ONLY], "only");
}

int sources_check(struct dragoman_context *context, const struct dragoman_settings *settings, int count) {
    static const int of_sources[] = {DRAGOMAN_LIMITS, DRAGOMAN_PREFIXES, DRAGOMAN_KEYS};
    for (int i = 0; i < 3; i++) {
        const struct list *list = &settings->lists[of_sources[i]];
        if (list->is_set && list->count != count) return fail(context, DRAGOMAN_BAD_INPUT, "a list has %d entries, but there are %d sources", list->count, count);
    }
    return DRAGOMAN_OK;
}

int entry_check(struct dragoman_context *context, const struct dragoman_settings *settings, const struct dragoman_entry *entry, int i) {
    if (!entry->limit && !whole(settings, DRAGOMAN_MAX_LENGTH))
        return fail(context, DRAGOMAN_BAD_INPUT, "search needs a length limit: set max_length, or give one limit per source");
    if (entry->limit < 0 || entry->prefix_length < 0 || (entry->prefix_length && !entry->prefix))
        return fail(context, DRAGOMAN_BAD_INPUT, "the limit or the prefix of input %d is impossible", i + 1);
    TRY(check_tokens(context, entry->prefix, entry->prefix_length, "prefix"));
    for (int t = 0; t < entry->prefix_length - 1; t++)
        if (entry->prefix[t] == whole(settings, DRAGOMAN_EOS))
            return fail(context, DRAGOMAN_BAD_INPUT, "the forced prefix of input %d goes on after the end symbol; leave that out", i + 1);
    return DRAGOMAN_OK;
}
