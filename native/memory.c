/* The memory of a context: blocks that are used again, extents, and tables of positions. */
#include "run.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SLACK = 256 }; /* bytes */

/* AddressSanitizer sees the end of a block that was used for something larger before, and what is read after it was
 * given back. */
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
static void mark_used(const struct block *block, size_t bytes) {
    ASAN_POISON_MEMORY_REGION(block->data, block->size);
    ASAN_UNPOISON_MEMORY_REGION(block->data, bytes);
}
#else
static void mark_used(const struct block *block, size_t bytes) { (void)block, (void)bytes; }
#endif

int fail(struct dragoman_context *context, int reason, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(context->message, sizeof context->message, format, arguments);
    va_end(arguments);
    return reason;
}

/* The smallest free block that is large enough, or a new one. */
void *pool_take(struct pool *pool, size_t count, size_t size) {
    if (size && count > (SIZE_MAX / 4) / size) return NULL;
    size_t bytes = count * size + SLACK;
    struct block *best = NULL;
    for (int i = 0; i < pool->count; i++) {
        struct block *block = &pool->blocks[i];
        if (!block->is_used && block->size >= bytes && (!best || block->size < best->size)) best = block;
    }
    if (!best) {
        if (pool->count == pool->room) {
            int room = pool->room ? 2 * pool->room : 64;
            struct block *blocks = realloc(pool->blocks, (size_t)room * sizeof *blocks);
            if (!blocks) return NULL;
            pool->blocks = blocks, pool->room = room;
        }
        size_t whole = bytes + bytes / 4; /* the next batch may be a little larger */
        void *data = malloc(whole);
        if (!data) return NULL;
        best = &pool->blocks[pool->count++];
        *best = (struct block){data, whole, 0};
    }
    best->is_used = 1;
    mark_used(best, bytes - SLACK);
    return best->data;
}

void pool_give(struct pool *pool, const void *data) {
    for (int i = 0; i < pool->count && data; i++)
        if (pool->blocks[i].data == data) pool->blocks[i].is_used = 0, mark_used(&pool->blocks[i], 0);
}

void pool_give_all(struct pool *pool) {
    for (int i = 0; i < pool->count; i++) pool->blocks[i].is_used = 0, mark_used(&pool->blocks[i], 0);
}

void pool_free(struct pool *pool) {
    for (int i = 0; i < pool->count; i++) mark_used(&pool->blocks[i], pool->blocks[i].size), free(pool->blocks[i].data);
    free(pool->blocks);
}

struct extent *extent_make(struct dragoman_context *context, int items, const int32_t *counts, int is_picture) {
    size_t n = (size_t)items;
    struct extent *extent = calloc(1, sizeof *extent + (n + 1) * sizeof(int64_t) + n * 3 * sizeof(int32_t));
    if (!extent) return NULL;
    extent->first = (int64_t *)(void *)(extent + 1);
    extent->count = (int32_t *)(void *)(extent->first + n + 1);
    if (is_picture) extent->height = extent->count + n, extent->breadth = extent->height + n;
    for (int i = 0; i < items; i++) {
        extent->count[i] = counts[i];
        extent->first[i + 1] = extent->first[i] + counts[i];
    }
    if (context->extent_count == context->extent_room) {
        int room = context->extent_room ? 2 * context->extent_room : 32;
        struct extent **extents = realloc(context->extents, (size_t)room * sizeof *extents);
        if (!extents) {
            free(extent);
            return NULL;
        }
        context->extents = extents, context->extent_room = room;
    }
    context->extents[context->extent_count++] = extent;
    return extent;
}

void extents_drop(struct dragoman_context *context, int keep) {
    while (context->extent_count > keep) free(context->extents[--context->extent_count]);
}

/* PE(p, 2i) = sin(p r_i), PE(p, 2i + 1) = cos(p r_i), r_i = 10000^(-2i / width), in float32 as the
 * model was trained with (Vaswani et al. 2017, section 3.5). The table grows by doubling. */
const float *sinusoids(struct dragoman_context *context, int width, int rows) {
    struct table *table = NULL;
    for (int i = 0; i < context->table_count; i++)
        if (context->tables[i].width == width) table = &context->tables[i];
    if (!table) {
        struct table *tables = realloc(context->tables, (size_t)(context->table_count + 1) * sizeof *tables);
        if (!tables) return NULL;
        context->tables = tables;
        table = &tables[context->table_count++];
        *table = (struct table){width, 0, NULL};
    }
    if (table->rows >= rows) return table->data;
    int most = 2 * rows > 128 ? 2 * rows : 128;
    float *data = (size_t)most > SIZE_MAX / 8 / (size_t)width ? NULL : realloc(table->data, (size_t)most * (size_t)width * sizeof(float));
    if (!data) return NULL;
    float step = (float)(-log(10000.0) / width);
    for (int i = 0; i < width; i += 2) {
        float rate = expf((float)i * step);
        for (int p = table->rows; p < most; p++) {
            float angle = (float)p * rate;
            data[(size_t)p * (size_t)width + (size_t)i] = sinf(angle);
            if (i + 1 < width) data[(size_t)p * (size_t)width + (size_t)i + 1] = cosf(angle);
        }
    }
    table->data = data, table->rows = most;
    return data;
}

dragoman_context *dragoman_new(const dragoman_model *model) {
    struct dragoman_context *context = calloc(1, sizeof *context);
    if (!context) return NULL;
    context->model = model;
    context->memory.values = calloc((size_t)model->encode.values + 1, sizeof *context->memory.values);
    context->memory.turned = calloc((size_t)model->fixed_count + 1, sizeof *context->memory.turned);
    context->values = calloc((size_t)model->step.values + 1, sizeof *context->values);
    context->buffer_offset = calloc((size_t)model->step.buffers + 1, sizeof *context->buffer_offset);
    if (context->memory.values && context->memory.turned && context->values && context->buffer_offset)
        return context;
    dragoman_free(context);
    return NULL;
}

void dragoman_free(dragoman_context *context) {
    if (!context) return;
    extents_drop(context, 0);
    free(context->extents);
    for (int i = 0; i < context->table_count; i++) free(context->tables[i].data);
    free(context->tables);
    pool_free(&context->pool);
    pool_free(&context->stores);
    free(context->memory.values), free(context->memory.turned);
    free(context->values), free(context->arena), free(context->buffer_offset), free(context);
}

const char *dragoman_message(const dragoman_context *context) { return context->message; }
