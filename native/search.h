/* The library's own search: what is known of each source while it runs.
 *
 * It does what src/dragoman/search does, and tests/native/test_search.py holds the two together.
 * Sources do not see each other: a result does not depend on what else is in flight.
 */
#ifndef DRAGOMAN_SEARCH_H
#define DRAGOMAN_SEARCH_H

#include "run.h"

enum { SETTING_COUNT = DRAGOMAN_WANT_TRACE + 1, LIST_COUNT = DRAGOMAN_KEYS + 1 };
enum fate { PRUNED, KEPT, FINISHED };

/* A list of numbers, or of sequences of them: sequence i ends at ends[i]. */
struct list {
    int count, is_set;
    int32_t *numbers, *ends;
};

struct dragoman_settings {
    double values[SETTING_COUNT];
    struct list lists[LIST_COUNT];
    dragoman_draw *draw;
    dragoman_cancel *cancel;
    void *user;
};

static inline int whole(const struct dragoman_settings *settings, int setting) { return (int)settings->values[setting]; }

/* Sequence i of a list. */
static inline const int32_t *sequence_of(const struct list *list, int i, int *length) {
    int begin = i ? list->ends[i - 1] : 0;
    *length = list->ends[i] - begin;
    return list->numbers + begin;
}

/* A copy without the lists of the sources; NULL: no memory. */
struct dragoman_settings *settings_copy(const struct dragoman_settings *settings);
/* Refuse settings that do not go together, or that name tokens which the model does not have. */
int settings_check(struct dragoman_context *context, const struct dragoman_settings *settings);
/* The same for the lists of `count` sources. */
int sources_check(struct dragoman_context *context, const struct dragoman_settings *settings, int count);
/* The same for what a stream is given with source number i. */
int entry_check(struct dragoman_context *context, const struct dragoman_settings *settings, const struct dragoman_entry *entry, int i);

/* What the summed log-probability of an output of so many tokens is divided by. */
double length_penalty(const struct dragoman_settings *settings, int length);

/* ---- the record of one source */

struct candidate {
    double total;
    float log_prob;
    int32_t parent, token; /* the row that it extends */
    int32_t before;        /* the candidate that it extends, by its number in the record; -1: none */
    int8_t fate;
};

struct ending {
    double score; /* known at the end */
    int32_t step, candidate; /* by its number in the record */
    int8_t is_finished;
};

struct row_facts { /* of the distribution of one row */
    float entropy, margin;
};

struct record {
    struct candidate *candidates; /* of all steps */
    struct row_facts *rows;       /* of all steps: the rows that were extended */
    float *attention;             /* (rows of all steps, maps, S), or NULL */
    int32_t *candidate_ends, *row_ends; /* (steps) */
    struct ending *endings;
    int candidate_count, row_count, steps, ending_count;
    int candidate_room, row_room, step_room, ending_room;
    size_t attention_room;
};

/* All return 0, or 1 if there is not enough memory. */
int record_row(struct record *record, struct row_facts facts, const float *attention, size_t size);
int record_step(struct record *record, const struct candidate *candidates, int count);
int record_ending(struct record *record, int step, int candidate, int is_finished);
void record_clear(struct record *record); /* keeps its memory */
void record_free(struct record *record);

/* The parts of a result, of one source or of all. */
struct part {
    void *data;
    size_t length;
};

struct dragoman_result {
    struct part parts[DRAGOMAN_PARTS];
};

/* The hypotheses of a record, those that the settings ask for, as the result of one source. `forced`: there was
 * nothing to choose, so there is one hypothesis. `width`: floats of a row's attention. */
int result_of_record(const struct record *record, const struct dragoman_settings *settings, int is_forced, int states, size_t width, struct dragoman_result *result);
/* Results of many sources, one after the other. */
int results_join(const struct dragoman_result *results, int count, struct dragoman_result *joined);
void result_clear(struct dragoman_result *result);

/* ---- rules (rules.c) */

struct rules {
    const struct dragoman_settings *settings;
    const struct kernels *kernels;
    int vocabulary, eos, blocks;
    int is_needed, needs_tokens; /* any rule; one that looks at the output so far */
    struct only_node *only; /* the tree of outputs that are allowed, or NULL */
    int32_t *banned;  /* tokens that a row may not take, and their scores */
    float *scores, *backup;
    int count, room;
    int is_narrowed;  /* to the outputs that are allowed; what was there before is in `backup` */
};

int rules_make(struct rules *rules, const struct dragoman_model *model, const struct dragoman_settings *settings); /* 1: no memory */
void rules_free(struct rules *rules);

/* Forbid tokens of one row after `length` tokens: their scores become -infinity, and `best` follows. Whoever finds
 * nothing left calls `rules_waive`. Returns 1 if there is not enough memory. */
int rules_apply(struct rules *rules, const int32_t *tokens, int length, float *scores, float *best);
/* Let the row end; if the model itself never ends here, let it take any token. */
void rules_waive(struct rules *rules, float *scores, float *best);

/* ---- choosing (choose.c) */

struct chooser {
    const struct dragoman_settings *settings;
    const struct kernels *kernels;
    struct rules *rules;
    int vocabulary, blocks, considered;
    float *values, *weights; /* (considered) or (V): the best of one row; the probabilities of one row */
    int32_t *tokens;
    struct candidate *chosen; /* the best candidates of one source, best first */
    int count, room;
};

