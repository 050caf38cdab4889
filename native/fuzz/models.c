/* Open a mutated model file; encode, step, search and stream with random and hostile inputs. */
#include "../dragoman.h"
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_SOURCES = 8, MOST_INPUTS = 4, MOST_ROWS = 12, MOST_FLOATS = 1 << 16, MOST_STEPS = 24 };

static volatile uint8_t seen; /* what is read must not be optimised away */

static void look_at(const void *data, size_t size) {
    for (size_t i = 0; i < size; i++) seen ^= ((const uint8_t *)data)[i];
}

static void describe(struct random *random, const dragoman_model *model) {
    for (int fact = -1; fact <= DRAGOMAN_SUMMARY_WIDTH + 1; fact++) dragoman_describe(model, fact, interesting(random)), dragoman_describe(model, fact, 0);
    for (int i = -1; i <= dragoman_describe(model, DRAGOMAN_SOURCES, 0); i++) {
        const char *name = dragoman_source_name(model, i);
        if (name) look_at(name, strlen(name) + 1);
    }
    look_at(dragoman_kernels(model), 1);
}

static void note(int reason, long *done, struct counts *counts) {
    if (reason == DRAGOMAN_OK) ++*done;
    else if (reason == DRAGOMAN_NO_MEMORY) counts->out_of_memory++;
    else counts->refused_inputs++;
}

/* ---- inputs */

struct inputs {
    int count, sources;
    struct dragoman_input at[MOST_INPUTS * MOST_SOURCES];
};

static float any_float(struct random *random) { return one_in(random, 40) ? interesting_float(random) : (float)between(random, -1000, 1000) / 500.0f; }

/* Data of one source, of exactly the size that its length claims. */
static struct dragoman_input make_input(struct random *random, const dragoman_model *model, int source, int is_hostile) {
    int kind = dragoman_describe(model, DRAGOMAN_SOURCE_KIND, source), width = dragoman_describe(model, DRAGOMAN_SOURCE_WIDTH, source);
    int unit = kind == 0 ? 1 : width, longest = MOST_FLOATS / unit < 1 ? 1 : MOST_FLOATS / unit > 20 ? 20 : MOST_FLOATS / unit;
    int height = between(random, 1, 9), breadth = between(random, 1, 9);
    if (height * breadth > longest) height = 1, breadth = 1;
    int length = kind == 2 ? height * breadth : between(random, 1, longest);
    if (kind == 0 && one_in(random, 30)) length = between(random, 1, 300);
    size_t floats = (size_t)length * (size_t)unit;
    int32_t *data = heap_exact(floats * sizeof *data);
    for (size_t i = 0; i < floats; i++) {
        float value = any_float(random);
        if (kind) memcpy(data + i, &value, sizeof value);
        else data[i] = is_hostile && one_in(random, 20) ? interesting(random) : between(random, 0, width - 1);
    }
    struct dragoman_input made = {data, length, height, breadth};
    if (is_hostile && one_in(random, 6)) made.length = -(int32_t)below(random, 1u << 31) - 1;
    if (is_hostile && one_in(random, 6)) made.length = 0;
    if (is_hostile && one_in(random, 6)) made.length = INT32_MAX - between(random, 0, 9);
    if (is_hostile && one_in(random, 6)) made.height = interesting(random);
    if (is_hostile && one_in(random, 6)) made.breadth = interesting(random);
    if (kind == 2 && made.length > length) made.height = 0; /* more than is there: must be refused by its sides */
    return made;
}

static void make_inputs(struct random *random, const dragoman_model *model, int is_hostile, struct inputs *inputs) {
    inputs->count = between(random, 1, MOST_INPUTS), inputs->sources = dragoman_describe(model, DRAGOMAN_SOURCES, 0);
    for (int i = 0; i < inputs->count * inputs->sources; i++) inputs->at[i] = make_input(random, model, i % inputs->sources, is_hostile);
}

static void free_inputs(struct inputs *inputs) {
    for (int i = 0; i < inputs->count * inputs->sources; i++) heap_release((void *)(uintptr_t)inputs->at[i].data);
}

