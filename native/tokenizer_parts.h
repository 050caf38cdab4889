/* What the files of the tokenisers share: the opened table, its trie, text that is prepared, output. */
#ifndef DRAGOMAN_TOKENIZER_PARTS_H
#define DRAGOMAN_TOKENIZER_PARTS_H

#include "tokenizer.h"

enum { PAD_ID = 0, UNK_ID = 1, BOS_ID = 2, EOS_ID = 3, SPECIAL_IDS = 4 };
#define NO_NODE UINT32_MAX

/* A prefix of a string: the slot of the prefix that is one byte shorter, the byte, and the id of the
 * string that ends here, or UNK_ID. */
struct node {
    uint32_t parent;
    uint32_t id_and_byte;
};

struct span {
    const uint8_t *at;
    size_t size;
};

struct tokenizer {
    int method, is_normalized;
    uint32_t count, first;  /* number of ids; the first id that has a string */
    struct span sections[SECTION_KINDS];
    /* The trie is a hash table: a node's number is its slot, and the root's is the number of slots. */
    struct node *nodes;
    uint32_t slots;
    int shift;              /* 32 - log2(slots) */
    int32_t root_id, space, join;
    float *scores;          /* of each string */
    float unknown_score;
    uint32_t first_unstable; /* characters below it never change */
};

/* ---- tokenizer_trie.c */

/* Make the trie of all strings; returns NULL, or a sentence that says what is wrong. */
const char *trie_build(struct tokenizer *tokenizer, uint32_t prefixes);
/* The node that `size` bytes lead to from `node`, or NO_NODE. */
uint32_t trie_walk(const struct tokenizer *tokenizer, uint32_t node, const uint8_t *bytes, size_t size);
int32_t trie_id(const struct tokenizer *tokenizer, uint32_t node);

/* The number at `index` of a section. */
static inline uint32_t number_at(const uint8_t *at, size_t index) {
    at += 4 * index;
    return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

/* The string of an id that has one. */
static inline struct span string_of(const struct tokenizer *tokenizer, uint32_t id) {
    const uint8_t *ends = tokenizer->sections[SECTION_STRING_ENDS].at;
    uint32_t index = id - tokenizer->first;
    uint32_t begin = index ? number_at(ends, index - 1) : 0;
    return (struct span){tokenizer->sections[SECTION_STRINGS].at + begin, number_at(ends, index) - begin};
}

/* ---- tokenizer_text.c */

/* Bytes that grow, or that fail for lack of memory. */
struct buffer {
    uint8_t *bytes;
    size_t size, capacity;
    int failed;
};
void buffer_append(struct buffer *buffer, const void *bytes, size_t size);
void buffer_append_character(struct buffer *buffer, uint32_t character);
void *allocate(size_t count, size_t size); /* NULL: no memory, or the product is too large */

/* Read one character of `size` > 0 bytes; it is U+FFFD where they are not UTF-8. Returns its bytes. */
size_t read_character(const uint8_t *bytes, size_t size, uint32_t *character);
int is_utf8(const uint8_t *bytes, size_t size);
/* Append bytes as valid UTF-8. */
void append_repaired(struct buffer *buffer, const uint8_t *bytes, size_t size);

/* Whether a character is in a section of (first, last). */
int is_within(struct span ranges, uint32_t character);
/* Append valid UTF-8 in normalisation form C. */
void append_composed(struct buffer *buffer, const struct tokenizer *tokenizer, const uint8_t *bytes, size_t size);

/* The bytes of a character in valid UTF-8, by its first byte. */
static inline size_t character_size(uint8_t first) { return first < 0x80 ? 1 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4; }

/* ---- tokenizer_subwords.c */

/* Ids on their way to the caller: those beyond `room` are only counted. */
struct ids {
    int32_t *at;
    size_t room, count;
};
static inline void give_id(struct ids *ids, int32_t id) {
    if (ids->count < ids->room) ids->at[ids->count] = id;
    ids->count++;
}

/* Append a text with a space before it, and with the characters escaped that sentencepiece reserves. */
void append_escaped(struct buffer *buffer, const uint8_t *bytes, size_t size);
/* Append an escaped text as it was, without the space before it. */
void append_unescaped(struct buffer *buffer, const uint8_t *bytes, size_t size);
/* Both read an escaped text of valid UTF-8 and return a TOKENIZER_ number. */
int encode_bpe(const struct tokenizer *tokenizer, const uint8_t *text, size_t size, struct ids *ids);
int encode_unigram(const struct tokenizer *tokenizer, const uint8_t *text, size_t size, struct ids *ids);

#endif
