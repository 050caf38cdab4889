/* A model file, opened and checked: the program, its weights, and what is planned once.
 *
 * The file is one table of sections of little-endian numbers; src/dragoman/program/file.py writes
 * it and describes its layout. Nothing of a file is used before it was checked: every number,
 * index, shape and size, and the widths of all values, so that running a program needs no checks
 * but those of lengths.
 */
#ifndef DRAGOMAN_MODEL_H
#define DRAGOMAN_MODEL_H

#include "dragoman.h"
#include "kernels.h"

enum { MAX_INPUTS = 64, MAX_OUTPUTS = 3, MAX_WEIGHTS = 4, MAX_SETTINGS = 4, MAX_RANK = 4, MAX_FINE_BITS = 2 };
enum { MANY = -1 };  /* as a number of rows or columns: known only when a source is */
enum { ABSENT = -1 }; /* as the number of a value or weight */

/* rows (n, width), token ids (n), a picture (H, W, width), or the growing cache of a slot. */
enum value_kind { ROWS, TOKENS, PICTURE, CACHE };

struct shape {
    int kind;
    int rows;  /* or MANY; of the step: as many as there are source states */
    int width; /* or MANY: as many as there are source states */
};

union setting {
    int32_t number;
    float real;
};

struct operation {
    int kind, input_count;
    int inputs[MAX_INPUTS], outputs[MAX_OUTPUTS], weights[MAX_WEIGHTS]; /* numbers, or ABSENT */
    union setting settings[MAX_SETTINGS];
};

/* One of the two lists of operations. Values are numbered: first what is given, then all outputs. */
struct phase {
    int given, count, values;
    struct operation *operations;
    struct shape *shapes; /* of each value */
    int *last_use;        /* of each value: the number of the last operation that reads it; count: needed after all */
    int *buffer;          /* of each value: the buffer that holds it (step) */
    int buffers;
};

struct weight {
    int rank;
    int32_t dims[MAX_RANK];
    size_t size;          /* number of weights */
    const float *data;    /* row-major; NULL where it is quantised and only used packed */
    const int8_t *bytes;  /* of a quantised weight: data[i] = (bytes[i] + (fine[i] + 1/2) / 2^fine_bits - 1/2) * scales[row] */
    const uint8_t *fine;  /* its further bits, packed from the lowest bit of a byte on; products of bytes do without */
    int fine_bits;        /* of each weight, 0 to MAX_FINE_BITS */
    const float *scales;
    float *owned;         /* data that were made from bytes */
    float *packed;        /* as panels, where it is the matrix of a product: these, or bytes */
    struct byte_panels panels;
    int wants_packed, wants_plain;
};

struct source {
    int kind, width;      /* enum value_kind; vocabulary, width of a frame, or channels */
    const char *name;
};

struct slot {
    int width, rows;      /* or MANY: as many columns as there are source states */
    int begin, end;       /* value of encode or ABSENT; value of step */
    int grows;
};

struct dragoman_model {
    const struct kernels *kernels;
    int vocabulary, logits, states, begin, ctc, summary; /* numbers of values */
    int source_count, fixed_count, slot_count, attention_count, weight_count;
    struct source *sources;
    int32_t *fixed, *attention; /* values of encode, and of step */
    struct slot *slots;
    struct weight *weights;
    struct phase encode, step;
    int maps;              /* rows of all attention values together */
    int readout;           /* the step's operation that makes the logits, which is run last and fused */
    uint8_t *is_turned;    /* of each fixed value: read as keys, so a transposed copy is kept */
    int has_caches;
};

/* Infer and check the shapes of all values; 0, or -1 with a sentence in `message`. */
int shapes_infer(struct dragoman_model *model, char *message, size_t room);

/* Copy a row of a weight as floats. */
void weight_row(const struct weight *weight, int row, float factor, float *to);

#endif