/* ---- a step: all arrays of exactly the sizes that the header names */

static float *make_floats(struct random *random, size_t count) {
    float *floats = heap_exact(count * sizeof *floats);
    for (size_t i = 0; i < count; i++) floats[i] = any_float(random);
    return floats;
}

struct stepping {
    int fixed, slots, rows, sources, longest, most_cached;
    int32_t lengths[MOST_INPUTS], source[MOST_ROWS], tokens[MOST_ROWS], positions[MOST_ROWS], cached[MOST_ROWS];
    float **fixed_values, **slot_values, **next;
    size_t *fixed_pitch, *slot_pitch, *next_pitch;
};

static size_t side(int number, int longest) { return (size_t)(number < 0 ? longest : number); }

static int is_small(const dragoman_model *model, const struct stepping *step) {
    size_t floats = (size_t)dragoman_describe(model, DRAGOMAN_VOCABULARY, 0) + (size_t)dragoman_describe(model, DRAGOMAN_MAPS, 0) * (size_t)step->longest;
    for (int i = 0; i < step->fixed; i++)
        floats += side(dragoman_describe(model, DRAGOMAN_FIXED_ROWS, i), step->longest) * side(dragoman_describe(model, DRAGOMAN_FIXED_WIDTH, i), step->longest);
    for (int i = 0; i < step->slots; i++) {
        int grows = dragoman_describe(model, DRAGOMAN_SLOT_GROWS, i);
        floats += (grows ? (size_t)step->most_cached + 1 : side(dragoman_describe(model, DRAGOMAN_SLOT_ROWS, i), step->longest)) *
                  side(dragoman_describe(model, DRAGOMAN_SLOT_WIDTH, i), step->longest);
    }
    return step->fixed < 64 && step->slots < 64 && floats < MOST_FLOATS;
}

static void make_values(struct random *random, const dragoman_context *context, const dragoman_model *model, struct stepping *step) {
    step->fixed_values = heap_exact(64 * sizeof *step->fixed_values), step->slot_values = heap_exact(64 * sizeof *step->slot_values);
    step->next = heap_exact(64 * sizeof *step->next), step->fixed_pitch = heap_exact(64 * sizeof *step->fixed_pitch);
    step->slot_pitch = heap_exact(64 * sizeof *step->slot_pitch), step->next_pitch = heap_exact(64 * sizeof *step->next_pitch);
    for (int i = 0; i < step->fixed; i++) {
        step->fixed_pitch[i] = side(dragoman_describe(model, DRAGOMAN_FIXED_ROWS, i), step->longest) * side(dragoman_describe(model, DRAGOMAN_FIXED_WIDTH, i), step->longest);
        step->fixed_values[i] = make_floats(random, (size_t)step->sources * step->fixed_pitch[i]);
        dragoman_copy(context, DRAGOMAN_OF_FIXED, i, step->fixed_values[i], step->fixed_pitch[i]);
    }
    for (int i = 0; i < step->slots; i++) {
        int grows = dragoman_describe(model, DRAGOMAN_SLOT_GROWS, i);
        size_t width = side(dragoman_describe(model, DRAGOMAN_SLOT_WIDTH, i), step->longest);
        step->next_pitch[i] = grows ? width : side(dragoman_describe(model, DRAGOMAN_SLOT_ROWS, i), step->longest) * width;
        step->slot_pitch[i] = grows ? width * (size_t)step->most_cached : step->next_pitch[i];
        step->slot_values[i] = make_floats(random, (size_t)step->rows * step->slot_pitch[i]);
        step->next[i] = make_floats(random, (size_t)step->rows * step->next_pitch[i]);
    }
}

static void free_values(struct stepping *step) {
    for (int i = 0; i < step->fixed; i++) heap_release(step->fixed_values[i]);
    for (int i = 0; i < step->slots; i++) heap_release(step->slot_values[i]), heap_release(step->next[i]);
    heap_release(step->fixed_values), heap_release(step->slot_values), heap_release(step->next);
    heap_release(step->fixed_pitch), heap_release(step->slot_pitch), heap_release(step->next_pitch);
}

