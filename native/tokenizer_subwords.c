/* Subwords as sentencepiece segments them: byte-pair encoding, and the best path of a unigram model. */
#include "tokenizer_parts.h"

#include <stdlib.h>
#include <string.h>

/* ---- escapes: see subwords.py. Of U+FDD0, U+FDD1 and U+FDD2, the last byte is 0x90, 0x91 or 0x92. */

static const uint8_t ESCAPE[3] = {0xEF, 0xB7, 0x91};

static int is_escape(const uint8_t *bytes, size_t size) {
    return size >= 3 && bytes[0] == 0xEF && bytes[1] == 0xB7 && bytes[2] >= 0x90 && bytes[2] <= 0x92;
}

void append_escaped(struct buffer *buffer, const uint8_t *bytes, size_t size) {
    size_t written = 0;
    if (size) buffer_append(buffer, " ", 1);
    for (size_t at = 0; at < size; at += character_size(bytes[at])) {
        int is_mark = size - at >= 3 && bytes[at] == 0xE2 && bytes[at + 1] == 0x96 && (bytes[at + 2] == 0x81 || bytes[at + 2] == 0x85);
        if (!is_mark && !is_escape(bytes + at, size - at)) continue;
        buffer_append(buffer, bytes + written, at - written);
        if (is_mark) buffer_append_character(buffer, bytes[at + 2] == 0x81 ? 0xFDD0 : 0xFDD2);
        else buffer_append(buffer, ESCAPE, 3), buffer_append(buffer, bytes + at, 3);
        written = at + 3;
    }
    buffer_append(buffer, bytes + written, size - written);
}

void append_unescaped(struct buffer *buffer, const uint8_t *bytes, size_t size) {
    size_t written = size && bytes[0] == ' ';
    for (size_t at = written; at < size; at += character_size(bytes[at])) {
        if (!is_escape(bytes + at, size - at)) continue;
        int is_pair = bytes[at + 2] == 0x91;
        if (is_pair && !is_escape(bytes + at + 3, size - at - 3)) continue;
        buffer_append(buffer, bytes + written, at - written);
        if (is_pair) {
            at += 3;
            buffer_append(buffer, bytes + at, 3);
        } else {
            buffer_append_character(buffer, bytes[at + 2] == 0x90 ? 0x2581 : 0x2585);
        }
        written = at + 3;
    }
    buffer_append(buffer, bytes + written, size - written);
}

/* Give the id of a piece, or of its bytes if it is unknown. sentencepiece's space is U+2581. */
static void give_piece(struct ids *ids, int32_t id, const uint8_t *bytes, size_t size) {
    static const uint8_t space[3] = {0xE2, 0x96, 0x81};
    if (id != UNK_ID) {
        give_id(ids, id);
        return;
    }
    if (size == 1 && bytes[0] == ' ') bytes = space, size = 3;
    for (size_t i = 0; i < size; i++) give_id(ids, SPECIAL_IDS + bytes[i]);
}

/* ---- byte-pair encoding (Sennrich et al. 2016): the pair of the best score is merged first, the
 * leftmost of equal ones. */

struct symbol {
    int32_t previous, next; /* or -1 */
    uint32_t begin, size;   /* size 0: merged into another */
    uint32_t node;          /* of its text in the trie, or NO_NODE */
};

struct pair {
    float score;
    int32_t left, right;
    uint32_t size, node;    /* of both together */
};

struct merging {
    const struct tokenizer *tokenizer;
    const uint8_t *text;
    struct symbol *symbols;
    struct pair *heap;
    size_t pairs;
};

static int is_before(const struct pair *a, const struct pair *b) {
    return a->score > b->score || (a->score == b->score && a->left < b->left);
}

static void add_pair(struct merging *merging, int32_t left, int32_t right) {
    if (left < 0 || right < 0) return;
    const struct symbol *a = &merging->symbols[left], *b = &merging->symbols[right];
    if (a->node == NO_NODE) return;
    uint32_t node = trie_walk(merging->tokenizer, a->node, merging->text + b->begin, b->size);
    int32_t id = trie_id(merging->tokenizer, node);
    if (id == UNK_ID) return;
    float score = merging->tokenizer->scores[(uint32_t)id - merging->tokenizer->first];
    struct pair pair = {score, left, right, a->size + b->size, node};
    size_t at = merging->pairs++;
    for (; at && is_before(&pair, &merging->heap[(at - 1) / 2]); at = (at - 1) / 2)
        merging->heap[at] = merging->heap[(at - 1) / 2];
    merging->heap[at] = pair;
}

