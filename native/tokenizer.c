/* Tokenisers: open and check a table, and the kinds that look up whole strings. */
#include "tokenizer_parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAGIC = 0x4B4F5444, VERSION = 1, HEADER_WORDS = 8, BYTE_IDS = 256, MOST_IDS = 1 << 24, MOST_PARTS = 64 };

/* ---- checking a table */

static int is_character(uint32_t c) { return c <= 0x10FFFF && (c < 0xD800 || c > 0xDFFF); }

/* Whether rows of (first, last, ...) are ascending ranges. */
static int are_ranges(struct span rows, size_t columns) {
    if (rows.size % (4 * columns)) return 0;
    uint32_t next = 0;
    for (size_t i = 0; i < rows.size / 4; i += columns) {
        uint32_t first = number_at(rows.at, i), last = number_at(rows.at, i + 1);
        if (first < next || last < first || last > 0x10FFFF) return 0;
        next = last + 1;
    }
    return 1;
}

/* Whether rows of (key, end) have ascending keys below `most`, and ends that divide `size` things. */
static int are_ends(struct span rows, uint32_t most, size_t size, size_t longest) {
    if (rows.size % 8) return 0;
    uint32_t next = 0, end = 0;
    for (size_t i = 0; i < rows.size / 4; i += 2) {
        uint32_t key = number_at(rows.at, i), stop = number_at(rows.at, i + 1);
        if (key < next || key >= most || stop <= end || stop - end > longest) return 0;
        next = key + 1, end = stop;
    }
    return end == size;
}

static const char *check_normalization(const struct tokenizer *tokenizer) {
    const struct span *sections = tokenizer->sections;
    struct span classes = sections[SECTION_CLASSES], parts = sections[SECTION_DECOMPOSITIONS], pairs = sections[SECTION_COMPOSITIONS];
    if (!are_ranges(sections[SECTION_UNSTABLE], 2)) return "the unstable characters are not ascending ranges";
    if (!are_ranges(classes, 3)) return "the combining classes are not ascending ranges";
    for (size_t i = 2; i < classes.size / 4; i += 3)
        if (number_at(classes.at, i) - 1 > 253) return "a combining class is not between 1 and 254";
    if (parts.size % 4 || !are_ends(sections[SECTION_DECOMPOSED], 0x110000, parts.size / 4, MOST_PARTS))
        return "the decompositions are not in order";
    for (size_t i = 0; i < parts.size / 4; i++)
        if (!is_character(number_at(parts.at, i))) return "a decomposition has something that is no character";
    if (pairs.size % 12) return "the compositions are cut off";
    for (size_t i = 2; i < pairs.size / 4; i += 3)
        if (!is_character(number_at(pairs.at, i)) || !number_at(pairs.at, i)) return "a composition is no character";
    return NULL;
}

static const char *check_strings(const struct tokenizer *tokenizer) {
    struct span ends = tokenizer->sections[SECTION_STRING_ENDS], strings = tokenizer->sections[SECTION_STRINGS];
    if (ends.size != 4 * (size_t)(tokenizer->count - tokenizer->first)) return "the number of strings is not that of the ids";
    uint32_t begin = 0;
    for (size_t i = 0; i < ends.size / 4; i++) {
        uint32_t end = number_at(ends.at, i);
        if (end < begin || end > strings.size) return "the strings are not in order";
        if (end == begin && tokenizer->method != METHOD_WORDS) return "a string is empty";
        if (!is_utf8(strings.at + begin, end - begin)) return "a string is not UTF-8";
        begin = end;
    }
    return begin == strings.size ? NULL : "the strings are cut off";
}

static const char *check_shown(const struct tokenizer *tokenizer) {
    struct span rows = tokenizer->sections[SECTION_SHOWN_ENDS], bytes = tokenizer->sections[SECTION_SHOWN];
    if (!are_ends(rows, tokenizer->count, bytes.size, bytes.size)) return "the printable strings are not in order";
    for (size_t i = 0, begin = 0; i < rows.size / 8; i++) {
        uint32_t end = number_at(rows.at, 2 * i + 1);
        if (!is_utf8(bytes.at + begin, end - begin)) return "a printable string is not UTF-8";
        begin = end;
    }
    return NULL;
}