static void spoil(struct random *random, struct stepping *step) {
    int row = between(random, 0, step->rows - 1);
    switch (below(random, 7)) {
    case 0: step->tokens[row] = interesting(random); break;
    case 1: step->source[row] = interesting(random); break;
    case 2: step->positions[row] = interesting(random); break;
    case 3: step->lengths[0] = step->lengths[0] > 1 ? one_in(random, 2) ? 0 : -1 : INT32_MAX; break;
    case 4:
        if (step->fixed) step->fixed_pitch[below(random, (size_t)step->fixed)] += (size_t)between(random, 1, 3);
        break;
    case 5:
        if (step->slots) step->slot_pitch[below(random, (size_t)step->slots)] += (size_t)between(random, 1, 3);
        break;
    default: step->cached[row] = -1; break;
    }
}

/* Steps after `dragoman_encode`, which the caller has done for `sources` inputs; 0 without. */
static void try_step(struct random *random, dragoman_context *context, const dragoman_model *model, int sources, struct counts *counts) {
    struct stepping step = {.fixed = dragoman_describe(model, DRAGOMAN_FIXED, 0), .slots = dragoman_describe(model, DRAGOMAN_SLOTS, 0),
                            .sources = sources ? sources : 1, .longest = 1, .most_cached = one_in(random, 2) ? between(random, 0, 5) : 0};
    int vocabulary = dragoman_describe(model, DRAGOMAN_VOCABULARY, 0), maps = dragoman_describe(model, DRAGOMAN_MAPS, 0);
    for (int b = 0; b < step.sources; b++) step.lengths[b] = 1;
    if (sources) dragoman_lengths(context, DRAGOMAN_OF_STATES, 0, step.lengths);
    for (int b = 0; b < step.sources; b++) step.longest = step.lengths[b] > step.longest ? step.lengths[b] : step.longest;
    step.longest += one_in(random, 4) ? between(random, 0, 3) : 0;
    step.rows = between(random, 1, MOST_ROWS);
    if (!is_small(model, &step)) return;
    make_values(random, context, model, &step);
    for (int n = 0; n < step.rows; n++) {
        step.source[n] = n * step.sources / step.rows, step.tokens[n] = between(random, 0, vocabulary - 1);
        step.positions[n] = between(random, 0, 50), step.cached[n] = n ? between(random, 0, step.most_cached) : step.most_cached;
    }
    if (one_in(random, 4)) spoil(random, &step);
    float *log_probs = make_floats(random, (size_t)step.rows * (size_t)vocabulary);
    float *attention = make_floats(random, (size_t)step.rows * (size_t)maps * (size_t)step.longest);
    struct dragoman_rows rows = {step.sources, step.rows, step.lengths, (const float *const *)step.fixed_values, step.fixed_pitch, step.source, step.tokens,
                                 step.positions, (const float *const *)step.slot_values, step.slot_pitch, step.cached, step.next, step.next_pitch,
                                 log_probs, one_in(random, 3) ? NULL : attention, step.longest};
    if (one_in(random, 20)) rows.rows = -between(random, 0, 9);
    for (int t = between(random, 1, 2); t > 0; t--) note(dragoman_step(context, &rows), &counts->stepped, counts);
    look_at(log_probs, (size_t)step.rows * (size_t)vocabulary * sizeof *log_probs);
    heap_release(log_probs), heap_release(attention);
    free_values(&step);
}

