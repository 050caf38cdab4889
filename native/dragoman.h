/* Dragoman's native library: it runs a trained model from one file, without any dependency.
 *
 * Open a model, make a context for each thread, and search for the outputs of sources with
 * `dragoman_search`, or with a stream that is fed while it runs. A search of one's own encodes a batch of sources, copies what was encoded, and
 * advances hypotheses with `dragoman_step`. tokenizer.h turns text into token ids and back.
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
    DRAGOMAN_CANCELLED = 5,   /* the caller ended the search */
};

typedef struct dragoman_model dragoman_model;     /* never changes: threads may share it */
typedef struct dragoman_context dragoman_context; /* belongs to one thread at a time */

/* Open a model that is in memory (a mapped file) and stays there. `kernels` names an instruction
 * set ("baseline", "avx2", "avx512", "avx512vnni"); NULL: the best. Returns NULL with a sentence in `message`. */
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

/* ---- search
 *
 * Settings are those of SearchConfig (src/dragoman/search/options.py) and mean the same. They are copied, so
 * that nothing given to them has to stay in memory. One object may serve many searches and threads. */
typedef struct dragoman_settings dragoman_settings;
typedef struct dragoman_result dragoman_result;

enum dragoman_setting {
    DRAGOMAN_BOS, DRAGOMAN_EOS,           /* 2 and 3 */
    DRAGOMAN_BEAM, DRAGOMAN_N_BEST,       /* 5 and 1; a beam of 1 is greedy search */
    DRAGOMAN_NORMALIZE, DRAGOMAN_ALPHA,   /* enum dragoman_normalization, average; 0.6 */
    DRAGOMAN_STOP,                        /* enum dragoman_stop, complete */
    DRAGOMAN_MIN_LENGTH, DRAGOMAN_MAX_LENGTH, /* 0; 0: the limits of the sources alone */
    DRAGOMAN_NO_REPEAT_NGRAM,             /* 0: off */
    DRAGOMAN_SAMPLE, DRAGOMAN_SAMPLES,    /* 0 or 1; 1 */
    DRAGOMAN_TEMPERATURE, DRAGOMAN_TOP_K, DRAGOMAN_TOP_P, DRAGOMAN_SEED, /* 1, 0, 1, 0 */
    DRAGOMAN_BATCH,                       /* sources that are searched at the same time, 64; it changes no result */
    DRAGOMAN_WANT_ATTENTION, DRAGOMAN_WANT_TRACE, /* 0 or 1: parts of the result that cost time */
};
enum dragoman_normalization { DRAGOMAN_NONE, DRAGOMAN_AVERAGE, DRAGOMAN_GNMT };
enum dragoman_stop { DRAGOMAN_COMPLETE, DRAGOMAN_CERTAIN };

/* Lists of numbers. Those of the sources have one entry for each source of the search. */
enum dragoman_list {
    DRAGOMAN_FORBIDDEN,      /* token ids */
    DRAGOMAN_FORBIDDEN_RUNS, /* sequences of token ids */
    DRAGOMAN_ONLY,           /* sequences of token ids */
    DRAGOMAN_LIMITS,         /* the most tokens of each source's output */
    DRAGOMAN_PREFIXES,       /* a sequence of token ids for each source */
    DRAGOMAN_KEYS,           /* the number that names each source for the built-in random numbers */
};

DRAGOMAN_API dragoman_settings *dragoman_settings_new(void); /* NULL: no memory */
DRAGOMAN_API void dragoman_settings_free(dragoman_settings *settings);
DRAGOMAN_API int dragoman_set(dragoman_settings *settings, int setting, double value);
/* Set a list of `count` entries. Entry i of a list of sequences is numbers[ends[i - 1]] to numbers[ends[i] - 1];
 * `ends` is NULL for the other lists. */
DRAGOMAN_API int dragoman_set_list(dragoman_settings *settings, int list, int count, const int32_t *numbers, const int32_t *ends);

/* The next DRAGOMAN_DRAWS random numbers from 0 to 1 for one row of one source, 1 excluded; `block` counts from 0.
 * Without this function the library has a generator of its own. */
enum { DRAGOMAN_DRAWS = 64 };
typedef void dragoman_draw(void *user, int32_t source, int32_t row, int32_t block, float *numbers);
/* Called before each token of the sources in flight. What is not 0 ends the search with DRAGOMAN_CANCELLED. */
typedef int dragoman_cancel(void *user);
DRAGOMAN_API void dragoman_set_calls(dragoman_settings *settings, dragoman_draw *draw, dragoman_cancel *cancel, void *user);

/* Search for the outputs of `count` sources. At most DRAGOMAN_BATCH of them are in flight: when one is done, the
 * next one enters, so neighbours should have similar lengths. `inputs` as for `dragoman_encode`; NULL for a model
 * without source. What the context had encoded before is given up. */