static const char *take_scores(struct tokenizer *tokenizer) {
    struct span scores = tokenizer->sections[SECTION_SCORES];
    int is_scored = tokenizer->method == METHOD_BPE || tokenizer->method == METHOD_UNIGRAM;
    if (scores.size != (is_scored ? tokenizer->sections[SECTION_STRING_ENDS].size : 0)) return "the number of scores is not that of the strings";
    if (!scores.size) return is_scored ? "there are no subwords" : NULL;
    tokenizer->scores = allocate(scores.size / 4, sizeof(float));
    if (!tokenizer->scores) return "there is not enough memory";
    float least = 0.0f;
    for (size_t i = 0; i < scores.size / 4; i++) {
        uint32_t bits = number_at(scores.at, i);
        memcpy(&tokenizer->scores[i], &bits, sizeof bits);
        if (!(tokenizer->scores[i] > -1e30f && tokenizer->scores[i] < 1e30f)) return "a score is not a finite number";
        if (!i || tokenizer->scores[i] < least) least = tokenizer->scores[i];
    }
    tokenizer->unknown_score = least - 10.0f; /* sentencepiece's penalty */
    return NULL;
}

static const char *check_words(struct tokenizer *tokenizer) {
    struct span words = tokenizer->sections[SECTION_WORD_RANGES];
    if (tokenizer->method != METHOD_WORDS) return words.size ? "only words have characters of words" : NULL;
    if (!are_ranges(words, 2)) return "the characters of words are not ascending ranges";
    tokenizer->join = tokenizer->root_id;
    tokenizer->space = trie_id(tokenizer, trie_walk(tokenizer, tokenizer->slots, (const uint8_t *)" ", 1));
    return tokenizer->join == UNK_ID || tokenizer->space == UNK_ID ? "the space and the join are missing" : NULL;
}

/* Read a table; returns NULL, or what is wrong with it. */
static const char *read_table(struct tokenizer *tokenizer, const uint8_t *table, size_t size) {
    if (size < 4 * (HEADER_WORDS + 2 * SECTION_KINDS)) return "it is cut off";
    if (number_at(table, 0) != MAGIC) return "it is something else";
    if (number_at(table, 1) != VERSION) return "it has another version";
    if (number_at(table, 2) != size) return "its size is not what it says";
    if (number_at(table, 3) >= METHOD_COUNT || number_at(table, 4) > 1 || number_at(table, 7)) return "a setting is unknown";
    tokenizer->method = (int)number_at(table, 3);
    tokenizer->is_normalized = (int)number_at(table, 4);
    tokenizer->count = number_at(table, 5);
    int has_bytes = tokenizer->method == METHOD_BYTES || tokenizer->method == METHOD_BPE || tokenizer->method == METHOD_UNIGRAM;
    tokenizer->first = SPECIAL_IDS + (has_bytes ? BYTE_IDS : 0);
    if (tokenizer->count < tokenizer->first || tokenizer->count >= MOST_IDS) return "the number of ids is impossible";
    if (tokenizer->method == METHOD_BYTES && tokenizer->count != tokenizer->first) return "bytes have other ids than the bytes";
    for (int i = 0; i < SECTION_KINDS; i++) {
        uint32_t offset = number_at(table, HEADER_WORDS + 2 * (size_t)i), bytes = number_at(table, HEADER_WORDS + 2 * (size_t)i + 1);
        if (offset > size || bytes > size - offset) return "a section is beyond its end";
        tokenizer->sections[i] = (struct span){table + offset, bytes};
    }
    struct span unstable = tokenizer->sections[SECTION_UNSTABLE];
    const char *wrong = check_normalization(tokenizer);
    if (!wrong) wrong = check_strings(tokenizer);
    if (!wrong) wrong = check_shown(tokenizer);
    if (!wrong) wrong = take_scores(tokenizer);
    if (!wrong) wrong = trie_build(tokenizer, number_at(table, 6));
    if (!wrong) wrong = check_words(tokenizer);
    if (!wrong) tokenizer->first_unstable = unstable.size ? number_at(unstable.at, 0) : UINT32_MAX;
    return wrong;
}

