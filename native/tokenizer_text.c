/* Text before it is tokenised: buffers, UTF-8, and normalisation form C (Unicode Standard Annex 15). */
#include "tokenizer_parts.h"

#include <stdlib.h>
#include <string.h>

enum { REPLACEMENT = 0xFFFD };

/* ---- buffers */

void *allocate(size_t count, size_t size) { return count > SIZE_MAX / 2 / size ? NULL : malloc(count * size + 1); }

static int make_room(struct buffer *buffer, size_t size) {
    if (buffer->failed) return 0;
    if (buffer->capacity - buffer->size >= size) return 1;
    size_t capacity = buffer->capacity * 2 + 64;
    if (capacity < buffer->size + size) capacity = buffer->size + size;
    uint8_t *bytes = capacity > SIZE_MAX / 2 ? NULL : realloc(buffer->bytes, capacity);
    buffer->failed = !bytes;
    if (!bytes) return 0;
    buffer->bytes = bytes;
    buffer->capacity = capacity;
    return 1;
}

void buffer_append(struct buffer *buffer, const void *bytes, size_t size) {
    if (!size || !make_room(buffer, size)) return;
    memcpy(buffer->bytes + buffer->size, bytes, size);
    buffer->size += size;
}

void buffer_append_character(struct buffer *buffer, uint32_t c) {
    if (!make_room(buffer, 4)) return;
    uint8_t *to = buffer->bytes + buffer->size;
    size_t size = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    static const uint8_t marks[] = {0, 0, 0xC0, 0xE0, 0xF0};
    for (size_t i = size; i-- > 1; c >>= 6) to[i] = (uint8_t)(0x80 | (c & 0x3F));
    to[0] = (uint8_t)(marks[size] | c);
    buffer->size += size;
}

/* ---- UTF-8 */

size_t read_character(const uint8_t *bytes, size_t size, uint32_t *character) {
    uint8_t first = bytes[0];
    *character = first;
    if (first < 0x80) return 1;
    *character = REPLACEMENT;
    if (first < 0xC2 || first > 0xF4) return 1;
    size_t whole = character_size(first);
    /* The second byte excludes what is too long, surrogates, and what is beyond U+10FFFF. */
    uint8_t least = first == 0xE0 ? 0xA0 : first == 0xF0 ? 0x90 : 0x80;
    uint8_t most = first == 0xED ? 0x9F : first == 0xF4 ? 0x8F : 0xBF;
    uint32_t value = first & (0xFFu >> (whole + 1));
    for (size_t i = 1; i < whole; i++) {
        if (i == size || bytes[i] < least || bytes[i] > most) return i;
        value = value << 6 | (bytes[i] & 0x3F);
        least = 0x80, most = 0xBF;
    }
    *character = value;
    return whole;
}

/* The size of the valid UTF-8 that some bytes begin with. */
static size_t valid_size(const uint8_t *bytes, size_t size) {
    size_t at = 0;
    while (at < size) {
        uint32_t character;
        size_t step = read_character(bytes + at, size - at, &character);
        /* U+FFFD itself has three bytes and is written EF BF BD. */
        if (character == REPLACEMENT && !(step == 3 && bytes[at] == 0xEF && bytes[at + 1] == 0xBF && bytes[at + 2] == 0xBD)) break;
        at += step;
    }
    return at;
}

int is_utf8(const uint8_t *bytes, size_t size) { return valid_size(bytes, size) == size; }

void append_repaired(struct buffer *buffer, const uint8_t *bytes, size_t size) {
    while (size) {
        size_t valid = valid_size(bytes, size);
        buffer_append(buffer, bytes, valid);
        bytes += valid, size -= valid;
        if (!size) break;
        uint32_t character;
        size_t step = read_character(bytes, size, &character);
        buffer_append_character(buffer, REPLACEMENT);
        bytes += step, size -= step;
    }
}

/* ---- tables of characters */

/* The index of the last row of a section whose first number is at most `character`, or -1. */
static ptrdiff_t find_row(struct span rows, size_t columns, uint32_t character) {
    size_t low = 0, high = rows.size / 4 / columns;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (number_at(rows.at, middle * columns) <= character) low = middle + 1;
        else high = middle;
    }
    return (ptrdiff_t)low - 1;
}

