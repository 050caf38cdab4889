/* The trie of all strings of a tokeniser, as a hash table from a node and a byte to the next node. */
#include "tokenizer_parts.h"

#include <stdlib.h>
#include <string.h>

/* Far more than occurs with honest strings: a table made to collide is refused, not searched for hours. */
enum { MOST_PROBES = 2000 };

static uint32_t slot_of(const struct tokenizer *tokenizer, uint32_t parent, uint8_t byte) {
    uint32_t mixed = (parent ^ (uint32_t)byte << 23) * 0x9E3779B1u;
    mixed ^= mixed >> 15;
    return (mixed * 0x85EBCA77u) >> tokenizer->shift;
}

static uint32_t step(const struct tokenizer *tokenizer, uint32_t parent, uint8_t byte) {
    for (uint32_t slot = slot_of(tokenizer, parent, byte);; slot = (slot + 1) & (tokenizer->slots - 1)) {
        struct node node = tokenizer->nodes[slot];
        if (node.parent == parent && (uint8_t)node.id_and_byte == byte) return slot;
        if (node.parent == NO_NODE) return NO_NODE;
    }
}

uint32_t trie_walk(const struct tokenizer *tokenizer, uint32_t node, const uint8_t *bytes, size_t size) {
    for (size_t i = 0; i < size && node != NO_NODE; i++) node = step(tokenizer, node, bytes[i]);
    return node;
}

int32_t trie_id(const struct tokenizer *tokenizer, uint32_t node) {
    if (node == NO_NODE) return UNK_ID;
    return node == tokenizer->slots ? tokenizer->root_id : (int32_t)(tokenizer->nodes[node].id_and_byte >> 8);
}

/* The node that a byte leads to, made if need be while there is a `left` one; NO_NODE: there is none. */
static uint32_t step_or_make(struct tokenizer *tokenizer, uint32_t parent, uint8_t byte, uint32_t *left) {
    uint32_t slot = slot_of(tokenizer, parent, byte);
    for (int probes = 0; probes < MOST_PROBES; probes++, slot = (slot + 1) & (tokenizer->slots - 1)) {
        struct node *node = &tokenizer->nodes[slot];
        if (node->parent == parent && (uint8_t)node->id_and_byte == byte) return slot;
        if (node->parent != NO_NODE) continue;
        if (!*left) return NO_NODE;
        (*left)--;
        *node = (struct node){parent, (uint32_t)UNK_ID << 8 | byte};
        return slot;
    }
    return NO_NODE;
}

const char *trie_build(struct tokenizer *tokenizer, uint32_t prefixes) {
    tokenizer->shift = 32;
    tokenizer->root_id = UNK_ID;
    if (prefixes > tokenizer->sections[SECTION_STRINGS].size || prefixes >= 1u << 29) return "the number of prefixes is wrong";
    for (tokenizer->slots = 1; tokenizer->slots < 2 || tokenizer->slots / 2 < prefixes; tokenizer->slots *= 2) tokenizer->shift--;
    tokenizer->nodes = allocate(tokenizer->slots, sizeof *tokenizer->nodes);
    if (!tokenizer->nodes) return "there is not enough memory";
    memset(tokenizer->nodes, 0xFF, tokenizer->slots * sizeof *tokenizer->nodes);
    for (uint32_t id = tokenizer->first; id < tokenizer->count; id++) {
        struct span string = string_of(tokenizer, id);
        uint32_t node = tokenizer->slots;
        for (size_t i = 0; i < string.size && node != NO_NODE; i++)
            node = step_or_make(tokenizer, node, string.at[i], &prefixes);
        if (node == NO_NODE) return "there are more prefixes than the table says, or too many collide";
        if (trie_id(tokenizer, node) != UNK_ID) return "two ids have the same string";
        if (node == tokenizer->slots)
            tokenizer->root_id = (int32_t)id;
        else
            tokenizer->nodes[node].id_and_byte = id << 8 | (uint8_t)tokenizer->nodes[node].id_and_byte;
    }
    return prefixes ? "there are fewer prefixes than the table says" : NULL;
}