DRAGOMAN_API int dragoman_search(dragoman_context *context, int count, const struct dragoman_input *inputs,
                                 const dragoman_settings *settings, dragoman_result **result);
DRAGOMAN_API void dragoman_result_free(dragoman_result *result);

/* ---- streams: a search that is fed while it runs
 *
 * Add sources at any time, advance all that are in flight by one token, and take each result when it is there. At most
 * DRAGOMAN_BATCH sources are in flight; others that were added wait. A result has the same bits whatever else is in the
 * stream: `dragoman_search` is a stream whose sources are known at the start. A context has one stream at a time, which
 * must be freed before it. The settings are copied; they have no lists of the sources. */
typedef struct dragoman_stream dragoman_stream;

/* What is searched for one source, beside the settings. */
struct dragoman_entry {
    int32_t number;        /* the name of the source in the calls below and in `dragoman_draw`; no two in a stream are equal */
    int32_t key;           /* names it for the built-in random numbers */
    int32_t limit;         /* the most tokens of its output; 0: DRAGOMAN_MAX_LENGTH alone */
    int32_t prefix_length; /* tokens that its output begins with */
    const int32_t *prefix; /* they are copied */
};

DRAGOMAN_API int dragoman_stream_new(dragoman_context *context, const dragoman_settings *settings, dragoman_stream **stream);
DRAGOMAN_API void dragoman_stream_free(dragoman_stream *stream); /* at any time */
/* How many sources may be added now: those that can enter before the next token, and a few that wait. */
DRAGOMAN_API int dragoman_stream_room(const dragoman_stream *stream);
/* Encode `count` sources together and add them; `inputs` as for `dragoman_encode`. Either all are added, or the reason
 * is returned, none is added, and the others go on. */
DRAGOMAN_API int dragoman_stream_add(dragoman_stream *stream, int count, const struct dragoman_input *inputs, const struct dragoman_entry *entries);
/* Advance all sources in flight by one token. After an error the stream cannot go on: what was done may be taken, then
 * it is to be freed. */
DRAGOMAN_API int dragoman_stream_advance(dragoman_stream *stream);
/* Take the result of a source that is done, which the caller has to free. Returns 1, or 0 if there is none. */
DRAGOMAN_API int dragoman_stream_take(dragoman_stream *stream, int32_t *number, dragoman_result **result);
/* Give up a source: it has no result. Returns 1, or 0 if the stream does not have it. */
DRAGOMAN_API int dragoman_stream_drop(dragoman_stream *stream, int32_t number);

/* A result is a number of arrays. "ends" say where the entries of each source, hypothesis or step end in another
 * array; the first ones begin at 0. Sources are in the order of the inputs. */
enum dragoman_part {
    DRAGOMAN_HYPOTHESIS_ENDS,   /* int32 (sources): of the hypotheses, best first; of samples as they were drawn */
    DRAGOMAN_TOKEN_ENDS,        /* int32 (hypotheses) */
    DRAGOMAN_SCORES,            /* double (hypotheses) */
    DRAGOMAN_FINISHED,          /* int8 (hypotheses): 0 where the length limit ended it */
    DRAGOMAN_TOKENS,            /* int32 (tokens), the end symbol included */
    DRAGOMAN_LOG_PROBS,         /* float (tokens) */
    DRAGOMAN_ENTROPIES,         /* float (tokens): of the model's distribution, in nats */
    DRAGOMAN_MARGINS,           /* float (tokens): log-probability of the likeliest token less that of the second */
    DRAGOMAN_PATH,              /* int32 (tokens): the candidate among those of its step of the trace */
    DRAGOMAN_STATE_COUNTS,      /* int32 (sources): S, the source states */
    DRAGOMAN_ATTENTION,         /* float: for each hypothesis (T, maps, S), one after the other */
    DRAGOMAN_STEP_ENDS,         /* int32 (sources): of the steps of the trace */
    DRAGOMAN_CANDIDATE_ENDS,    /* int32 (steps) */
    DRAGOMAN_CANDIDATE_PARENTS, /* int32 (candidates): the kept candidate of the step before that it extends */
    DRAGOMAN_CANDIDATE_TOKENS,  /* int32 (candidates) */
    DRAGOMAN_CANDIDATE_LOG_PROBS, /* float (candidates) */
    DRAGOMAN_CANDIDATE_TOTALS,  /* double (candidates) */
    DRAGOMAN_CANDIDATE_FATES,   /* int8 (candidates): 0 pruned, 1 kept, 2 finished */
    DRAGOMAN_ROW_ATTENTION,     /* float: for each step (rows, maps, S); the rows are the candidates kept before, 1 at first */
    DRAGOMAN_PARTS,
};
/* Where a part is; `length` is its number of entries. A part that was not wanted has none. */
DRAGOMAN_API const void *dragoman_result_part(const dragoman_result *result, int part, size_t *length);

#endif