tokenizer *tokenizer_open(const void *table, size_t size, char *message, size_t room) {
    struct tokenizer *opened = calloc(1, sizeof *opened);
    const char *wrong = opened ? read_table(opened, table, size) : "there is not enough memory";
    if (!wrong) return opened;
    if (message && room) snprintf(message, room, "the table of a tokeniser cannot be used: %s", wrong);
    tokenizer_close(opened);
    return NULL;
}

void tokenizer_close(tokenizer *tokenizer) {
    if (!tokenizer) return;
    free(tokenizer->nodes);
    free(tokenizer->scores);
    free(tokenizer);
}

int32_t tokenizer_count(const tokenizer *tokenizer) { return (int32_t)tokenizer->count; }

/* ---- encoding */

static int32_t id_of(const struct tokenizer *tokenizer, uint32_t node, const uint8_t *bytes, size_t size) {
    return trie_id(tokenizer, trie_walk(tokenizer, node, bytes, size));
}

static void encode_characters(const struct tokenizer *tokenizer, const uint8_t *text, size_t size, struct ids *ids) {
    for (size_t at = 0, step; at < size; at += step) {
        step = character_size(text[at]);
        give_id(ids, id_of(tokenizer, tokenizer->slots, text + at, step));
    }
}

static void encode_symbols(const struct tokenizer *tokenizer, const uint8_t *text, size_t size, struct ids *ids) {
    for (size_t at = 0, end; at < size; at = end + 1) {
        const uint8_t *space = memchr(text + at, ' ', size - at);
        end = space ? (size_t)(space - text) : size;
        if (end > at) give_id(ids, id_of(tokenizer, tokenizer->slots, text + at, end - at));
    }
}

/* The size of the word, or else of the one character, that a text begins with. */
static size_t word_size(const struct tokenizer *tokenizer, const uint8_t *text, size_t size) {
    size_t at = 0;
    while (at < size) {
        uint32_t character;
        size_t step = read_character(text + at, size - at, &character);
        if (!is_within(tokenizer->sections[SECTION_WORD_RANGES], character)) return at ? at : step;
        at += step;
    }
    return at;
}

/* A unit is a word or another character, with the space before it; the text has a space before it too.
 * A unit that is unknown may be known with or without its space. */
static void encode_words(const struct tokenizer *tokenizer, const uint8_t *text, size_t size, struct ids *ids) {
    uint32_t root = tokenizer->slots, after_space = trie_walk(tokenizer, root, (const uint8_t *)" ", 1);
    int has_space = 1;
    for (size_t at = 0; at < size || (has_space && size);) {
        size_t length = at < size ? word_size(tokenizer, text + at, size - at) : 0;
        uint32_t here = has_space ? after_space : root, other = has_space ? root : after_space;
        int32_t id = id_of(tokenizer, here, text + at, length);
        if (id == UNK_ID) {
            id = id_of(tokenizer, other, text + at, length);
            if (!has_space) give_id(ids, tokenizer->join);
            else if (id != UNK_ID) give_id(ids, tokenizer->space);
        }
        give_id(ids, id);
        at += length;
        has_space = at < size && text[at] == ' ';
        at += (size_t)has_space;
    }
}