static struct pair take_best(struct merging *merging) {
    struct pair best = merging->heap[0], last = merging->heap[--merging->pairs];
    size_t at = 0;
    for (;;) {
        size_t child = 2 * at + 1;
        if (child >= merging->pairs) break;
        if (child + 1 < merging->pairs && is_before(&merging->heap[child + 1], &merging->heap[child])) child++;
        if (!is_before(&merging->heap[child], &last)) break;
        merging->heap[at] = merging->heap[child];
        at = child;
    }
    merging->heap[at] = last;
    return best;
}

static void merge_all(struct merging *merging) {
    struct symbol *symbols = merging->symbols;
    while (merging->pairs) {
        struct pair best = take_best(merging);
        struct symbol *left = &symbols[best.left], *right = &symbols[best.right];
        if (!left->size || !right->size || left->size + right->size != best.size) continue; /* merged since */
        left->size = best.size;
        left->node = best.node;
        left->next = right->next;
        if (right->next >= 0) symbols[right->next].previous = best.left;
        right->size = 0;
        add_pair(merging, left->previous, best.left);
        add_pair(merging, best.left, left->next);
    }
}

int encode_bpe(const struct tokenizer *tokenizer, const uint8_t *text, size_t size, struct ids *ids) {
    size_t count = 0;
    for (size_t at = 0; at < size; at += character_size(text[at])) count++;
    struct merging merging = {.tokenizer = tokenizer, .text = text};
    merging.symbols = allocate(count, sizeof *merging.symbols);
    merging.heap = allocate(count, 3 * sizeof *merging.heap); /* a merge takes one pair and adds at most two */
    int status = merging.symbols && merging.heap ? TOKENIZER_OK : TOKENIZER_NO_MEMORY;
    if (status == TOKENIZER_OK && count) {
        int32_t last = (int32_t)count - 1;
        size_t at = 0;
        for (int32_t i = 0; i <= last; i++) {
            size_t length = character_size(text[at]);
            uint32_t node = trie_walk(tokenizer, tokenizer->slots, text + at, length);
            merging.symbols[i] = (struct symbol){i - 1, i < last ? i + 1 : -1, (uint32_t)at, (uint32_t)length, node};
            at += length;
        }
        for (int32_t i = 0; i < last; i++) add_pair(&merging, i, i + 1);
        merge_all(&merging);
        for (int32_t i = 0; i >= 0; i = merging.symbols[i].next) {
            const struct symbol *symbol = &merging.symbols[i];
            give_piece(ids, trie_id(tokenizer, symbol->node), text + symbol->begin, symbol->size);
        }
    }
    free(merging.symbols);
    free(merging.heap);
    return status;
}

/* ---- the unigram model (Kudo 2018): the path of pieces with the greatest sum of log-probabilities */

struct ending { /* the best path that ends at a byte */
    float score;
    int32_t id, begin; /* of its last piece; begin -1: no path ends here */
};

/* Sums are compared in double precision and kept in single precision, as sentencepiece does: equal
 * segmentations depend on it. */
static void offer(struct ending *ending, double score, int32_t id, int32_t begin) {
    if (ending->begin < 0 || score > (double)ending->score) *ending = (struct ending){(float)score, id, begin};
}

int encode_unigram(const struct tokenizer *tokenizer, const uint8_t *text, size_t size, struct ids *ids) {
    struct ending *endings = allocate(size + 1, sizeof *endings);
    if (!endings) return TOKENIZER_NO_MEMORY;
    for (size_t i = 0; i <= size; i++) endings[i] = (struct ending){0.0f, UNK_ID, -1};
    for (size_t begin = 0, length; begin < size; begin += length) {
        float before = endings[begin].score;
        int is_known = 0;
        uint32_t node = tokenizer->slots;
        length = character_size(text[begin]);
        for (size_t end = begin; end < size;) {
            node = trie_walk(tokenizer, node, text + end++, 1);
            if (node == NO_NODE) break;
            int32_t id = trie_id(tokenizer, node);
            if (id == UNK_ID) continue;
            offer(&endings[end], (double)tokenizer->scores[(uint32_t)id - tokenizer->first] + (double)before, id, (int32_t)begin);
            is_known |= end - begin == length;
        }
        if (!is_known) offer(&endings[begin + length], (double)(tokenizer->unknown_score + before), UNK_ID, (int32_t)begin);
    }
    /* Turn the links of the best path round, so that it can be read from its start. */
    int32_t next = -1;
    for (int32_t end = (int32_t)size; size && end >= 0;) {
        int32_t begin = endings[end].begin;
        endings[end].begin = next;
        next = end;
        if (!end) break;
        end = begin;
    }
    for (int32_t begin = 0; size && begin < (int32_t)size;) {
        int32_t end = endings[begin].begin;
        give_piece(ids, endings[end].id, text + begin, (size_t)(end - begin));
        begin = end;
    }
    free(endings);
    return TOKENIZER_OK;
}