int is_within(struct span ranges, uint32_t character) {
    ptrdiff_t row = find_row(ranges, 2, character);
    return row >= 0 && character <= number_at(ranges.at, (size_t)row * 2 + 1);
}

static uint8_t class_of(const struct tokenizer *tokenizer, uint32_t character) {
    struct span classes = tokenizer->sections[SECTION_CLASSES];
    ptrdiff_t row = find_row(classes, 3, character);
    int found = row >= 0 && character <= number_at(classes.at, (size_t)row * 3 + 1);
    return found ? (uint8_t)number_at(classes.at, (size_t)row * 3 + 2) : 0;
}

/* ---- normalisation */

/* Hangul syllables are composed by arithmetic (The Unicode Standard, section 3.12). */
enum { S_BASE = 0xAC00, L_BASE = 0x1100, V_BASE = 0x1161, T_BASE = 0x11A7, L_COUNT = 19, V_COUNT = 21, T_COUNT = 28 };
enum { S_COUNT = L_COUNT * V_COUNT * T_COUNT };

/* Some characters, decomposed, with their combining classes. */
struct sequence {
    uint32_t *characters, *spare;
    uint8_t *classes;
    size_t size, capacity;
    int failed;
};

static void push(struct sequence *sequence, uint32_t character, uint8_t class) {
    if (sequence->size == sequence->capacity && !sequence->failed) {
        size_t capacity = sequence->capacity * 2 + 32;
        uint32_t *characters = NULL, *spare = NULL;
        uint8_t *classes = NULL;
        if (capacity < SIZE_MAX / 16) {
            if ((characters = realloc(sequence->characters, capacity * sizeof *characters))) sequence->characters = characters;
            if ((spare = realloc(sequence->spare, capacity * sizeof *spare))) sequence->spare = spare;
            if ((classes = realloc(sequence->classes, capacity))) sequence->classes = classes;
        }
        if (characters && spare && classes) sequence->capacity = capacity;
        else sequence->failed = 1;
    }
    if (sequence->failed) return;
    sequence->characters[sequence->size] = character;
    sequence->classes[sequence->size++] = class;
}

static void decompose(const struct tokenizer *tokenizer, struct sequence *sequence, uint32_t character) {
    if (character >= S_BASE && character < S_BASE + S_COUNT) {
        uint32_t index = character - S_BASE;
        push(sequence, L_BASE + index / (V_COUNT * T_COUNT), 0);
        push(sequence, V_BASE + index % (V_COUNT * T_COUNT) / T_COUNT, 0);
        if (index % T_COUNT) push(sequence, T_BASE + index % T_COUNT, 0);
        return;
    }
    struct span rows = tokenizer->sections[SECTION_DECOMPOSED];
    ptrdiff_t row = find_row(rows, 2, character);
    if (row < 0 || number_at(rows.at, (size_t)row * 2) != character) {
        push(sequence, character, class_of(tokenizer, character));
        return;
    }
    size_t at = row ? number_at(rows.at, (size_t)row * 2 - 1) : 0, end = number_at(rows.at, (size_t)row * 2 + 1);
    for (; at < end; at++) {
        uint32_t part = number_at(tokenizer->sections[SECTION_DECOMPOSITIONS].at, at);
        push(sequence, part, class_of(tokenizer, part));
    }
}

/* Order marks by their classes, equal ones as they are. It takes linear time, however many there are. */
static void order_marks(uint32_t *marks, uint8_t *classes, size_t count, uint32_t *spare) {
    if (count < 2) return;
    size_t places[257] = {0};
    int ordered = 1;
    for (size_t i = 0; i < count; i++) {
        places[classes[i] + 1]++;
        ordered &= !i || classes[i - 1] <= classes[i];
    }
    if (ordered) return;
    for (int class = 1; class < 257; class++) places[class] += places[class - 1];
    for (size_t i = 0; i < count; i++) spare[places[classes[i]]++] = marks[i];
    memcpy(marks, spare, count * sizeof *marks);
    for (size_t i = 0, class = 0; i < count; i++) { /* places[c] is now where class c ends */
        while (i >= places[class]) class++;
        classes[i] = (uint8_t)class;
    }
}

