/* Open a model file: read its sections, check every number, and prepare the weights. */
#include "model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OLDEST_FORMAT = 1, NEWEST_FORMAT = 2, MOST_VALUES = 1 << 20 };
/* Products of bytes: a sum of MOST_BYTES of them has 31 bits. Below LEAST_BYTES they would gain nothing, and a short
 * sum averages out less of the rounding. */
enum { LEAST_BYTES = 64, MOST_BYTES = 1 << 15 };
enum section { PROGRAM = 1, SOURCES, SLOTS, ENCODE, STEP, WEIGHTS, DATA, STRINGS, SECTION_COUNT };

struct span {
    const uint8_t *at;
    size_t size;
};

/* A place in a section from which numbers are read. Reading beyond its end sets `failed`. */
struct reader {
    struct span rest;
    int failed;
};

static void read_bytes(struct reader *reader, void *to, size_t size) {
    memset(to, 0, size);
    if (reader->failed || reader->rest.size < size) {
        reader->failed = 1;
        return;
    }
    memcpy(to, reader->rest.at, size);
    reader->rest.at += size;
    reader->rest.size -= size;
}

static int32_t read_int(struct reader *reader) {
    int32_t value;
    read_bytes(reader, &value, sizeof value);
    return value;
}

static int64_t read_long(struct reader *reader) {
    int64_t value;
    read_bytes(reader, &value, sizeof value);
    return value;
}

/* A number from `least` to `most` - 1; anything else fails. */
static int read_within(struct reader *reader, int least, int most) {
    int32_t value = read_int(reader);
    if (value < least || value >= most) reader->failed = 1;
    return reader->failed ? least : value;
}

/* Room for `count` records, each of which takes at least `bytes` of what is left to read. */
static void *make_room(struct reader *reader, int count, size_t bytes, size_t record) {
    if (count < 0 || (size_t)count * bytes > reader->rest.size) reader->failed = 1;
    if (reader->failed) return NULL;
    void *room = calloc((size_t)count + 1, record);
    if (!room) reader->failed = 1;
    return room;
}

/* ---- sections */

static const char *find_sections(const uint8_t *file, size_t size, struct span *sections) {
    struct reader reader = {{file, size}, 0};
    char magic[8];
    read_bytes(&reader, magic, sizeof magic);
    if (reader.failed || memcmp(magic, "DRAGOMAN", 8) != 0) return "this is no model file of Dragoman";
    int format = read_int(&reader);
    if (format < OLDEST_FORMAT || format > NEWEST_FORMAT) return "the file has another format version than this library reads";
    int count = read_within(&reader, 0, 1024);
    if (read_long(&reader) != (int64_t)size) return "the file is not complete";
    for (int i = 0; i < count; i++) {
        int kind = read_int(&reader);
        read_int(&reader);
        int64_t offset = read_long(&reader), length = read_long(&reader);
        if (reader.failed || offset < 0 || length < 0 || offset % 64 != 0 || (uint64_t)offset > size || (uint64_t)length > size - (uint64_t)offset)
            return "a section lies outside the file";
        if (kind > 0 && kind < SECTION_COUNT) sections[kind] = (struct span){file + offset, (size_t)length};
    }
    return reader.failed ? "the table of sections is damaged" : NULL;
}

static void read_weights(struct dragoman_model *model, struct reader *reader, struct span data) {
    model->weights = make_room(reader, model->weight_count, 8 * 8, sizeof *model->weights);
    uint64_t unclaimed = data.size; /* no two weights share data, so what is prepared is in proportion to the file */
    for (int i = 0; i < model->weight_count && !reader->failed; i++) {
        struct weight *weight = &model->weights[i];
        int64_t form = read_long(reader), rank = read_long(reader); /* 0: floats; n: bytes and n - 1 more bits */
        uint64_t size = 1;
        if (form < 0 || form > 1 + MAX_FINE_BITS || rank < 1 || rank > MAX_RANK) reader->failed = 1;
        weight->rank = reader->failed ? 1 : (int)rank;
        for (int d = 0; d < MAX_RANK; d++) {
            int64_t side = read_long(reader);
            if (d >= weight->rank) continue;
            if (side < 1 || side > INT32_MAX || (uint64_t)side > data.size / size) reader->failed = 1;
            if (reader->failed) return;
            weight->dims[d] = (int32_t)side;
            size *= (uint64_t)side;
        }
        uint64_t offset = (uint64_t)read_long(reader), scales = (uint64_t)read_long(reader);
        int is_quantized = form > 0, fine_bits = is_quantized ? (int)form - 1 : 0;
        uint64_t bytes = is_quantized ? size + (size * (uint64_t)fine_bits + 7) / 8 : size * 4, scale_bytes = is_quantized ? (uint64_t)weight->dims[0] * 4 : 0;
        if (offset % 64 || scales % 64 || offset > data.size || bytes > data.size - offset || scales > data.size ||
            scale_bytes > data.size - scales || bytes + scale_bytes > unclaimed)
            reader->failed = 1;
        if (reader->failed) return;
        unclaimed -= bytes + scale_bytes;
        weight->size = (size_t)size;
        if (is_quantized) {
            weight->bytes = (const int8_t *)(data.at + offset);
            weight->fine = data.at + offset + size;
            weight->fine_bits = fine_bits;
            weight->scales = (const float *)(const void *)(data.at + scales);
        } else {
            weight->data = (const float *)(const void *)(data.at + offset);
        }
    }
}