int chooser_make(struct chooser *chooser, const struct dragoman_model *model, const struct dragoman_settings *settings, struct rules *rules);
void chooser_free(struct chooser *chooser);

/* The distribution of one row. */
struct distribution {
    float *scores, *best, normalizer;
};

/* Take the best candidates of one row into those of its source. */
void choose_best(struct chooser *chooser, struct distribution row, int parent, double total, int before);
/* Draw one candidate of one row with a number from 0 to 1; 0, or 1 if nothing can be drawn. */
int choose_drawn(struct chooser *chooser, struct distribution row, int parent, double total, int before, float number);
/* Log-probability of the likeliest token less that of the second. */
float margin_of(const struct kernels *kernels, struct distribution row, int blocks);

/* ---- what the rows in flight look back at (caches.c) */

/* Rows of the slots that grow. They are never moved: a hypothesis has the numbers of those it looks at. A row is
 * free again when no hypothesis looks back at it. */
struct caches {
    const struct dragoman_model *model;
    float **data;          /* of each slot that grows: (room, width) */
    int32_t *uses, *before; /* (room): how many hypotheses and rows follow directly; the row before, or -1 */
    int32_t *unused;       /* numbers that are free */
    int room, unused_count;
};

int caches_make(struct caches *caches, const struct dragoman_model *model);
void caches_free(struct caches *caches);
int caches_take(struct caches *caches, int before); /* a row that follows another, not yet used; -1: no memory */
static inline void caches_use(struct caches *caches, int row) { if (row >= 0) caches->uses[row]++; }
void caches_release(struct caches *caches, int row);

int grow(void **data, int *room, int needed, size_t size); /* 1: no memory */
#define GROW(data, room, needed) grow((void **)&(data), &(room), needed, sizeof *(data))

/* ---- sources in flight (flights.c), and their hypotheses (generation.c) */

struct row { /* a live hypothesis */
    double total;
    int32_t candidate; /* its last token in the record of its source; -1: none */
    int32_t last;      /* the last row of the caches that it looks back at; -1: none */
};

struct flight { /* a source that is encoded */
    int32_t number, key;
    int limit, states;
    int position, cached;  /* of the first token; rows of the slots that grow */
    int32_t *prefix;       /* tokens that the output begins with */
    int prefix_room, prefix_length, is_forced; /* forced: the prefix is the whole output */
    int first_row, rows, width, drawn, is_done; /* width: of the beam that is left */
    int is_dropped;        /* nobody wants its result */
    float *store;          /* the values of `encode` that a step reads */
    double *finished;      /* (n_best): the best scores of finished hypotheses, best first, to stop when certain */
    float *numbers;        /* (samples, DRAWS): random */
    struct record record;
};

/* Live hypotheses, those of a source side by side. */
struct generation {
    int count, room, pitch;
    struct row *rows;
    int32_t *tokens, *source, *position, *cached;
    int32_t *numbers;      /* (rows, pitch): the rows of the caches that each looks back at */
    struct extent columns; /* source states of each */
    float **slots;         /* of each slot that is replaced: the values of all, one after the other */
    size_t *slot_room, number_room;
};

int generation_make(struct generation *rows, int slots);
void generation_free(struct generation *rows, int slots);
/* Make room for one more row, which has so many source states and looks back at so many cached rows; 1: no memory. */
int generation_reserve(const struct dragoman_model *model, struct generation *rows, int states, int cached);
void generation_append(struct generation *rows, struct row row, int token, int place, int position, int cached, int states);
/* How many floats of a slot one row has, and where the next row begins. */
static inline size_t slot_size(const struct slot *slot, int states) { return (size_t)slot->rows * (size_t)(slot->width == MANY ? states : slot->width); }
size_t slot_offset(const struct generation *rows, const struct slot *slot);

struct finished { /* a source that is done */
    int32_t number;
    struct dragoman_result *result;
};

struct search {
    struct dragoman_context *context;
    const struct dragoman_model *model;
    const struct dragoman_settings *settings;
    struct rules rules;
    struct chooser chooser;
    struct caches caches;

    /* Sources have places: those that are searched, those that wait (the first enters first), and free ones. */
    struct flight *flights;
    int32_t *active, *waiting, *unused;
    int place_count, active_count, waiting_count, unused_count, batch;
    struct extent states;  /* (places) */
    float ***fixed, ***turned, ***begin; /* of each fixed value, or slot: where it is for each place */

    struct finished *finished; /* that nobody has taken, in their order */
    int finished_count, finished_room;

    struct generation now, next;
    int32_t *own_cache; /* (rows): the row of the caches for the new token of each row; -1: none yet */
    int own_room;
    int32_t *so_far; /* tokens of one output */
    int so_far_room;
    float *attention; /* of one row */
    size_t attention_room;
};

int flights_make(struct search *search, int batch); /* 1: no memory */
void flights_free(struct search *search);
/* Encode sources, for which there have to be free places; they wait. After an error none of them does. */
int flights_add(struct search *search, int count, const struct dragoman_input *inputs, const struct dragoman_entry *entries);
/* Let sources that wait enter where there is room. */
int flights_enter(struct search *search);
/* Give up a source; 0: there is no such one. */
int flights_drop(struct search *search, int32_t number);
/* Prepare a step of all rows. */
int flights_prepare(struct search *search, struct run *run, struct memory *memory);
/* Continue with the candidates that were kept in the last step. */
int flights_advance(struct search *search, const struct run *run);

/* Advance all sources by one token (search.c). */
int search_advance(struct search *search);

#endif
