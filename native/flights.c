/* Sources in flight: they are encoded, enter when there is room, and their hypotheses advance. */
#include "search.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static int no_memory(struct search *search) { return fail(search->context, DRAGOMAN_NO_MEMORY, "there is not enough memory"); }

static float ***make_places(int values, int places) {
    float ***lists = calloc((size_t)values + 1, sizeof *lists);
    for (int i = 0; i < values && lists; i++) lists[i] = calloc((size_t)places, sizeof **lists); /* checked below */
    return lists;
}

static int places_failed(float ***lists, int values) {
    int failed = !lists;
    for (int i = 0; i < values && !failed; i++) failed |= !lists[i];
    return failed;
}

static void places_free(float ***lists, int values) {
    for (int i = 0; i < values && lists; i++) free(lists[i]);
    free(lists);
}

int flights_make(struct search *search, int batch) {
    const struct dragoman_model *model = search->model;
    search->batch = batch;
    search->place_count = batch + (batch + 3) / 4;
    size_t places = (size_t)search->place_count;
    search->flights = calloc(places, sizeof *search->flights);
    search->active = calloc(places, sizeof *search->active);
    search->waiting = calloc(places, sizeof *search->waiting);
    search->unused = calloc(places, sizeof *search->unused);
    search->states.count = calloc(places, sizeof *search->states.count);
    search->fixed = make_places(model->fixed_count, search->place_count);
    search->turned = make_places(model->fixed_count, search->place_count);
    search->begin = make_places(model->slot_count, search->place_count);
    if (!search->flights || !search->active || !search->waiting || !search->unused || !search->states.count ||
        generation_make(&search->now, model->slot_count) || generation_make(&search->next, model->slot_count) || places_failed(search->fixed, model->fixed_count) ||
        places_failed(search->turned, model->fixed_count) || places_failed(search->begin, model->slot_count))
        return 1;
    for (int i = search->place_count - 1; i >= 0; i--) search->unused[search->unused_count++] = i;
    return 0;
}

void flights_free(struct search *search) {
    const struct dragoman_model *model = search->model;
    for (int i = 0; i < search->place_count && search->flights; i++) {
        free(search->flights[i].finished), free(search->flights[i].numbers), free(search->flights[i].prefix);
        record_free(&search->flights[i].record);
    }
    for (int i = 0; i < search->finished_count; i++) dragoman_result_free(search->finished[i].result);
    free(search->finished);
    generation_free(&search->now, model->slot_count), generation_free(&search->next, model->slot_count);
    places_free(search->fixed, model->fixed_count), places_free(search->turned, model->fixed_count), places_free(search->begin, model->slot_count);
    free(search->flights), free(search->active), free(search->waiting), free(search->unused), free(search->states.count);
    free(search->own_cache);
    free(search->so_far), free(search->attention);
}

/* ---- encoding */

/* How many floats item b of an encoded value has. */
static size_t encoded_size(const struct search *search, int number, int b) {
    const struct value *value = &search->context->memory.values[number];
    return (size_t)(value->extent ? value->extent->count[b] * value->unit : value->unit);
}

static size_t turned_size(const struct search *search, int fixed, int b) {
    int lanes = search->model->kernels->lanes, count = search->context->memory.values[search->model->fixed[fixed]].extent->count[b];
    return (size_t)((count + lanes - 1) / lanes * lanes) * (size_t)search->model->step.shapes[1 + fixed].width;
}

static size_t aligned(size_t size) { return (size + 15) / 16 * 16; }

static void copy_into(float **store, float **place, const float *from, size_t size) {
    memcpy(*store, from, size * sizeof(float));
    *place = *store;
    *store += aligned(size);
}