static void try_encode(struct random *random, dragoman_context *context, const dragoman_model *model, struct counts *counts) {
    struct inputs inputs;
    int is_hostile = one_in(random, 4);
    make_inputs(random, model, is_hostile, &inputs);
    int count = is_hostile && one_in(random, 8) ? -between(random, 0, 9) : inputs.count;
    int reason = dragoman_encode(context, count, inputs.at);
    note(reason, &counts->encoded, counts);
    look_at(dragoman_message(context), strlen(dragoman_message(context)) + 1);
    int32_t lengths[MOST_INPUTS];
    float *room = make_floats(random, MOST_FLOATS);
    for (int which = -1; which <= DRAGOMAN_OF_SUMMARY + 1; which++)
        for (int index = -1; index < 3; index++) {
            dragoman_lengths(context, which, index, lengths);
            dragoman_copy(context, which, index, room, MOST_FLOATS / MOST_INPUTS);
        }
    heap_release(room);
    try_step(random, context, model, reason ? 0 : inputs.count, counts);
    free_inputs(&inputs);
}

/* ---- search */

static void set_sequences(struct random *random, dragoman_settings *settings, int list, int count, int vocabulary) {
    int32_t numbers[64], ends[8];
    int total = 0;
    for (int i = 0; i < count; i++) {
        for (int length = between(random, 0, 7); length > 0; length--)
            numbers[total++] = one_in(random, 60) ? interesting(random) : between(random, 0, vocabulary - 1);
        ends[i] = one_in(random, 100) ? -1 : total;
    }
    dragoman_set_list(settings, list, count, numbers, one_in(random, 50) ? NULL : ends);
}

static void set_numbers(struct random *random, dragoman_settings *settings, int list, int count, int least, int most) {
    int32_t numbers[8];
    for (int i = 0; i < count; i++) numbers[i] = one_in(random, 60) ? interesting(random) : between(random, least, most);
    dragoman_set_list(settings, list, count, numbers, NULL);
}

/* Returns how many steps the search may take: few where the caller asks for thousands of hypotheses. */
static int change_settings(struct random *random, dragoman_settings *settings, int vocabulary, int count) {
    static const double extremes[] = {0, 1, -1, 0.5, 2, 3, 64, 10000, 10001, 1e-30, 1e30, 1e-31, 1e300, 2147483647.0, 2147483648.0, 9007199254740992.0, 16777216.0};
    dragoman_set(settings, DRAGOMAN_MAX_LENGTH, between(random, 4, 12));
    dragoman_set(settings, DRAGOMAN_BEAM, between(random, one_in(random, 4) ? 1 : 2, 6));
    if (one_in(random, 2)) dragoman_set(settings, DRAGOMAN_N_BEST, between(random, 1, 2));
    if (one_in(random, 3)) dragoman_set(settings, DRAGOMAN_SAMPLE, 1), dragoman_set(settings, DRAGOMAN_SAMPLES, between(random, 1, 4));
    if (one_in(random, 4)) dragoman_set(settings, DRAGOMAN_TOP_K, between(random, 0, 30)), dragoman_set(settings, DRAGOMAN_TEMPERATURE, between(random, 1, 30) / 10.0);
    if (one_in(random, 4)) dragoman_set(settings, DRAGOMAN_TOP_P, between(random, 1, 10) / 10.0);
    if (one_in(random, 4)) dragoman_set(settings, DRAGOMAN_NORMALIZE, between(random, 0, 2)), dragoman_set(settings, DRAGOMAN_STOP, between(random, 0, 1));
    if (one_in(random, 4)) dragoman_set(settings, DRAGOMAN_MIN_LENGTH, between(random, 0, 4)), dragoman_set(settings, DRAGOMAN_NO_REPEAT_NGRAM, between(random, 0, 3));
    if (one_in(random, 4)) dragoman_set(settings, DRAGOMAN_BATCH, between(random, 1, 3));
    dragoman_set(settings, DRAGOMAN_WANT_ATTENTION, one_in(random, 2)), dragoman_set(settings, DRAGOMAN_WANT_TRACE, one_in(random, 2));
    int steps = between(random, 1, MOST_STEPS);
    for (int i = one_in(random, 2) ? between(random, 1, 4) : 0; i > 0; i--) {
        int setting = between(random, -1, DRAGOMAN_WANT_TRACE + 1);
        double value = extremes[below(random, sizeof extremes / sizeof *extremes)];
        if (!dragoman_set(settings, setting, value) && value > 100 && (setting == DRAGOMAN_BEAM || setting == DRAGOMAN_SAMPLES)) steps = 2;
    }
    if (one_in(random, 3)) set_numbers(random, settings, DRAGOMAN_FORBIDDEN, between(random, 0, 8), 0, vocabulary - 1);
    if (one_in(random, 5)) set_sequences(random, settings, DRAGOMAN_FORBIDDEN_RUNS, between(random, 0, 4), vocabulary);
    if (one_in(random, 5)) set_sequences(random, settings, DRAGOMAN_ONLY, between(random, 0, 6), vocabulary);
    if (one_in(random, 5)) set_sequences(random, settings, DRAGOMAN_PREFIXES, count, vocabulary);
    if (one_in(random, 4)) set_numbers(random, settings, DRAGOMAN_LIMITS, one_in(random, 20) ? 7 : count, 1, 12);
    if (one_in(random, 6)) set_numbers(random, settings, DRAGOMAN_KEYS, count, -5, 100);
    return steps;
}