int tokenizer_encode(const tokenizer *tokenizer, const char *text, size_t length, int32_t *ids, size_t room, size_t *needed) {
    struct ids given = {ids, room, 0};
    struct buffer repaired = {0}, composed = {0}, escaped = {0};
    struct span clean = {(const uint8_t *)text, length};
    int status = TOKENIZER_OK;
    *needed = 0;
    if (length > TOKENIZER_LONGEST) return TOKENIZER_TOO_LONG;
    if (!length) return TOKENIZER_OK;
    if (!is_utf8(clean.at, clean.size)) {
        append_repaired(&repaired, clean.at, clean.size);
        clean = (struct span){repaired.bytes, repaired.size};
    }
    if (tokenizer->is_normalized && !repaired.failed) {
        append_composed(&composed, tokenizer, clean.at, clean.size);
        clean = (struct span){composed.bytes, composed.size};
    }
    int is_subwords = tokenizer->method == METHOD_BPE || tokenizer->method == METHOD_UNIGRAM;
    if (is_subwords && !repaired.failed && !composed.failed) {
        append_escaped(&escaped, clean.at, clean.size);
        clean = (struct span){escaped.bytes, escaped.size};
    }
    if (repaired.failed || composed.failed || escaped.failed) status = TOKENIZER_NO_MEMORY;
    else if (tokenizer->method == METHOD_CHARACTERS) encode_characters(tokenizer, clean.at, clean.size, &given);
    else if (tokenizer->method == METHOD_SYMBOLS) encode_symbols(tokenizer, clean.at, clean.size, &given);
    else if (tokenizer->method == METHOD_WORDS) encode_words(tokenizer, clean.at, clean.size, &given);
    else if (tokenizer->method == METHOD_BPE) status = encode_bpe(tokenizer, clean.at, clean.size, &given);
    else if (tokenizer->method == METHOD_UNIGRAM) status = encode_unigram(tokenizer, clean.at, clean.size, &given);
    else
        for (size_t i = 0; i < clean.size; i++) give_id(&given, SPECIAL_IDS + clean.at[i]);
    free(repaired.bytes);
    free(composed.bytes);
    free(escaped.bytes);
    if (status == TOKENIZER_OK) *needed = given.count;
    return status;
}

/* ---- decoding */

static const uint8_t UNKNOWN[3] = {0xE2, 0x81, 0x87}, SPACE_MARK[3] = {0xE2, 0x96, 0x81}, JOIN_MARK[3] = {0xEF, 0xBF, 0xAD};

/* The bytes that an id stands for; a byte id stands for `own`. */
static struct span spelling(const struct tokenizer *tokenizer, uint32_t id, uint8_t *own) {
    if (id == UNK_ID) return (struct span){UNKNOWN, sizeof UNKNOWN};
    if (id >= tokenizer->first) return string_of(tokenizer, id);
    *own = (uint8_t)(id - SPECIAL_IDS);
    return (struct span){own, 1};
}

/* Hand bytes to the caller: as many as there is room for. */
static void give_text(const struct buffer *buffer, size_t skip, char *text, size_t room, size_t *needed) {
    *needed = buffer->size - skip;
    if (room && *needed) memcpy(text, buffer->bytes + skip, *needed < room ? *needed : room);
}