/* Copy what a step reads of item b of the batch that was encoded, so that it outlives the batch. */
static int copy_encoded(struct search *search, int place, int b) {
    const struct dragoman_model *model = search->model;
    const struct memory *memory = &search->context->memory;
    size_t size = 0;
    for (int i = 0; i < model->fixed_count; i++)
        size += aligned(encoded_size(search, model->fixed[i], b)) + (memory->turned[i] ? aligned(turned_size(search, i, b)) : 0);
    for (int i = 0; i < model->slot_count; i++)
        if (model->slots[i].begin != ABSENT) size += aligned(encoded_size(search, model->slots[i].begin, b));
    float *store = pool_take(&search->context->stores, size, sizeof *store);
    if (!store) return no_memory(search);
    search->flights[place].store = store;
    for (int i = 0; i < model->fixed_count; i++) {
        copy_into(&store, &search->fixed[i][place], item_of(&memory->values[model->fixed[i]], b), encoded_size(search, model->fixed[i], b));
        if (memory->turned[i]) copy_into(&store, &search->turned[i][place], memory->turned[i][b], turned_size(search, i, b));
    }
    for (int i = 0; i < model->slot_count; i++) {
        int begin = model->slots[i].begin;
        if (begin != ABSENT) copy_into(&store, &search->begin[i][place], item_of(&memory->values[begin], b), encoded_size(search, begin, b));
    }
    return DRAGOMAN_OK;
}

static void free_place(struct search *search, int place) {
    pool_give(&search->context->stores, search->flights[place].store);
    search->flights[place].store = NULL;
    search->unused[search->unused_count++] = place;
}

/* Set up the flight of item b of the batch that was encoded. */
static int begin_flight(struct search *search, int place, const struct dragoman_entry *entry, int b) {
    const struct dragoman_model *model = search->model;
    const struct dragoman_settings *settings = search->settings;
    const struct memory *memory = &search->context->memory;
    struct flight *flight = &search->flights[place];
    int n_best = whole(settings, DRAGOMAN_N_BEST), max_length = whole(settings, DRAGOMAN_MAX_LENGTH);
    struct flight kept = *flight; /* memory that is used again */
    *flight = (struct flight){.number = entry->number, .key = entry->key, .record = kept.record, .finished = kept.finished, .numbers = kept.numbers,
                              .prefix = kept.prefix, .prefix_room = kept.prefix_room};
    record_clear(&flight->record);
    flight->limit = entry->limit ? entry->limit : max_length;
    if (max_length && max_length < flight->limit) flight->limit = max_length;
    flight->states = memory->states ? memory->states->count[b] : 0;
    search->states.count[place] = flight->states;
    flight->width = whole(settings, DRAGOMAN_BEAM);
    if (model->begin != ABSENT) flight->position = count_of(&memory->values[model->begin], b, model->encode.shapes[model->begin].rows);
    for (int i = 0; i < model->slot_count; i++)
        if (model->slots[i].grows && model->slots[i].begin != ABSENT) flight->cached = memory->values[model->slots[i].begin].extent->count[b];
    if (GROW(flight->prefix, flight->prefix_room, entry->prefix_length)) return no_memory(search);
    if (entry->prefix_length) memcpy(flight->prefix, entry->prefix, (size_t)entry->prefix_length * sizeof *flight->prefix);
    flight->prefix_length = entry->prefix_length;
    int eos = whole(settings, DRAGOMAN_EOS);
    flight->is_forced = flight->prefix_length && (flight->prefix_length >= flight->limit || flight->prefix[flight->prefix_length - 1] == eos);
    if (whole(settings, DRAGOMAN_SAMPLE)) {
        if (!flight->numbers) flight->numbers = malloc((size_t)whole(settings, DRAGOMAN_SAMPLES) * DRAGOMAN_DRAWS * sizeof *flight->numbers);
        if (!flight->numbers) return no_memory(search);
    } else {
        if (!flight->finished) flight->finished = malloc((size_t)n_best * sizeof *flight->finished);
        if (!flight->finished) return no_memory(search);
        for (int i = 0; i < n_best; i++) flight->finished[i] = -INFINITY;
    }
    return copy_encoded(search, place, b);
}

int flights_add(struct search *search, int count, const struct dragoman_input *inputs, const struct dragoman_entry *entries) {
    int reason = dragoman_encode(search->context, count, inputs), waiting = search->waiting_count;
    for (int b = 0; b < count && !reason; b++) {
        int place = search->unused[--search->unused_count];
        search->waiting[search->waiting_count++] = place;
        reason = begin_flight(search, place, &entries[b], b);
    }
    while (reason && search->waiting_count > waiting) free_place(search, search->waiting[--search->waiting_count]);
    search->context->memory.sources = 0; /* the next source may need the memory */
    return reason;
}

/* ---- rows */