struct caller {
    struct random random;
    int steps; /* that are left */
};

static void draw_numbers(void *user, int32_t source, int32_t row, int32_t block, float *numbers) {
    (void)source, (void)row, (void)block;
    for (int i = 0; i < DRAGOMAN_DRAWS; i++) numbers[i] = (float)(draw(&((struct caller *)user)->random) >> 40) / 16777216.0f;
}

static int is_enough(void *user) { return --((struct caller *)user)->steps < 0; }

static void look_at_result(const dragoman_result *result) {
    for (int part = -1; part <= DRAGOMAN_PARTS; part++) {
        int is_double = part == DRAGOMAN_SCORES || part == DRAGOMAN_CANDIDATE_TOTALS, is_byte = part == DRAGOMAN_FINISHED || part == DRAGOMAN_CANDIDATE_FATES;
        size_t length = 0;
        const void *data = dragoman_result_part(result, part, &length);
        if (data) look_at(data, length * (is_double ? 8 : is_byte ? 1 : 4));
    }
}

static void try_search(struct random *random, dragoman_context *context, const dragoman_model *model, struct counts *counts) {
    struct inputs inputs;
    struct caller caller = {*random, 0};
    int is_hostile = one_in(random, 8), vocabulary = dragoman_describe(model, DRAGOMAN_VOCABULARY, 0);
    dragoman_settings *settings = dragoman_settings_new();
    if (!settings) return;
    make_inputs(random, model, is_hostile, &inputs);
    caller.steps = change_settings(random, settings, vocabulary, inputs.count);
    dragoman_set_calls(settings, one_in(random, 2) ? draw_numbers : NULL, is_enough, &caller);
    dragoman_result *result = NULL;
    int count = is_hostile && one_in(random, 4) ? -between(random, 0, 9) : inputs.count;
    int reason = dragoman_search(context, count, inputs.at, settings, &result);
    note(reason, &counts->searched, counts);
    look_at(dragoman_message(context), strlen(dragoman_message(context)) + 1);
    if (!reason) look_at_result(result);
    dragoman_result_free(result);
    dragoman_settings_free(settings);
    free_inputs(&inputs);
}

static struct dragoman_entry make_entry(struct random *random, int number, int vocabulary, int32_t *prefix, int most) {
    struct dragoman_entry entry = {.number = number, .key = interesting(random), .limit = between(random, 0, 12)};
    if (one_in(random, 4)) entry.prefix = prefix, entry.prefix_length = between(random, 0, most);
    for (int i = 0; i < most; i++) prefix[i] = one_in(random, 60) ? interesting(random) : between(random, 0, vocabulary - 1);
    if (one_in(random, 40)) entry.limit = interesting(random);
    if (one_in(random, 60)) entry.prefix_length = -between(random, 0, 9);
    if (one_in(random, 60)) entry.prefix = NULL;
    return entry;
}