/* An operation: its kind, the number of its inputs, then inputs, outputs, weights and settings. */
static void read_operation(struct dragoman_model *model, struct reader *reader, struct phase *phase, struct operation *to) {
    for (int i = 0; i < MAX_INPUTS; i++) to->inputs[i] = ABSENT;
    for (int i = 0; i < MAX_OUTPUTS; i++) to->outputs[i] = ABSENT;
    for (int i = 0; i < MAX_WEIGHTS; i++) to->weights[i] = ABSENT;
    to->kind = read_within(reader, 0, OP_COUNT);
    const struct operation_form *form = &operation_forms[to->kind];
    to->input_count = read_within(reader, 1, MAX_INPUTS + 1);
    if (form->inputs >= 0 ? to->input_count != form->inputs : to->input_count < 2) reader->failed = 1;
    if (reader->failed) return;
    for (int i = 0; i < to->input_count; i++) {
        to->inputs[i] = read_within(reader, ABSENT, phase->values);
        int is_needed = form->inputs < 0 || (form->needed_inputs >> i & 1);
        if (to->inputs[i] == ABSENT && is_needed) reader->failed = 1;
    }
    for (int i = 0; i < form->outputs; i++) {
        int is_absent = read_within(reader, 0, 2) == 0;
        if (is_absent ? (form->needed_outputs >> i & 1) : phase->values >= MOST_VALUES) reader->failed = 1;
        to->outputs[i] = is_absent ? ABSENT : phase->values++;
    }
    for (int i = 0; i < form->weights; i++) {
        to->weights[i] = read_within(reader, ABSENT, model->weight_count);
        if (to->weights[i] == ABSENT && (form->needed_weights >> i & 1)) reader->failed = 1;
    }
    for (int i = 0; i < form->settings; i++) {
        read_bytes(reader, &to->settings[i], sizeof to->settings[i]);
        int number = to->settings[i].number;
        if (form->setting_types[i] == 2 && (number < 0 || number >= form->setting_words[i])) reader->failed = 1;
    }
}

static void read_phase(struct dragoman_model *model, struct span section, struct phase *phase, int given, int *failed) {
    struct reader reader = {section, *failed};
    phase->given = phase->values = given;
    phase->operations = make_room(&reader, phase->count, 3 * 4, sizeof *phase->operations);
    if (!phase->operations) phase->count = 0;
    for (int i = 0; i < phase->count && !reader.failed; i++) read_operation(model, &reader, phase, &phase->operations[i]);
    size_t values = (size_t)phase->values + 1;
    phase->shapes = calloc(values, sizeof *phase->shapes);
    phase->last_use = calloc(values, sizeof *phase->last_use);
    phase->buffer = calloc(values, sizeof *phase->buffer);
    *failed |= reader.failed || !phase->shapes || !phase->last_use || !phase->buffer;
}

static int32_t *read_list(struct reader *reader, int count) {
    int32_t *list = make_room(reader, count, 4, sizeof *list);
    for (int i = 0; i < count && list; i++) list[i] = read_int(reader);
    return list;
}

