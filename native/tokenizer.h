/* Tokenisers: UTF-8 to token ids and back, for every kind in src/dragoman/data/tokenizers.
 *
 * A tokeniser is one table in memory, written by src/dragoman/export/tokenizer_table.py. What depends
 * on Unicode (which characters make words, canonical decompositions, compositions and combining
 * classes) is data in the table, so that this code knows no version of Unicode but only what is fixed
 * for ever: UTF-8 and the arithmetic of Hangul syllables.
 *
 * The table. All numbers are uint32, little-endian unless they are bytes or scores (float32). The
 * table may begin at any address. Offsets count bytes from its start.
 *
 *     word 0   0x4B4F5444 ("DTOK")
 *     word 1   version: 1
 *     word 2   size of the table in bytes
 *     word 3   method: enum tokenizer_method
 *     word 4   1: texts are normalised to NFC; 0: they are not
 *     word 5   number of ids, the four special tokens included
 *     word 6   number of distinct prefixes, but the empty one, of all strings
 *     word 7   0
 *     then for each section of enum tokenizer_section its offset and its size in bytes
 *
 * Ids 0 to 3 are PAD, UNK, BOS and EOS. With the methods bytes, BPE and unigram, the next 256 ids are
 * the bytes. Each further id has a string: valid UTF-8, all distinct, none empty but the join of words.
 * In the strings of subwords a space is a space (sentencepiece writes U+2581), and characters that
 * sentencepiece reserves are escaped as subwords.py says. The sections:
 *
 *     STRING_ENDS     (n): where each string ends among the bytes of all strings
 *     STRINGS         their bytes
 *     SCORES          (n) float32: subwords only; the greatest is merged first (BPE), or the
 *                     log-probability (unigram)
 *     WORD_RANGES     (first, last), ascending: words only; characters that make words
 *     UNSTABLE        (first, last), ascending: characters that NFC may change, or that may change
 *                     with the character before them
 *     CLASSES         (first, last, class), ascending: canonical combining classes that are not 0
 *     DECOMPOSED      (character, end), ascending: full canonical decompositions, without Hangul, and
 *                     where each ends in
 *     DECOMPOSITIONS  characters
 *     COMPOSITIONS    (first, second, composed), ascending: primary composites, without Hangul
 *     SHOWN_ENDS      (id, end), ascending: ids whose printable string is not made by the rule of
 *                     tokenizer_piece, and where each ends in
 *     SHOWN           bytes
 *
 * UNSTABLE to COMPOSITIONS are empty unless texts are normalised.
 */
#ifndef DRAGOMAN_TOKENIZER_H
#define DRAGOMAN_TOKENIZER_H

#include <stddef.h>
#include <stdint.h>

#ifndef DRAGOMAN_API
#if defined(_WIN32)
#define DRAGOMAN_API __declspec(dllexport)
#else
#define DRAGOMAN_API __attribute__((visibility("default")))
#endif
#endif

/* What a function returns: the numbers of dragoman.h. */
enum {
    TOKENIZER_OK = 0,
    TOKENIZER_BAD_INPUT = 2, /* an id that is outside the vocabulary */
    TOKENIZER_TOO_LONG = 3,  /* more than TOKENIZER_LONGEST bytes or ids */
    TOKENIZER_NO_MEMORY = 4,
};
enum { TOKENIZER_LONGEST = (1 << 27) - 1 };

enum tokenizer_method { METHOD_BYTES, METHOD_CHARACTERS, METHOD_SYMBOLS, METHOD_WORDS, METHOD_BPE, METHOD_UNIGRAM, METHOD_COUNT };
enum tokenizer_section {
    SECTION_STRING_ENDS, SECTION_STRINGS, SECTION_SCORES, SECTION_WORD_RANGES, SECTION_UNSTABLE, SECTION_CLASSES,
    SECTION_DECOMPOSED, SECTION_DECOMPOSITIONS, SECTION_COMPOSITIONS, SECTION_SHOWN_ENDS, SECTION_SHOWN, SECTION_KINDS,
};

typedef struct tokenizer tokenizer; /* never changes: threads may share it */

/* Open a table, which must stay in memory. Everything in it is checked here. Returns NULL with a
 * sentence in `message`, which has `room` bytes. */
DRAGOMAN_API tokenizer *tokenizer_open(const void *table, size_t size, char *message, size_t room);
DRAGOMAN_API void tokenizer_close(tokenizer *tokenizer);

/* The number of ids, the four special tokens included. */
DRAGOMAN_API int32_t tokenizer_count(const tokenizer *tokenizer);

/* Write the ids of a text, without BOS and EOS; UNK for what is not known. Any bytes are a text: what
 * is not UTF-8 is read as Python's decode("utf-8", errors="replace") reads it, one U+FFFD for each
 * maximal part of a character. `needed` is the number of ids; only the first `room` are written. */
DRAGOMAN_API int tokenizer_encode(const tokenizer *tokenizer, const char *text, size_t length, int32_t *ids, size_t room, size_t *needed);

/* Write the text of some ids, which is valid UTF-8 without a zero at its end. PAD, BOS and EOS are
 * skipped; UNK is written as U+2047. `needed` is its size in bytes; only the first `room` are written. */
DRAGOMAN_API int tokenizer_decode(const tokenizer *tokenizer, const int32_t *ids, size_t count, char *text, size_t room, size_t *needed);

/* Write a printable string for one id, for pictures and JSON. The rule: the string of the id, in words
 * without the space before it, with every other space as U+2581; bytes as <0x0A> unless they are
 * ASCII characters. */
DRAGOMAN_API int tokenizer_piece(const tokenizer *tokenizer, int32_t id, char *text, size_t room, size_t *needed);

#endif
