/* Dragoman's native library: it runs a trained model from one file, without any dependency.
 *
 * Open a model, make a context for each thread, encode a batch of sources, copy what was encoded,
 * and advance hypotheses with `dragoman_step`.
 * Every function that can fail returns DRAGOMAN_OK or a reason; `dragoman_message` says more.
 */
#ifndef DRAGOMAN_H
#define DRAGOMAN_H

#include <stddef.h>
#include <stdint.h>

#if defined(_WIN32)
#define DRAGOMAN_API __declspec(dllexport)
#else
#define DRAGOMAN_API __attribute__((visibility("default")))
#endif

enum {
    DRAGOMAN_OK = 0,
    DRAGOMAN_BAD_FILE = 1,    /* the file is damaged, or of another version */
    DRAGOMAN_BAD_INPUT = 2,   /* a source or a setting is not what the model reads */
    DRAGOMAN_TOO_LONG = 3,    /* longer than the positions that the model knows */
    DRAGOMAN_NO_MEMORY = 4,
};

typedef struct dragoman_model dragoman_model;     /* never changes: threads may share it */
typedef struct dragoman_context dragoman_context; /* belongs to one thread at a time */

/* Open a model that is in memory (a mapped file) and stays there. `kernels` names an instruction
 * set ("baseline", "avx2", "avx512"); NULL: the best. Returns NULL with a sentence in `message`. */
DRAGOMAN_API dragoman_model *dragoman_open(const void *file, size_t size, const char *kernels, char *message, size_t room);
DRAGOMAN_API void dragoman_close(dragoman_model *model);

/* What there is to know of a model, as numbers. Of a source or slot, `index` says which. */
enum dragoman_fact {
    DRAGOMAN_VOCABULARY, DRAGOMAN_SOURCES, DRAGOMAN_SOURCE_KIND, DRAGOMAN_SOURCE_WIDTH, DRAGOMAN_MAPS,
    DRAGOMAN_FIXED, DRAGOMAN_FIXED_ROWS, DRAGOMAN_FIXED_WIDTH, DRAGOMAN_SLOTS, DRAGOMAN_SLOT_ROWS,
    DRAGOMAN_SLOT_WIDTH, DRAGOMAN_SLOT_GROWS, DRAGOMAN_HAS_STATES, DRAGOMAN_HAS_CTC, DRAGOMAN_SUMMARY_WIDTH,
};
DRAGOMAN_API int dragoman_describe(const dragoman_model *model, int fact, int index); /* -1: many, or unknown */
DRAGOMAN_API const char *dragoman_source_name(const dragoman_model *model, int index);
DRAGOMAN_API const char *dragoman_kernels(const dragoman_model *model);
DRAGOMAN_API int dragoman_has_kernels(const char *name); /* can this processor run that instruction set? */

DRAGOMAN_API dragoman_context *dragoman_new(const dragoman_model *model);
DRAGOMAN_API void dragoman_free(dragoman_context *context);
DRAGOMAN_API const char *dragoman_message(const dragoman_context *context);

/* One source of one input: token ids (length), frames (length, width) or a picture (height, breadth,
 * channels). length is height * breadth for a picture. */
struct dragoman_input {
    const void *data; /* int32 tokens or float32 */
    int32_t length, height, breadth;
};

/* Encode `count` inputs; inputs[i * sources + j] is source j of input i. The context keeps the result. */
DRAGOMAN_API int dragoman_encode(dragoman_context *context, int count, const struct dragoman_input *inputs);

/* Copy what was encoded, for `dragoman_step` or for others. Which value: */
enum dragoman_value { DRAGOMAN_OF_FIXED, DRAGOMAN_OF_SLOT, DRAGOMAN_OF_STATES, DRAGOMAN_OF_BEGIN, DRAGOMAN_OF_CTC, DRAGOMAN_OF_SUMMARY };
/* lengths (count): the rows of each input, or its columns where those vary. */
DRAGOMAN_API int dragoman_lengths(const dragoman_context *context, int value, int index, int32_t *lengths);
/* to (count, pitch): the value of each input, one after the other. */
DRAGOMAN_API int dragoman_copy(const dragoman_context *context, int value, int index, float *to, size_t pitch);

/* Hypotheses that advance by one token. All arrays belong to the caller. */
struct dragoman_rows {
    int32_t sources, rows;
    const int32_t *lengths;      /* (B): source states of each source; NULL without source */
    const float *const *fixed;   /* each (B, pitch) */
    const size_t *fixed_pitch;
    const int32_t *source;       /* (N): the source of each row, ascending */
    const int32_t *tokens;       /* (N) */
    const int32_t *positions;    /* (N): how many positions each row has read */
    const float *const *slots;   /* each (N, pitch): what replaces them is the output below */
    const size_t *slot_pitch;
    const int32_t *cached;       /* (N): rows of each row's caches; NULL without caches */
    float *const *next;          /* the new value of each slot, or the rows to append: each (N, next_pitch) */
    const size_t *next_pitch;
    float *log_probs;            /* (N, V) */
    float *attention;            /* (N, maps, S of the longest source), or NULL */
    int32_t longest;             /* S of the longest source */
};
DRAGOMAN_API int dragoman_step(dragoman_context *context, const struct dragoman_rows *rows);

#endif