static int read_program(struct dragoman_model *model, const struct span *sections) {
    struct reader reader = {sections[PROGRAM], 0};
    if (read_int(&reader) != PROGRAM_VERSION) return 1;
    model->vocabulary = read_within(&reader, 1, 1 << 24);
    model->logits = read_int(&reader);
    model->states = read_int(&reader);
    model->begin = read_int(&reader);
    model->ctc = read_int(&reader);
    model->summary = read_int(&reader);
    model->source_count = read_within(&reader, 0, 1 << 10);
    model->fixed_count = read_within(&reader, 0, 1 << 16);
    model->slot_count = read_within(&reader, 0, 1 << 16);
    model->attention_count = read_within(&reader, 0, 1 << 16);
    model->weight_count = read_within(&reader, 0, 1 << 20);
    model->encode.count = read_within(&reader, 0, 1 << 16);
    model->step.count = read_within(&reader, 1, 1 << 16);
    model->fixed = read_list(&reader, model->fixed_count);
    model->attention = read_list(&reader, model->attention_count);
    int failed = reader.failed;

    struct reader of_sources = {sections[SOURCES], failed};
    struct span strings = sections[STRINGS];
    model->sources = make_room(&of_sources, model->source_count, 3 * 4, sizeof *model->sources);
    for (int i = 0; i < model->source_count && !of_sources.failed; i++) {
        static const int kinds[] = {TOKENS, ROWS, PICTURE};
        model->sources[i].kind = kinds[read_within(&of_sources, 0, 3)];
        model->sources[i].width = read_within(&of_sources, 1, 1 << 22);
        uint32_t name = (uint32_t)read_int(&of_sources);
        if (name >= strings.size || !memchr(strings.at + name, 0, strings.size - name)) of_sources.failed = 1;
        else model->sources[i].name = (const char *)strings.at + name;
    }
    struct reader of_slots = {sections[SLOTS], failed | of_sources.failed};
    model->slots = make_room(&of_slots, model->slot_count, 5 * 4, sizeof *model->slots);
    for (int i = 0; i < model->slot_count && !of_slots.failed; i++) {
        int width = read_int(&of_slots), rows = read_int(&of_slots), begin = read_int(&of_slots), end = read_int(&of_slots);
        int grows = read_within(&of_slots, 0, 2);
        model->slots[i] = (struct slot){width == 0 ? MANY : width, rows, begin, end, grows};
    }
    struct reader of_weights = {sections[WEIGHTS], of_slots.failed};
    read_weights(model, &of_weights, sections[DATA]);
    failed = of_weights.failed;
    if (failed) return 1;
    read_phase(model, sections[ENCODE], &model->encode, model->source_count, &failed);
    read_phase(model, sections[STEP], &model->step, 1 + model->fixed_count + model->slot_count, &failed);
    return failed;
}

/* The numbers of values outside operations. */
static int check_numbers(const struct dragoman_model *model) {
    int encoded = model->encode.values, stepped = model->step.values;
    int failed = model->logits < model->step.given || model->logits >= stepped;
    const int of_encode[] = {model->states, model->begin, model->ctc, model->summary};
    for (int i = 0; i < 4; i++) failed |= of_encode[i] < ABSENT || of_encode[i] >= encoded;
    for (int i = 0; i < model->fixed_count; i++) failed |= model->fixed[i] < 0 || model->fixed[i] >= encoded;
    for (int i = 0; i < model->attention_count; i++) failed |= model->attention[i] < 0 || model->attention[i] >= stepped;
    for (int i = 0; i < model->slot_count; i++) {
        const struct slot *slot = &model->slots[i];
        failed |= slot->begin < ABSENT || slot->begin >= encoded || slot->end < 0 || slot->end >= stepped;
    }
    return failed;
}

/* ---- plans */

/* When each value is read last. What outlives the operations has their count. */
static void find_last_uses(struct phase *phase) {
    for (int i = 0; i < phase->values; i++) phase->last_use[i] = -1;
    for (int i = 0; i < phase->count; i++)
        for (int j = 0; j < phase->operations[i].input_count; j++)
            if (phase->operations[i].inputs[j] != ABSENT) phase->last_use[phase->operations[i].inputs[j]] = i;
}

static void keep(struct phase *phase, int value) {
    if (value != ABSENT) phase->last_use[value] = phase->count;
}

/* Give each value of the step a buffer that no other value needs at the same time. */
static int plan_buffers(struct phase *phase) {
    int *free_at = calloc((size_t)phase->values + 1, sizeof *free_at); /* of each buffer: when it is free again */
    if (!free_at) return 1;
    for (int i = 0; i < phase->count; i++)
        for (int j = 0; j < MAX_OUTPUTS; j++) {
            int value = phase->operations[i].outputs[j], buffer = 0;
            if (value == ABSENT) continue;
            while (buffer < phase->buffers && free_at[buffer] >= i) buffer++;
            if (buffer == phase->buffers) phase->buffers++;
            phase->buffer[value] = buffer;
            free_at[buffer] = phase->last_use[value] < i ? i : phase->last_use[value];
        }
    free(free_at);
    return 0;
}