/* The first row of a source. */
static int enter(struct search *search, int place) {
    const struct dragoman_model *model = search->model;
    struct flight *flight = &search->flights[place];
    struct generation *rows = &search->now;
    if (generation_reserve(model, rows, flight->states, flight->cached)) return no_memory(search);
    struct row row = {0.0, -1, -1};
    int32_t *numbers = rows->numbers + (size_t)rows->count * (size_t)rows->pitch;
    for (int p = 0; p < flight->cached; p++) {
        if ((row.last = caches_take(&search->caches, row.last)) < 0) return no_memory(search);
        numbers[p] = row.last;
    }
    caches_use(&search->caches, row.last);
    for (int i = 0; i < model->slot_count; i++) {
        const struct slot *slot = &model->slots[i];
        const float *begin = slot->begin == ABSENT ? NULL : search->begin[i][place];
        size_t width = (size_t)slot->width, size = slot_size(slot, flight->states);
        if (slot->grows) {
            for (int p = 0; p < flight->cached; p++)
                memcpy(search->caches.data[i] + (size_t)numbers[p] * width, begin + (size_t)p * width, width * sizeof(float));
        } else {
            float *to = rows->slots[i] + slot_offset(rows, slot);
            if (begin) memcpy(to, begin, size * sizeof(float));
            else memset(to, 0, size * sizeof(float));
        }
    }
    flight->first_row = rows->count, flight->rows = 1;
    generation_append(rows, row, whole(search->settings, DRAGOMAN_BOS), place, flight->position, flight->cached, flight->states);
    search->active[search->active_count++] = place;
    return DRAGOMAN_OK;
}

int flights_enter(struct search *search) {
    int count = 0;
    for (; search->active_count < search->batch && count < search->waiting_count; count++) TRY(enter(search, search->waiting[count]));
    search->waiting_count -= count;
    memmove(search->waiting, search->waiting + count, (size_t)search->waiting_count * sizeof *search->waiting);
    return DRAGOMAN_OK;
}

int flights_prepare(struct search *search, struct run *run, struct memory *memory) {
    const struct dragoman_model *model = search->model;
    const struct generation *rows = &search->now;
    struct value *given = search->context->values;
    *memory = (struct memory){.sources = search->place_count, .turned = search->turned};
    *run = (struct run){.context = search->context, .model = model, .kernels = model->kernels, .phase = &model->step, .values = given, .is_step = 1,
                        .items = rows->count, .memory = memory, .source = rows->source, .position = rows->position, .cached = rows->cached,
                        .numbers = rows->numbers, .number_pitch = rows->pitch, .states = model->states == ABSENT ? NULL : &rows->columns};
    *given++ = (struct value){(float *)(void *)rows->tokens, NULL, 1, NULL, NULL};
    for (int i = 0; i < model->fixed_count; i++) {
        const struct shape *shape = &model->step.shapes[1 + i];
        int is_many = shape->rows == MANY;
        *given++ = (struct value){NULL, is_many ? &search->states : NULL, is_many ? shape->width : (int64_t)shape->rows * shape->width, rows->source, search->fixed[i]};
    }
    for (int i = 0; i < model->slot_count; i++) {
        const struct slot *slot = &model->slots[i];
        int is_many = slot->width == MANY;
        if (slot->grows) *given++ = (struct value){search->caches.data[i], NULL, slot->width, NULL, NULL};
        else *given++ = (struct value){rows->slots[i], is_many ? &rows->columns : NULL, is_many ? slot->rows : (int64_t)slot_size(slot, 0), NULL, NULL};
    }
    return step_reserve(search->context, rows->count, rows->columns.first[rows->count]);
}

/* ---- advancing */

/* The row of the caches that holds the newest token of row n: made when the first hypothesis extends it. */
static int own_cache(struct search *search, const struct run *run, int n) {
    if (search->own_cache[n] >= 0) return search->own_cache[n];
    int row = caches_take(&search->caches, search->now.rows[n].last);
    for (int i = 0; i < search->model->slot_count && row >= 0; i++) {
        const struct slot *slot = &search->model->slots[i];
        if (slot->grows) memcpy(search->caches.data[i] + (size_t)row * (size_t)slot->width, item_of(&run->values[slot->end], n), (size_t)slot->width * sizeof(float));
    }
    return search->own_cache[n] = row;
}