int tokenizer_decode(const tokenizer *tokenizer, const int32_t *ids, size_t count, char *text, size_t room, size_t *needed) {
    struct buffer joined = {0}, valid = {0}, plain = {0};
    int is_joined = 0, is_first = 1;
    *needed = 0;
    if (count > TOKENIZER_LONGEST) return TOKENIZER_TOO_LONG;
    for (size_t i = 0; i < count; i++)
        if (ids[i] < 0 || (uint32_t)ids[i] >= tokenizer->count) return TOKENIZER_BAD_INPUT;
    for (size_t i = 0; i < count && !joined.failed; i++) {
        uint8_t own;
        if (ids[i] == PAD_ID || ids[i] == BOS_ID || ids[i] == EOS_ID) continue;
        struct span part = spelling(tokenizer, (uint32_t)ids[i], &own);
        if (tokenizer->method == METHOD_SYMBOLS && !is_first) buffer_append(&joined, " ", 1);
        is_first = 0;
        if (tokenizer->method == METHOD_WORDS) {
            if (ids[i] == tokenizer->join) {
                is_joined = 1;
                continue;
            }
            if (ids[i] == UNK_ID && !is_joined) buffer_append(&joined, " ", 1);
            if (is_joined && part.size && part.at[0] == ' ') part.at++, part.size--;
            is_joined = 0;
        }
        buffer_append(&joined, part.at, part.size);
    }
    int is_subwords = tokenizer->method == METHOD_BPE || tokenizer->method == METHOD_UNIGRAM;
    struct buffer *last = &joined;
    if (tokenizer->method == METHOD_BYTES || is_subwords) {
        if (!joined.failed) append_repaired(&valid, joined.bytes, joined.size);
        last = &valid;
    }
    if (is_subwords) {
        if (!valid.failed) append_unescaped(&plain, valid.bytes, valid.size);
        last = &plain;
    }
    int failed = joined.failed || valid.failed || plain.failed;
    size_t skip = tokenizer->method == METHOD_WORDS && last->size && last->bytes[0] == ' ';
    if (!failed) give_text(last, skip, text, room, needed);
    free(joined.bytes);
    free(valid.bytes);
    free(plain.bytes);
    return failed ? TOKENIZER_NO_MEMORY : TOKENIZER_OK;
}

/* ---- printable strings */

/* The printable string that the table has for an id; its address is NULL where there is none. */
static struct span shown_of(const struct tokenizer *tokenizer, uint32_t id) {
    struct span rows = tokenizer->sections[SECTION_SHOWN_ENDS];
    size_t low = 0, high = rows.size / 8;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (number_at(rows.at, 2 * middle) < id) low = middle + 1;
        else high = middle;
    }
    if (low == rows.size / 8 || number_at(rows.at, 2 * low) != id) return (struct span){NULL, 0};
    uint32_t begin = low ? number_at(rows.at, 2 * low - 1) : 0;
    return (struct span){tokenizer->sections[SECTION_SHOWN].at + begin, number_at(rows.at, 2 * low + 1) - begin};
}

int tokenizer_piece(const tokenizer *tokenizer, int32_t id, char *text, size_t room, size_t *needed) {
    static const char *const specials[] = {"<pad>", "<unk>", "<s>", "</s>"};
    struct buffer shown = {0};
    *needed = 0;
    if (id < 0 || (uint32_t)id >= tokenizer->count) return TOKENIZER_BAD_INPUT;
    struct span own = shown_of(tokenizer, (uint32_t)id);
    if (own.at) {
        buffer_append(&shown, own.at, own.size);
    } else if (id < SPECIAL_IDS) {
        buffer_append(&shown, specials[id], strlen(specials[id]));
    } else if ((uint32_t)id < tokenizer->first) {
        uint8_t value = (uint8_t)(id - SPECIAL_IDS);
        char name[8];
        snprintf(name, sizeof name, "<0x%02X>", value);
        if (tokenizer->method != METHOD_BYTES || value < 0x20 || value >= 0x7F) buffer_append(&shown, name, 6);
        else if (value == ' ') buffer_append(&shown, SPACE_MARK, 3);
        else buffer_append(&shown, &value, 1);
    } else if (tokenizer->method == METHOD_WORDS && id == tokenizer->join) {
        buffer_append(&shown, JOIN_MARK, 3);
    } else {
        struct span string = string_of(tokenizer, (uint32_t)id);
        if (tokenizer->method == METHOD_WORDS && string.size > 1 && string.at[0] == ' ') string.at++, string.size--;
        for (size_t i = 0; i < string.size; i++) {
            if (string.at[i] == ' ') buffer_append(&shown, SPACE_MARK, 3);
            else buffer_append(&shown, string.at + i, 1);
        }
    }
    int failed = shown.failed;
    if (!failed) give_text(&shown, 0, text, room, needed);
    free(shown.bytes);
    return failed ? TOKENIZER_NO_MEMORY : TOKENIZER_OK;
}
