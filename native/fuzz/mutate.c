/* Mutations of model files and tokeniser tables: of any byte, and of the numbers that their layouts are made of. */
#include "fuzz.h"

#include <math.h>
#include <string.h>

/* Where things are in a file: src/dragoman/program/file.py, native/tokenizer.h. */
enum { HEAD = 24, ENTRY = 24, COUNT_AT = 12, SIZE_AT = 16 };
enum { STRUCTURE_FIRST = 1, STRUCTURE_LAST = 6, DATA = 7 }; /* kinds of sections */
enum { TABLE_SIZE_AT = 8, TABLE_HEAD = 4 * (8 + 2 * 11) };

int32_t interesting(struct random *random) {
    static const int32_t numbers[] = {0, 1, -1, 2, -2, 3, 4, 7, 8, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 255, 256, 1023, 1024, 4096,
                                      65535, 65536, 1 << 20, 1 << 22, (1 << 22) + 1, 1 << 24, 1 << 26, 1 << 27, 1 << 30, INT32_MAX, INT32_MAX - 1,
                                      INT32_MIN, INT32_MIN + 1, -64, -65536};
    return numbers[below(random, sizeof numbers / sizeof *numbers)];
}

float interesting_float(struct random *random) {
    static const float numbers[] = {NAN, INFINITY, -INFINITY, 0.0f, -0.0f, 1.0f, -1.0f, 3e38f, -3e38f, 1e30f, 1e-45f, 1e-38f, 88.8f, -103.9f, 1e10f};
    return numbers[below(random, sizeof numbers / sizeof *numbers)];
}

static int32_t int_at(const uint8_t *at) {
    int32_t number;
    memcpy(&number, at, sizeof number);
    return number;
}

static int64_t long_at(const uint8_t *at) {
    int64_t number;
    memcpy(&number, at, sizeof number);
    return number;
}

static void put_int(uint8_t *at, int32_t number) { memcpy(at, &number, sizeof number); }
static void put_long(uint8_t *at, int64_t number) { memcpy(at, &number, sizeof number); }

/* Change one whole number of 4 bytes: to another, to a small one, or by a little. */
static void change_int(struct random *random, uint8_t *at) {
    switch (below(random, 4)) {
    case 0: put_int(at, interesting(random)); break;
    case 1: put_int(at, between(random, -2, 40)); break;
    case 2: put_int(at, (int32_t)((uint32_t)int_at(at) + (uint32_t)between(random, -2, 2))); break;
    default: put_int(at, (int32_t)draw(random)); break;
    }
}

static void change_long(struct random *random, uint8_t *at) {
    switch (below(random, 4)) {
    case 0: put_long(at, interesting(random)); break;
    case 1: put_long(at, (int64_t)((uint64_t)(int64_t)interesting(random) << between(random, 0, 32))); break;
    case 2: put_long(at, (int64_t)((uint64_t)long_at(at) + (uint64_t)(64 * between(random, -2, 2)))); break;
    default: put_long(at, (int64_t)((uint64_t)long_at(at) + (uint64_t)between(random, -2, 2))); break;
    }
}

static void flip_bits(struct random *random, struct bytes file) {
    for (int i = between(random, 1, 4); i > 0 && file.size; i--) file.at[below(random, file.size)] ^= (uint8_t)(1u << below(random, 8));
}

static void copy_within(struct random *random, struct bytes file) {
    if (file.size < 8) return;
    size_t length = 1 + below(random, file.size / 4), from = below(random, file.size - length), to = below(random, file.size - length);
    memmove(file.at + to, file.at + from, length);
}

static void splice(struct random *random, struct bytes file, struct bytes other) {
    size_t most = file.size < other.size ? file.size : other.size;
    if (most < 2) return;
    size_t begin = below(random, most), length = 1 + below(random, most - begin);
    memcpy(file.at + begin, other.at + begin, length);
}

/* The section of an entry, if it lies in the file. */
static struct bytes section_of(struct bytes file, const uint8_t *entry) {
    int64_t offset = long_at(entry + 8), size = long_at(entry + 16);
    if (offset < 0 || size < 0 || (uint64_t)offset > file.size || (uint64_t)size > file.size - (uint64_t)offset) return (struct bytes){file.at, 0};
    return (struct bytes){file.at + offset, (size_t)size};
}

static void change_data(struct random *random, struct bytes data) {
    if (data.size < 4) return;
    int is_stretch = one_in(random, 4);
    size_t first = below(random, data.size / 4), count = is_stretch ? 1 + below(random, data.size / 4 - first) : 1;
    float value = interesting_float(random);
    for (size_t i = first; i < first + count; i++) memcpy(data.at + 4 * i, &value, sizeof value);
}

static void change_structure(struct random *random, struct bytes section) {
    if (section.size < 8) return;
    uint8_t *at = section.at + 4 * below(random, section.size / 4), *other = section.at + 4 * below(random, section.size / 4);
    int32_t kept = int_at(at);
    if (one_in(random, 6)) put_int(at, int_at(other)), put_int(other, kept);
    else change_int(random, at);
}