/* Sources come and go; some are dropped, and the stream is freed with whatever is in it. */
static void use_stream(struct random *random, dragoman_context *context, const dragoman_model *model, dragoman_stream *stream, struct counts *counts) {
    int vocabulary = dragoman_describe(model, DRAGOMAN_VOCABULARY, 0), number = 0;
    for (int turn = between(random, 1, 16); turn > 0; turn--) {
        if (one_in(random, 2)) {
            struct inputs inputs;
            struct dragoman_entry entries[MOST_INPUTS];
            int32_t prefixes[MOST_INPUTS][5], is_hostile = one_in(random, 8);
            make_inputs(random, model, is_hostile, &inputs);
            for (int i = 0; i < inputs.count; i++) entries[i] = make_entry(random, number++, vocabulary, prefixes[i], 5);
            int count = inputs.count, room = dragoman_stream_room(stream);
            if (!is_hostile && room && count > room) count = room; /* what is too much is refused */
            if (is_hostile && one_in(random, 4)) count = -between(random, 0, 9);
            note(dragoman_stream_add(stream, count, is_hostile && one_in(random, 9) ? NULL : inputs.at, entries), &counts->streamed, counts);
            look_at(dragoman_message(context), strlen(dragoman_message(context)) + 1);
            free_inputs(&inputs);
        }
        if (one_in(random, 9)) dragoman_stream_drop(stream, one_in(random, 9) ? interesting(random) : between(random, 0, number));
        if (one_in(random, 20)) try_encode(random, context, model, counts); /* a stream keeps nothing in the context but its sources */
        note(dragoman_stream_advance(stream), &counts->streamed, counts);
        int32_t taken;
        dragoman_result *result;
        while (!one_in(random, 3) && dragoman_stream_take(stream, &taken, &result)) {
            if (taken < 0 || taken >= number) abort();
            look_at_result(result);
            dragoman_result_free(result);
        }
    }
}

static void try_stream(struct random *random, dragoman_context *context, const dragoman_model *model, struct counts *counts) {
    struct caller caller = {*random, 0};
    dragoman_settings *settings = dragoman_settings_new();
    dragoman_stream *stream = NULL, *second = NULL;
    if (!settings) return;
    caller.steps = change_settings(random, settings, dragoman_describe(model, DRAGOMAN_VOCABULARY, 0), 0);
    dragoman_set(settings, DRAGOMAN_BATCH, between(random, 1, 4));
    dragoman_set_calls(settings, one_in(random, 2) ? draw_numbers : NULL, is_enough, &caller);
    note(dragoman_stream_new(context, settings, &stream), &counts->streamed, counts);
    if (stream && !dragoman_stream_new(context, settings, &second)) abort(); /* there is one at a time */
    if (one_in(random, 2)) change_settings(random, settings, 50, 3); /* they were copied */
    dragoman_settings_free(settings);
    if (stream) use_stream(random, context, model, stream, counts);
    dragoman_stream_free(stream);
}

void try_model(struct random *random, struct bytes file, struct counts *counts) {
    static const char *const kernels[] = {NULL, "", "baseline", "avx2", "avx512", "avx512vnni", "abacus"};
    const char *wanted = kernels[below(random, one_in(random, 20) ? 7 : 6)];
    if (wanted && *wanted && !one_in(random, 20) && !dragoman_has_kernels(wanted)) wanted = NULL;
    char message[200];
    size_t room = one_in(random, 10) ? below(random, 30) : sizeof message;
    dragoman_model *model = dragoman_open(file.at, file.size, wanted, room ? message : NULL, room);
    if (!model) {
        counts->refused++;
        if (room) look_at(message, strlen(message));
        return;
    }
    counts->opened++;
    describe(random, model);
    dragoman_context *context = dragoman_new(model);
    if (context && dragoman_describe(model, DRAGOMAN_SOURCES, 0) <= MOST_SOURCES)
        for (int i = between(random, 1, 3); i > 0; i--) {
            int which = between(random, 0, 2);
            (which == 0 ? try_encode : which == 1 ? try_search : try_stream)(random, context, model, counts);
        }
    dragoman_free(context);
    dragoman_close(model);
}
