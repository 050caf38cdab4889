/* Rows of the slots that grow, such as the keys and values of self-attention. */
#include "search.h"

#include <stdlib.h>

int grow(void **data, int *room, int needed, size_t size) {
    if (needed <= *room) return 0;
    int64_t more = (int64_t)*room * 2 > needed ? (int64_t)*room * 2 : needed;
    if (more < 16) more = 16;
    if (needed < 0 || more > INT32_MAX || (size && (size_t)more > SIZE_MAX / 4 / size)) return 1;
    void *larger = realloc(*data, (size_t)more * size);
    if (!larger) return 1;
    *data = larger, *room = (int)more;
    return 0;
}

int caches_make(struct caches *caches, const struct dragoman_model *model) {
    *caches = (struct caches){.model = model, .data = calloc((size_t)model->slot_count + 1, sizeof *caches->data)};
    return !caches->data;
}

void caches_free(struct caches *caches) {
    for (int i = 0; caches->data && i < caches->model->slot_count; i++) free(caches->data[i]);
    free(caches->data), free(caches->uses), free(caches->before), free(caches->unused);
}

static int caches_grow(struct caches *caches) {
    int room = caches->room, wanted = room ? room + room / 2 : 256, same;
    for (int i = 0; i < caches->model->slot_count; i++) {
        const struct slot *slot = &caches->model->slots[i];
        same = room;
        if (slot->grows && grow((void **)&caches->data[i], &same, wanted, (size_t)slot->width * sizeof(float))) return 1;
    }
    same = room;
    if (GROW(caches->uses, same, wanted)) return 1;
    same = room;
    if (GROW(caches->before, same, wanted)) return 1;
    same = room;
    if (GROW(caches->unused, same, wanted)) return 1;
    caches->room = same;
    while (same > room) caches->unused[caches->unused_count++] = --same; /* low numbers are taken first */
    return 0;
}

int caches_take(struct caches *caches, int before) {
    if (!caches->unused_count && caches_grow(caches)) return -1;
    int row = caches->unused[--caches->unused_count];
    caches->uses[row] = 0;
    caches->before[row] = before;
    caches_use(caches, before);
    return row;
}

void caches_release(struct caches *caches, int row) {
    while (row >= 0 && --caches->uses[row] == 0) {
        caches->unused[caches->unused_count++] = row;
        row = caches->before[row];
    }
}
