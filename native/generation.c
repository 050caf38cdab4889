/* The arrays of all live hypotheses. There are two of them: one is read while the other is filled. */
#include "search.h"

#include <stdlib.h>
#include <string.h>

static int grow_floats(float **data, size_t *room, size_t needed) {
    if (needed <= *room) return 0;
    size_t more = needed + needed / 2;
    float *larger = needed > SIZE_MAX / 16 ? NULL : realloc(*data, more * sizeof *larger);
    if (!larger) return 1;
    *data = larger, *room = more;
    return 0;
}

int generation_make(struct generation *rows, int slots) {
    rows->slots = calloc((size_t)slots + 1, sizeof *rows->slots);
    rows->slot_room = calloc((size_t)slots + 1, sizeof *rows->slot_room);
    return !rows->slots || !rows->slot_room;
}

void generation_free(struct generation *rows, int slots) {
    for (int i = 0; i < slots && rows->slots; i++) free(rows->slots[i]);
    free(rows->slots), free(rows->slot_room), free(rows->rows), free(rows->tokens), free(rows->source), free(rows->position);
    free(rows->cached), free(rows->numbers), free(rows->columns.count), free(rows->columns.first);
}

size_t slot_offset(const struct generation *rows, const struct slot *slot) {
    return slot->width == MANY ? (size_t)rows->columns.first[rows->count] * (size_t)slot->rows : (size_t)rows->count * slot_size(slot, 0);
}

int generation_reserve(const struct dragoman_model *model, struct generation *rows, int states, int cached) {
    int needed = rows->count + 1, room = rows->room;
    if (needed > room) {
        int32_t **ints[] = {&rows->tokens, &rows->source, &rows->position, &rows->cached, &rows->columns.count};
        int is_first = !room;
        for (int i = 0; i < 5; i++) {
            room = rows->room;
            if (GROW(*ints[i], room, needed)) return 1;
        }
        room = rows->room ? rows->room + 1 : 0; /* there is one more beginning than there are rows */
        if (GROW(rows->columns.first, room, 2 * needed + 17)) return 1;
        if (is_first) rows->columns.first[0] = 0;
        if (GROW(rows->rows, rows->room, needed)) return 1;
    }
    int pitch = cached > rows->pitch ? cached + 16 : rows->pitch;
    size_t size = (size_t)needed * (size_t)pitch;
    if (size > rows->number_room) {
        int32_t *larger = size > SIZE_MAX / 16 ? NULL : realloc(rows->numbers, 2 * size * sizeof *larger);
        if (!larger) return 1;
        rows->numbers = larger, rows->number_room = 2 * size;
    }
    for (int n = rows->count - 1; n > 0 && pitch > rows->pitch; n--) /* lists move apart, the last first */
        memmove(rows->numbers + (size_t)n * (size_t)pitch, rows->numbers + (size_t)n * (size_t)rows->pitch, (size_t)rows->pitch * sizeof *rows->numbers);
    rows->pitch = pitch;
    for (int i = 0; i < model->slot_count; i++)
        if (!model->slots[i].grows && grow_floats(&rows->slots[i], &rows->slot_room[i], slot_offset(rows, &model->slots[i]) + slot_size(&model->slots[i], states)))
            return 1;
    return 0;
}

void generation_append(struct generation *rows, struct row row, int token, int place, int position, int cached, int states) {
    int n = rows->count++;
    rows->rows[n] = row;
    rows->tokens[n] = token, rows->source[n] = place, rows->position[n] = position, rows->cached[n] = cached;
    rows->columns.count[n] = states;
    rows->columns.first[n + 1] = rows->columns.first[n] + states;
}