/* A hypothesis that extends row n of this generation. */
static int extend(struct search *search, const struct run *run, int place, int n, const struct candidate *candidate, int number) {
    const struct dragoman_model *model = search->model;
    const struct generation *now = &search->now;
    struct generation *next = &search->next;
    struct row row = {candidate->total, number, -1};
    int cached = model->has_caches ? now->cached[n] + 1 : 0, states = now->columns.count[n];
    if (generation_reserve(model, next, states, cached)) return no_memory(search);
    if (model->has_caches) {
        int32_t *numbers = next->numbers + (size_t)next->count * (size_t)next->pitch;
        if ((row.last = own_cache(search, run, n)) < 0) return no_memory(search);
        caches_use(&search->caches, row.last);
        if (cached > 1) memcpy(numbers, now->numbers + (size_t)n * (size_t)now->pitch, (size_t)(cached - 1) * sizeof *numbers);
        numbers[cached - 1] = row.last;
    }
    for (int i = 0; i < model->slot_count; i++) {
        const struct slot *slot = &model->slots[i];
        if (!slot->grows) memcpy(next->slots[i] + slot_offset(next, slot), item_of(&run->values[slot->end], n), slot_size(slot, states) * sizeof(float));
    }
    generation_append(next, row, candidate->token, place, now->position[n] + 1, cached, states);
    return DRAGOMAN_OK;
}

static int advance_flight(struct search *search, const struct run *run, int place) {
    struct flight *flight = &search->flights[place];
    const struct record *record = &flight->record;
    int before = flight->first_row, rows = flight->rows;
    flight->first_row = search->next.count;
    for (int i = record->steps > 1 ? record->candidate_ends[record->steps - 2] : 0; i < record->candidate_count && !flight->is_done; i++)
        if (record->candidates[i].fate == KEPT) TRY(extend(search, run, place, before + record->candidates[i].parent, &record->candidates[i], i));
    flight->rows = search->next.count - flight->first_row;
    for (int n = before; n < before + rows; n++) caches_release(&search->caches, search->now.rows[n].last);
    return DRAGOMAN_OK;
}

/* A source leaves with its result. */
static int leave(struct search *search, int place) {
    struct flight *flight = &search->flights[place];
    size_t width = whole(search->settings, DRAGOMAN_WANT_ATTENTION) ? (size_t)search->model->maps * (size_t)flight->states : 0;
    if (!flight->is_dropped) {
        struct dragoman_result *result = calloc(1, sizeof *result);
        if (!result || GROW(search->finished, search->finished_room, search->finished_count + 1) ||
            result_of_record(&flight->record, search->settings, flight->is_forced, flight->states, width, result)) {
            dragoman_result_free(result);
            return no_memory(search);
        }
        search->finished[search->finished_count++] = (struct finished){flight->number, result};
    }
    free_place(search, place);
    return DRAGOMAN_OK;
}

int flights_advance(struct search *search, const struct run *run) {
    int going = 0;
    if (GROW(search->own_cache, search->own_room, search->now.count)) return no_memory(search);
    for (int n = 0; n < search->now.count; n++) search->own_cache[n] = -1;
    search->next.count = 0;
    for (int i = 0; i < search->active_count; i++) {
        int place = search->active[i];
        search->flights[place].is_done |= search->flights[place].is_dropped;
        TRY(advance_flight(search, run, place));
        if (search->flights[place].is_done) TRY(leave(search, place));
        else search->active[going++] = place;
    }
    search->active_count = going;
    struct generation before = search->now;
    search->now = search->next;
    search->next = before;
    return DRAGOMAN_OK;
}

/* Its hypotheses are among those of others, so a source in flight leaves after the next token. */
int flights_drop(struct search *search, int32_t number) {
    for (int i = 0; i < search->active_count; i++) {
        struct flight *flight = &search->flights[search->active[i]];
        if (flight->number == number && !flight->is_dropped) return flight->is_dropped = 1;
    }
    for (int i = 0; i < search->waiting_count; i++) {
        int place = search->waiting[i];
        if (search->flights[place].number != number) continue;
        search->waiting_count--;
        memmove(search->waiting + i, search->waiting + i + 1, (size_t)(search->waiting_count - i) * sizeof *search->waiting);
        free_place(search, place);
        return 1;
    }
    return 0;
}
