/* Open a mutated tokeniser table; encode hostile texts, decode and spell random ids. */
#include "../tokenizer.h"
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>

enum { LONGEST = 400, MOST_PART = 16 };

/* Parts of texts: letters, marks that are reordered and composed, Hangul, spaces, what sentencepiece reserves, broken UTF-8. */
static const char *const parts[] = {
    "a", "the", " ", "  ", "\t", "\n", "e\xcc\x81", "\xcc\xa3\xcc\x87", "\xcc\x81", "\xe1\x84\x92\xe1\x85\xa1\xe1\x86\xab", "\xed\x95\x9c", "\xe2\x96\x81", "\xef\xb7\x90",
    "\xef\xb7\x91", "\xf0\x9f\x98\x80", "\xf4\x8f\xbf\xbf", "\xed\xa0\x80", "\xff", "\xc3", "\xe2\x96", "\xf0\x9f", "\xc0\x80", "<0x41>", "</s>", "12.5", "\xe0\xa5\x98",
    "\xe2\x84\xab", "\xf0\x9d\x85\x9e", "\xe2\x81\x87", "\x80", "_", "cat",
};

static size_t make_text(struct random *random, struct bytes table, char *text) {
    size_t size = 0, most = one_in(random, 20) ? LONGEST : 60;
    int repeated = one_in(random, 10), part = between(random, 0, (int)(sizeof parts / sizeof *parts) - 1);
    while (size + MOST_PART < most && !one_in(random, 40)) {
        if (!repeated) part = between(random, 0, (int)(sizeof parts / sizeof *parts) - 1);
        if (one_in(random, 8) && table.size > MOST_PART) { /* strings of the table are somewhere in it */
            memcpy(text + size, table.at + below(random, table.size - MOST_PART), 4);
            size += 4;
        } else if (one_in(random, 12)) {
            text[size++] = (char)draw(random);
        } else {
            memcpy(text + size, parts[part], strlen(parts[part]));
            size += strlen(parts[part]);
        }
    }
    return size;
}

static void try_text(struct random *random, const tokenizer *tokenizer, struct bytes table) {
    char text[LONGEST];
    size_t size = make_text(random, table, text), needed = 0, room = one_in(random, 4) ? below(random, 8) : 3 * size + 8;
    char *exact = heap_exact(size);
    if (size) memcpy(exact, text, size);
    int32_t *ids = heap_exact(room * sizeof *ids);
    int reason = tokenizer_encode(tokenizer, exact, size, ids, room, &needed);
    size_t count = needed < room ? needed : room;
    if (reason) count = 0;
    if (!count || one_in(random, 3)) /* other ids than those of a text */
        for (count = below(random, room + 1), needed = 0; needed < count; needed++)
            ids[needed] = one_in(random, 60) ? interesting(random) : between(random, 0, tokenizer_count(tokenizer) - 1);
    size_t letters = one_in(random, 4) ? below(random, 8) : 1000;
    char *decoded = heap_exact(letters);
    tokenizer_decode(tokenizer, ids, count, decoded, letters, &needed);
    for (int i = 0; i < 3; i++) tokenizer_piece(tokenizer, one_in(random, 8) ? interesting(random) : between(random, 0, tokenizer_count(tokenizer) - 1), decoded, letters, &needed);
    heap_release(exact), heap_release(ids), heap_release(decoded);
}

void try_table(struct random *random, struct bytes table, struct counts *counts) {
    char message[200];
    size_t room = one_in(random, 10) ? below(random, 30) : sizeof message;
    tokenizer *opened = tokenizer_open(table.at, table.size, room ? message : NULL, room);
    if (!opened) {
        counts->tables_refused++;
        return;
    }
    counts->tables_opened++;
    for (int i = between(random, 1, 6); i > 0; i--, counts->texts++) try_text(random, opened, table);
    tokenizer_close(opened);
}