static void change_entries(struct random *random, struct bytes file, size_t entries) {
    uint8_t *one = file.at + HEAD + ENTRY * below(random, entries), *other = file.at + HEAD + ENTRY * below(random, entries), kept[ENTRY];
    switch (below(random, 5)) {
    case 0:
        memcpy(kept, one, ENTRY);
        memcpy(one, other, ENTRY), memcpy(other, kept, ENTRY);
        break;
    case 1: memmove(one, other, ENTRY); break;
    case 2: put_int(one, between(random, -1, 16)); break;
    case 3: change_long(random, one + 8); break;
    default: change_long(random, one + 16); break;
    }
}

/* A section of another file in the place of one of the same kind. */
static void graft(struct random *random, struct bytes file, const uint8_t *entry, struct bytes other) {
    size_t entries = (size_t)int_at(other.at + COUNT_AT);
    for (size_t i = 0; i < entries; i++) {
        const uint8_t *theirs = other.at + HEAD + ENTRY * i;
        if (int_at(theirs) != int_at(entry)) continue;
        struct bytes from = section_of(other, theirs), to = section_of(file, entry);
        size_t length = from.size < to.size ? from.size : to.size;
        if (length) memcpy(to.at, from.at, one_in(random, 2) ? length : 1 + below(random, length));
    }
}

static void change_model(struct random *random, struct bytes *file, struct bytes other) {
    size_t entries = file->size >= HEAD ? (size_t)(uint32_t)int_at(file->at + COUNT_AT) : 0;
    if (entries < 1 || entries > (file->size - HEAD) / ENTRY) {
        flip_bits(random, *file);
        return;
    }
    uint8_t *entry = file->at + HEAD + ENTRY * below(random, entries);
    for (int tries = 0; tries < 20 && (int_at(entry) < STRUCTURE_FIRST || int_at(entry) > STRUCTURE_LAST); tries++)
        entry = file->at + HEAD + ENTRY * below(random, entries);
    switch (below(random, 16)) {
    case 0: flip_bits(random, *file); break;
    case 1: change_entries(random, *file, entries); break;
    case 2: graft(random, *file, entry, other); break;
    case 3: splice(random, *file, other); break;
    case 4: copy_within(random, section_of(*file, entry)); break;
    case 5:
        file->size = one_in(random, 2) ? below(random, file->size) : file->size - (file->size > 64 ? 1 + below(random, 64) : 0);
        if (file->size >= HEAD && one_in(random, 2)) put_long(file->at + SIZE_AT, (int64_t)file->size);
        break;
    case 6: change_int(random, file->at + 4 * below(random, (HEAD + ENTRY * entries) / 4)); break;
    case 7:
    case 8:
    case 9:
        for (size_t i = 0; i < entries; i++)
            if (int_at(file->at + HEAD + ENTRY * i) == DATA) change_data(random, section_of(*file, file->at + HEAD + ENTRY * i));
        break;
    case 10:
        if (section_of(*file, entry).size >= 8) change_long(random, section_of(*file, entry).at + 8 * below(random, section_of(*file, entry).size / 8));
        break;
    default: change_structure(random, section_of(*file, entry)); break;
    }
}

static void change_table(struct random *random, struct bytes *table, struct bytes other) {
    if (table->size < TABLE_HEAD) {
        flip_bits(random, *table);
        return;
    }
    uint8_t *word = table->at + 4 * below(random, one_in(random, 2) ? TABLE_HEAD / 4 : table->size / 4);
    float value = interesting_float(random);
    switch (below(random, 8)) {
    case 0: flip_bits(random, *table); break;
    case 1: splice(random, *table, other); break;
    case 2: copy_within(random, *table); break;
    case 3:
        table->size = one_in(random, 2) ? below(random, table->size) : table->size - (1 + below(random, 16));
        if (table->size >= TABLE_HEAD && one_in(random, 2)) put_int(table->at + TABLE_SIZE_AT, (int32_t)table->size);
        break;
    case 4: memcpy(word, &value, sizeof value); break;
    case 5: table->at[below(random, table->size)] = (uint8_t)draw(random); break;
    default: change_int(random, word); break;
    }
}

typedef void change(struct random *random, struct bytes *file, struct bytes other);

static struct bytes mutate(struct random *random, struct bytes seed, const struct bytes *others, int count, change *change) {
    struct bytes copy = {heap_exact(seed.size), seed.size};
    memcpy(copy.at, seed.at, seed.size);
    int changes = one_in(random, 8) ? 0 : one_in(random, 3) ? between(random, 2, 6) : 1;
    while (changes-- > 0) change(random, &copy, others[below(random, (size_t)count)]);
    struct bytes exact = {heap_exact(copy.size), copy.size};
    if (copy.size) memcpy(exact.at, copy.at, copy.size);
    heap_release(copy.at);
    return exact;
}

struct bytes mutate_model(struct random *random, struct bytes seed, const struct bytes *others, int count) { return mutate(random, seed, others, count, change_model); }
struct bytes mutate_table(struct random *random, struct bytes seed, const struct bytes *others, int count) { return mutate(random, seed, others, count, change_table); }