static const char *plan(struct dragoman_model *model) {
    struct phase *encode = &model->encode, *step = &model->step;
    find_last_uses(encode);
    find_last_uses(step);
    model->readout = ABSENT;
    for (int i = 0; i < step->count; i++)
        if (step->operations[i].outputs[0] == model->logits) model->readout = i;
    const struct operation *readout = model->readout == ABSENT ? NULL : &step->operations[model->readout];
    if (!readout || readout->kind != OP_LINEAR || readout->settings[LINEAR_ACTIVATION].number != ACT_NONE || step->last_use[model->logits] >= 0)
        return "the logits are not made by a last linear operation";
    keep(step, readout->inputs[0]);
    for (int i = 0; i < model->attention_count; i++) keep(step, model->attention[i]);
    for (int i = 0; i < model->fixed_count; i++) keep(encode, model->fixed[i]);
    for (int i = 0; i < model->slot_count; i++) keep(encode, model->slots[i].begin), keep(step, model->slots[i].end);
    keep(encode, model->states), keep(encode, model->begin), keep(encode, model->ctc), keep(encode, model->summary);
    model->is_turned = calloc((size_t)model->fixed_count + 1, 1);
    if (!model->is_turned || plan_buffers(step)) return "there is not enough memory";
    for (int i = 0; i < step->count; i++) {
        const struct operation *operation = &step->operations[i];
        int fixed = operation->inputs[1] - 1;
        if ((operation->kind == OP_CROSS_ATTENTION || operation->kind == OP_DOT_SCORES) && fixed >= 0 && fixed < model->fixed_count)
            model->is_turned[fixed] = 1;
    }
    return NULL;
}

/* ---- weights */

void weight_row(const struct weight *weight, int row, float factor, float *to) {
    size_t width = weight->size / (size_t)weight->dims[0], begin = (size_t)row * width;
    if (weight->data) {
        for (size_t i = 0; i < width; i++) to[i] = weight->data[begin + i] * factor;
        return;
    }
    size_t bits = (size_t)weight->fine_bits;
    int parts = 1 << bits;
    float scale = weight->scales[row] / (float)(2 * parts); /* numbers of half parts are whole */
    for (size_t i = begin; i < begin + width; i++) {
        int fine = bits ? weight->fine[i * bits / 8] >> (i * bits % 8) & (parts - 1) : 0;
        to[i - begin] = (float)(2 * (weight->bytes[i] * parts + fine) + 1 - parts) * scale * factor;
    }
}

/* Pack a quantised weight for products of bytes. */
static int pack_bytes(const struct kernels *kernels, struct weight *weight, int inputs) {
    int outputs = weight->dims[0], columns = kernels->columns(outputs);
    struct byte_panels *panels = &weight->panels;
    *panels = (struct byte_panels){outputs, inputs, malloc(kernels->byte_panels_size(outputs, inputs)), malloc((size_t)columns * sizeof(int32_t)), calloc((size_t)columns, sizeof(float))};
    if (!panels->bytes || !panels->starts || !panels->scales) return 1;
    kernels->pack_bytes(weight->bytes, outputs, inputs, panels->bytes, panels->starts);
    memcpy(panels->scales, weight->scales, (size_t)outputs * sizeof(float));
    return 0;
}

static int prepare_weights(struct dragoman_model *model) {
    for (int i = 0; i < model->weight_count; i++) {
        struct weight *weight = &model->weights[i];
        int width = (int)(weight->size / (size_t)weight->dims[0]);
        if (weight->bytes && weight->wants_packed && model->kernels->product_bytes && width >= LEAST_BYTES && width <= MOST_BYTES) {
            if (pack_bytes(model->kernels, weight, width)) return 1;
            weight->wants_packed = 0;
        }
        if (!weight->data && (weight->wants_plain || weight->wants_packed)) {
            weight->owned = malloc(weight->size * sizeof(float));
            if (!weight->owned) return 1;
            for (int row = 0; row < weight->dims[0]; row++) weight_row(weight, row, 1.0f, weight->owned + (size_t)row * (size_t)width);
        }
        if (weight->wants_packed) {
            weight->packed = malloc(model->kernels->packed_size(weight->dims[0], width) * sizeof(float));
            if (!weight->packed) return 1;
            model->kernels->pack(weight->data ? weight->data : weight->owned, weight->dims[0], width, weight->packed);
        }
        if (weight->wants_plain && weight->owned) weight->data = weight->owned;
        if (!weight->wants_plain) free(weight->owned), weight->owned = NULL;
    }
    return 0;
}