/* The composite of two characters, or 0. */
static uint32_t composite(const struct tokenizer *tokenizer, uint32_t first, uint32_t second) {
    if (first >= L_BASE && first < L_BASE + L_COUNT && second >= V_BASE && second < V_BASE + V_COUNT)
        return S_BASE + ((first - L_BASE) * V_COUNT + second - V_BASE) * T_COUNT;
    if (first >= S_BASE && first < S_BASE + S_COUNT && (first - S_BASE) % T_COUNT == 0 && second > T_BASE && second < T_BASE + T_COUNT)
        return first + second - T_BASE;
    struct span rows = tokenizer->sections[SECTION_COMPOSITIONS];
    size_t low = 0, high = rows.size / 12;
    while (low < high) {
        size_t middle = (low + high) / 2;
        uint32_t a = number_at(rows.at, middle * 3), b = number_at(rows.at, middle * 3 + 1);
        if (a == first && b == second) return number_at(rows.at, middle * 3 + 2);
        if (a < first || (a == first && b < second)) low = middle + 1;
        else high = middle;
    }
    return 0;
}

/* Append a decomposed sequence, composed: a character joins the last starter unless one between them
 * has its class or a greater one. */
static void compose(struct buffer *buffer, const struct tokenizer *tokenizer, struct sequence *sequence) {
    uint32_t *characters = sequence->characters;
    size_t kept = 0, starter = SIZE_MAX;
    for (size_t i = 0; i < sequence->size; i++) {
        uint8_t class = sequence->classes[i];
        if (starter != SIZE_MAX) {
            int is_next = kept == starter + 1;
            uint32_t joined = is_next || sequence->classes[kept - 1] < class ? composite(tokenizer, characters[starter], characters[i]) : 0;
            if (joined) {
                characters[starter] = joined;
                continue;
            }
        }
        if (!class) starter = kept;
        characters[kept] = characters[i];
        sequence->classes[kept++] = class;
    }
    for (size_t i = 0; i < kept; i++) buffer_append_character(buffer, characters[i]);
}

/* A stable character and the unstable ones after it can be normalised without the rest of the text. */
static void append_normalized(struct buffer *buffer, const struct tokenizer *tokenizer, struct sequence *sequence, const uint8_t *bytes, size_t size) {
    sequence->size = 0;
    for (size_t at = 0; at < size && !sequence->failed;) {
        uint32_t character;
        at += read_character(bytes + at, size - at, &character);
        decompose(tokenizer, sequence, character);
    }
    buffer->failed |= sequence->failed;
    if (buffer->failed) return;
    for (size_t begin = 0, end; begin < sequence->size; begin = end) {
        for (; begin < sequence->size && !sequence->classes[begin]; begin++) continue;
        for (end = begin; end < sequence->size && sequence->classes[end]; end++) continue;
        order_marks(sequence->characters + begin, sequence->classes + begin, end - begin, sequence->spare);
    }
    compose(buffer, tokenizer, sequence);
}

void append_composed(struct buffer *buffer, const struct tokenizer *tokenizer, const uint8_t *bytes, size_t size) {
    struct sequence sequence = {0};
    size_t written = 0, stable = 0; /* what is written; the last stable character */
    for (size_t at = 0, step; at < size; at += step) {
        uint32_t character;
        step = read_character(bytes + at, size - at, &character);
        if (character < tokenizer->first_unstable || !is_within(tokenizer->sections[SECTION_UNSTABLE], character)) {
            stable = at;
            continue;
        }
        buffer_append(buffer, bytes + written, stable - written);
        for (at += step; at < size; at += step) {
            step = read_character(bytes + at, size - at, &character);
            if (character < tokenizer->first_unstable || !is_within(tokenizer->sections[SECTION_UNSTABLE], character)) break;
        }
        append_normalized(buffer, tokenizer, &sequence, bytes + stable, at - stable);
        if (buffer->failed) break;
        written = stable = at; /* a stable character, or the end */
        step = 0;
    }
    buffer_append(buffer, bytes + written, size - written);
    free(sequence.characters);
    free(sequence.spare);
    free(sequence.classes);
}
