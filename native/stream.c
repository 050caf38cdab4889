/* A search that is fed while it runs, and the search of sources that are known at the start, which is made of it. */
#include "search.h"

#include <stdlib.h>
#include <string.h>

struct dragoman_stream {
    struct search search;
    struct dragoman_settings *settings; /* a copy */
    int is_broken;
};

static int no_memory(struct dragoman_context *context) { return fail(context, DRAGOMAN_NO_MEMORY, "there is not enough memory"); }

/* The settings have been checked. */
static int stream_make(struct dragoman_context *context, const struct dragoman_settings *settings, int batch, struct dragoman_stream **stream) {
    *stream = NULL;
    if (context->is_searched) return fail(context, DRAGOMAN_BAD_INPUT, "the context has a stream already; free that, or make another context");
    struct dragoman_stream *made = calloc(1, sizeof *made);
    if (!made) return no_memory(context);
    struct search *search = &made->search;
    const struct dragoman_model *model = context->model;
    made->settings = settings_copy(settings);
    search->context = context, search->model = model, search->settings = made->settings;
    context->is_searched = 1, context->memory.sources = 0;
    if (!made->settings || rules_make(&search->rules, model, made->settings) || chooser_make(&search->chooser, model, made->settings, &search->rules) ||
        caches_make(&search->caches, model) || flights_make(search, batch)) {
        dragoman_stream_free(made);
        return no_memory(context);
    }
    *stream = made;
    return DRAGOMAN_OK;
}

int dragoman_stream_new(dragoman_context *context, const dragoman_settings *settings, dragoman_stream **stream) {
    *stream = NULL;
    TRY(settings_check(context, settings));
    TRY(sources_check(context, settings, 0));
    return stream_make(context, settings, whole(settings, DRAGOMAN_BATCH), stream);
}

void dragoman_stream_free(dragoman_stream *stream) {
    if (!stream) return;
    struct search *search = &stream->search;
    rules_free(&search->rules), chooser_free(&search->chooser), caches_free(&search->caches), flights_free(search);
    pool_give_all(&search->context->stores);
    search->context->is_searched = 0;
    dragoman_settings_free(stream->settings);
    free(stream);
}

int dragoman_stream_room(const dragoman_stream *stream) { return stream->is_broken ? 0 : stream->search.unused_count; }

int dragoman_stream_add(dragoman_stream *stream, int count, const struct dragoman_input *inputs, const struct dragoman_entry *entries) {
    struct search *search = &stream->search;
    struct dragoman_context *context = search->context;
    if (count < 1 || count > dragoman_stream_room(stream)) return fail(context, DRAGOMAN_BAD_INPUT, "the stream has no room for %d sources", count);
    if (!entries || (!inputs && search->model->source_count)) return fail(context, DRAGOMAN_BAD_INPUT, "the sources are missing");
    for (int i = 0; i < count; i++) TRY(entry_check(context, search->settings, &entries[i], i));
    return flights_add(search, count, inputs, entries);
}

int dragoman_stream_advance(dragoman_stream *stream) {
    if (stream->is_broken) return fail(stream->search.context, DRAGOMAN_BAD_INPUT, "the stream has failed and cannot go on; free it");
    int reason = search_advance(&stream->search);
    stream->is_broken = reason != DRAGOMAN_OK;
    return reason;
}

static void forget(struct search *search, int i) {
    search->finished_count--;
    memmove(search->finished + i, search->finished + i + 1, (size_t)(search->finished_count - i) * sizeof *search->finished);
}

int dragoman_stream_take(dragoman_stream *stream, int32_t *number, dragoman_result **result) {
    struct search *search = &stream->search;
    if (!search->finished_count) return 0;
    *number = search->finished[0].number, *result = search->finished[0].result;
    forget(search, 0);
    return 1;
}

int dragoman_stream_drop(dragoman_stream *stream, int32_t number) {
    struct search *search = &stream->search;
    for (int i = 0; i < search->finished_count; i++)
        if (search->finished[i].number == number) {
            dragoman_result_free(search->finished[i].result);
            forget(search, i);
            return 1;
        }
    return flights_drop(search, number);
}

/* ---- sources that are known at the start */

struct sources {
    int count;
    const struct dragoman_input *inputs;
    const struct list *limits, *prefixes, *keys;
};

static struct dragoman_entry entry_of(const struct sources *sources, int i) {
    struct dragoman_entry entry = {.number = i, .key = sources->keys->is_set ? sources->keys->numbers[i] : i, .limit = sources->limits->is_set ? sources->limits->numbers[i] : 0};
    if (sources->prefixes->is_set) entry.prefix = sequence_of(sources->prefixes, i, &entry.prefix_length);
    return entry;
}

static int check_all(struct dragoman_context *context, const struct dragoman_settings *settings, const struct sources *sources) {
    TRY(settings_check(context, settings));
    TRY(sources_check(context, settings, sources->count));
    for (int i = 0; i < sources->count; i++) {
        struct dragoman_entry entry = entry_of(sources, i);
        TRY(entry_check(context, settings, &entry, i));
    }
    return DRAGOMAN_OK;
}

/* Sources enter some at a time, so that they are encoded together. `entries` has room for a batch. */
static int search_all(struct search *search, const struct sources *sources, struct dragoman_entry *entries, struct dragoman_result *results) {
    size_t width = (size_t)search->model->source_count;
    for (int added = 0, done = 0; done < sources->count;) {
        while (added < sources->count && search->active_count + search->waiting_count < search->batch) {
            int some = added ? (search->batch + 3) / 4 : search->batch, left = sources->count - added;
            some = some < left ? some : left;
            for (int i = 0; i < some; i++) entries[i] = entry_of(sources, added + i);
            TRY(flights_add(search, some, sources->inputs ? sources->inputs + (size_t)added * width : NULL, entries));
            added += some;
        }
        TRY(search_advance(search));
        for (int i = 0; i < search->finished_count; i++, done++) {
            results[search->finished[i].number] = *search->finished[i].result;
            free(search->finished[i].result);
        }
        search->finished_count = 0;
    }
    return DRAGOMAN_OK;
}

int dragoman_search(dragoman_context *context, int count, const struct dragoman_input *inputs, const dragoman_settings *settings, dragoman_result **result) {
    const struct list *lists = settings->lists;
    struct sources sources = {count, inputs, &lists[DRAGOMAN_LIMITS], &lists[DRAGOMAN_PREFIXES], &lists[DRAGOMAN_KEYS]};
    int batch = whole(settings, DRAGOMAN_BATCH) < count ? whole(settings, DRAGOMAN_BATCH) : count;
    struct dragoman_stream *stream;
    *result = NULL;
    if (count < 1 || count > 1 << 24 || (!inputs && context->model->source_count)) return fail(context, DRAGOMAN_BAD_INPUT, "the number of inputs is impossible");
    TRY(check_all(context, settings, &sources));
    TRY(stream_make(context, settings, batch, &stream));
    struct dragoman_result *results = calloc((size_t)count, sizeof *results);
    struct dragoman_entry *entries = calloc((size_t)batch, sizeof *entries);
    *result = calloc(1, sizeof **result);
    int reason = results && entries && *result ? search_all(&stream->search, &sources, entries, results) : no_memory(context);
    if (!reason && results_join(results, count, *result)) reason = no_memory(context);
    if (reason) dragoman_result_free(*result), *result = NULL;
    for (int i = 0; i < count && results; i++) result_clear(&results[i]);
    free(results), free(entries);
    dragoman_stream_free(stream);
    return reason;
}