dragoman_model *dragoman_open(const void *file, size_t size, const char *kernels, char *message, size_t room) {
    struct span sections[SECTION_COUNT] = {{0}};
    struct dragoman_model *model = calloc(1, sizeof *model);
    const char *problem = NULL;
    const uint16_t order = 1;
    if (room) *message = 0;
    if (!model) problem = "there is not enough memory";
    else if (!(model->kernels = kernels_choose(kernels))) problem = "this processor does not have that instruction set";
    else if ((uintptr_t)file % 8 || *(const uint8_t *)&order != 1) problem = "the file must be aligned, and the machine little-endian";
    else problem = find_sections(file, size, sections);
    if (!problem && read_program(model, sections)) problem = "the program is damaged, or of another version";
    if (!problem && check_numbers(model)) problem = "the program names a value that it does not have";
    if (!problem && shapes_infer(model, message, room)) problem = room ? message : "the program cannot run"; /* there may be no message */
    if (!problem) problem = plan(model);
    if (!problem && prepare_weights(model)) problem = "there is not enough memory";
    if (!problem) return model;
    if (problem != message) snprintf(message, room, "%s", problem);
    dragoman_close(model);
    return NULL;
}

static void free_phase(struct phase *phase) {
    free(phase->operations), free(phase->shapes), free(phase->last_use), free(phase->buffer);
}

static void weight_free(struct weight *weight) {
    free(weight->owned), free(weight->packed), free(weight->panels.bytes), free(weight->panels.starts), free(weight->panels.scales);
}

void dragoman_close(dragoman_model *model) {
    if (!model) return;
    for (int i = 0; i < model->weight_count && model->weights; i++) weight_free(&model->weights[i]);
    free_phase(&model->encode), free_phase(&model->step);
    free(model->sources), free(model->fixed), free(model->attention), free(model->slots), free(model->weights);
    free(model->is_turned), free(model);
}

int dragoman_describe(const dragoman_model *model, int fact, int index) {
    const struct shape *fixed = fact == DRAGOMAN_FIXED_ROWS || fact == DRAGOMAN_FIXED_WIDTH
                                    ? (index >= 0 && index < model->fixed_count ? &model->step.shapes[1 + index] : NULL) : NULL;
    const struct slot *slot = index >= 0 && index < model->slot_count ? &model->slots[index] : NULL;
    const struct source *source = index >= 0 && index < model->source_count ? &model->sources[index] : NULL;
    switch (fact) {
    case DRAGOMAN_VOCABULARY: return model->vocabulary;
    case DRAGOMAN_SOURCES: return model->source_count;
    case DRAGOMAN_SOURCE_KIND: return source ? (source->kind == TOKENS ? 0 : source->kind == ROWS ? 1 : 2) : -1;
    case DRAGOMAN_SOURCE_WIDTH: return source ? source->width : -1;
    case DRAGOMAN_MAPS: return model->maps;
    case DRAGOMAN_FIXED: return model->fixed_count;
    case DRAGOMAN_FIXED_ROWS: return fixed ? fixed->rows : -1;
    case DRAGOMAN_FIXED_WIDTH: return fixed ? fixed->width : -1;
    case DRAGOMAN_SLOTS: return model->slot_count;
    case DRAGOMAN_SLOT_ROWS: return slot ? slot->rows : -1;
    case DRAGOMAN_SLOT_WIDTH: return slot ? slot->width : -1;
    case DRAGOMAN_SLOT_GROWS: return slot ? slot->grows : -1;
    case DRAGOMAN_HAS_STATES: return model->states != ABSENT;
    case DRAGOMAN_HAS_CTC: return model->ctc != ABSENT;
    case DRAGOMAN_SUMMARY_WIDTH: return model->summary == ABSENT ? 0 : model->encode.shapes[model->summary].width;
    default: return -1;
    }
}

const char *dragoman_source_name(const dragoman_model *model, int index) {
    return index >= 0 && index < model->source_count ? model->sources[index].name : NULL;
}

const char *dragoman_kernels(const dragoman_model *model) { return model->kernels->name; }

int dragoman_has_kernels(const char *name) { return kernels_choose(name) != NULL; }
