/* The computing part, compiled once for each instruction set; kernels.h says what each function does. */
#include "kernels.h"
#include "vectors.h"

#ifndef TABLE
#define TABLE kernels_baseline
#define TABLE_NAME "baseline"
#endif

enum { PANEL = LANES * TILE_VECTORS, PROJECT_ROWS = 96, MOST_CHOSEN = 256 };

static int least(int a, int b) { return a < b ? a : b; }
static int round_up(int n, int to) { return (n + to - 1) / to * to; }

INLINE void activate_as(float *x, size_t n, int activation) {
    size_t i = 0;
    for (; i + LANES <= n; i += LANES) store(x + i, activated(load(x + i), activation));
    if (i < n) store_some(x + i, activated(load_some(x + i, (int)(n - i)), activation), (int)(n - i));
}

static void activate(float *x, size_t n, int activation) {
    if (activation == ACT_RELU) activate_as(x, n, ACT_RELU);
    if (activation == ACT_TANH) activate_as(x, n, ACT_TANH);
    if (activation == ACT_SIGMOID) activate_as(x, n, ACT_SIGMOID);
}

/* ---- the matrix product
 *
 * Weights are packed in panels of PANEL outputs: a panel has the PANEL weights of input 0, then those
 * of input 1, and so on. A tile of up to TILE_ROWS rows and one panel keeps its sums in registers
 * (Goto and van de Geijn 2008). */

static size_t packed_size(int outputs, int inputs) { return (size_t)round_up(outputs, PANEL) * (size_t)inputs; }

static void pack(const float *weight, int outputs, int inputs, float *packed) {
    for (int first = 0; first < outputs; first += PANEL)
        for (int k = 0; k < inputs; k++)
            for (int j = first; j < first + PANEL; j++)
                *packed++ = j < outputs ? weight[(size_t)j * (size_t)inputs + (size_t)k] : 0.0f;
}

/* Compute one tile; `rows` is a constant wherever this is inlined. `bias` has PANEL floats. */
INLINE void tile(const int rows, const float *x, ptrdiff_t x_stride, int inputs, const float *panel,
                 const float *bias, float *y, ptrdiff_t y_stride, int columns, int activation) {
    vec sum[TILE_ROWS][TILE_VECTORS];
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 8
        for (int j = 0; j < TILE_VECTORS; j++) sum[i][j] = load(bias + j * LANES);
    for (int k = 0; k < inputs; k++, panel += PANEL) {
        vec w[TILE_VECTORS];
#pragma GCC unroll 8
        for (int j = 0; j < TILE_VECTORS; j++) w[j] = load(panel + j * LANES);
#pragma GCC unroll 8
        for (int i = 0; i < rows; i++) {
            vec value = broadcast(x[i * x_stride + k]);
#pragma GCC unroll 8
            for (int j = 0; j < TILE_VECTORS; j++) sum[i][j] += value * w[j];
        }
    }
    for (int i = 0; i < rows; i++, y += y_stride) {
        float whole[PANEL];
        float *to = columns == PANEL ? y : whole;
        for (int j = 0; j < TILE_VECTORS; j++) store(to + j * LANES, activated(sum[i][j], activation));
        if (columns < PANEL) memcpy(y, whole, (size_t)columns * sizeof(float));
    }
}

/* Compute all rows of one panel. Left-over rows are shared among the tiles: 7 rows are 4 and 3. */
INLINE void panel_rows(const float *x, ptrdiff_t x_stride, int rows, int inputs, const float *panel,
                       const float *bias, float *y, ptrdiff_t y_stride, int columns, int activation) {
    int tiles = (rows + TILE_ROWS - 1) / TILE_ROWS;
    for (int t = 0; t < tiles; t++) {
        int here = rows / tiles + (t < rows % tiles);
#define TILE(n) tile(n, x, x_stride, inputs, panel, bias, y, y_stride, columns, activation)
        switch (here) {
        case 1: TILE(1); break;
        case 2: TILE(2); break;
        case 3: TILE(3); break;
        case 4: TILE(4); break;
#if defined(__AVX__) || defined(__aarch64__)
        case 5: TILE(5); break;
        case 6: TILE(6); break;
#endif
        }
#undef TILE
        x += here * x_stride;
        y += here * y_stride;
    }
}

/* The bias of one panel, with `beyond` for the columns that do not exist. */
static void bias_of_panel(const float *bias, int first, int columns, float beyond, float *to) {
    for (int j = 0; j < PANEL; j++) to[j] = j >= columns ? beyond : bias ? bias[first + j] : 0.0f;
}

static void product(const float *x, ptrdiff_t x_stride, int rows, int inputs, const float *packed,
                    const float *bias, int outputs, float *y, ptrdiff_t y_stride, int activation) {
    for (int first = 0; first < outputs; first += PANEL) {
        float own[PANEL];
        int columns = least(PANEL, outputs - first);
        const float *panel = packed + (size_t)first * (size_t)inputs;
        bias_of_panel(bias, first, columns, 0.0f, own);
        if (activation == ACT_RELU)
            panel_rows(x, x_stride, rows, inputs, panel, own, y + first, y_stride, columns, ACT_RELU);
        else
            panel_rows(x, x_stride, rows, inputs, panel, own, y + first, y_stride, columns, ACT_NONE);
    }
    if (activation == ACT_TANH || activation == ACT_SIGMOID)
        for (int row = 0; row < rows; row++) activate(y + row * y_stride, (size_t)outputs, activation);
}

/* ---- the output layer */

/* The running sums of one row: of exp(u) and of exp(u) u, where u = score - top. */
struct running {
    vec sum, weighted;
    float top;
};

/* Take one block of scores into the sums, and return its greatest score. */
INLINE float take_block(struct running *row, const float *scores) {
    vec most = load(scores);
    for (int j = LANES; j < BLOCK; j += LANES) most = greater(most, load(scores + j));
    float best = max_of(most);
    if (best > row->top) {
        vec shrink = exp_of(broadcast(row->top - best));
        row->weighted = shrink * (row->weighted + (row->top - best) * row->sum);
        row->sum = shrink * row->sum;
        row->top = best;
    }
    for (int j = 0; j < BLOCK; j += LANES) {
        vec u = load(scores + j) - row->top;
        u = choose(u < -88.0f, broadcast(-88.0f), u); /* NaN stays NaN */
        vec e = exp_of(u);
        row->sum += e;
        row->weighted += e * u;
    }
    return best;
}

#ifdef __AVX512VNNI__
#include "bytes.h"
#endif

/* The rows of an output layer, and its weights: of floats or of bytes. */
struct projected {
    const float *x, *packed;
    const uint8_t *bytes;
    const float *row_scales;
    const struct byte_panels *panels;
    int inputs, outputs;
};

/* Compute one panel of rows `begin` to `begin + count - 1`; `is_bytes` is a constant wherever this is inlined. */
INLINE void project_panel(const int is_bytes, const struct projected *of, int begin, int count, int first, const float *bias, float *y, ptrdiff_t stride) {
    if (!is_bytes) {
        panel_rows(of->x + (size_t)begin * (size_t)of->inputs, of->inputs, count, of->inputs, of->packed + (size_t)first * (size_t)of->inputs, bias, y, stride, PANEL, ACT_NONE);
        return;
    }
#ifdef __AVX512VNNI__
    byte_panel_rows(of->bytes + (size_t)begin * (size_t)byte_stride(of->inputs), of->row_scales + begin, count, of->panels, first, bias, y, stride, PANEL, ACT_NONE);
#endif
}

INLINE void project_as(const int is_bytes, const struct projected *of, int rows, const float *bias, float *scores, ptrdiff_t stride, struct row_sums *sums, float *best) {
    struct running running[PROJECT_ROWS];
    int blocks = (int)(stride / BLOCK);
    for (int begin = 0; begin < rows; begin += PROJECT_ROWS) { /* as many rows as stay in the cache */
        int count = least(PROJECT_ROWS, rows - begin);
        for (int i = 0; i < count; i++) running[i] = (struct running){.top = -1e30f};
        for (int block = 0; block < blocks; block++) {
            float *to = scores + begin * stride + block * BLOCK;
            for (int first = block * BLOCK; first < (block + 1) * BLOCK; first += PANEL) {
                float own[PANEL];
                float *here = to + first - block * BLOCK;
                if (first >= of->outputs) {
                    for (int i = 0; i < count; i++)
                        for (int j = 0; j < PANEL; j++) here[i * stride + j] = -INFINITY;
                    continue;
                }
                bias_of_panel(bias, first, least(PANEL, of->outputs - first), -INFINITY, own);
                project_panel(is_bytes, of, begin, count, first, own, here, stride);
            }
            for (int i = 0; i < count; i++)
                best[(size_t)(begin + i) * (size_t)blocks + (size_t)block] = take_block(&running[i], to + i * stride);
        }
        for (int i = 0; i < count; i++) {
            float sum = sum_of(running[i].sum), log_sum = logf(sum);
            sums[begin + i].normalizer = running[i].top + log_sum;
            sums[begin + i].entropy = log_sum - sum_of(running[i].weighted) / sum;
        }
    }
}

static void project(const float *x, int rows, int inputs, const float *packed, const float *bias,
                    int outputs, float *scores, ptrdiff_t stride, struct row_sums *sums, float *best) {
    struct projected of = {.x = x, .packed = packed, .inputs = inputs, .outputs = outputs};
    project_as(0, &of, rows, bias, scores, stride, sums, best);
}

#ifdef __AVX512VNNI__
static int whole_panels(int outputs) { return round_up(outputs, PANEL); }

static void project_bytes(const uint8_t *x, const float *row_scales, int rows, const struct byte_panels *panels, const float *bias,
                          float *scores, ptrdiff_t stride, struct row_sums *sums, float *best) {
    struct projected of = {.bytes = x, .row_scales = row_scales, .panels = panels, .inputs = panels->inputs, .outputs = panels->outputs};
    project_as(1, &of, rows, bias, scores, stride, sums, best);
}
#endif

static float greatest(const float *x, int n) {
    float most = -INFINITY;
    for (int i = 0; i < n; i++) most = x[i] > most ? x[i] : most;
    return most;
}

/* Put (value, number) where it belongs among the `count` best so far, of at most `room`. */
INLINE int insert(float *values, int32_t *numbers, int count, int room, float value, int32_t number) {
    int place = count < room ? count++ : room - 1;
    for (; place > 0; place--) {
        float above = values[place - 1];
        if (above > value || (above == value && numbers[place - 1] < number)) break;
        values[place] = above;
        numbers[place] = numbers[place - 1];
    }
    values[place] = value;
    numbers[place] = number;
    return count;
}

/* The n best tokens lie in the n blocks with the greatest scores. */
static int top(const float *scores, const float *best, int blocks, float normalizer, int count, float floor,
               float *log_probs, int32_t *tokens) {
    int32_t chosen[MOST_CHOSEN];
    int found = 0, held = 0, is_few = count <= MOST_CHOSEN;
    float least_block = floor;
    for (int block = 0; block < blocks && is_few; block++) {
        float value = best[block] - normalizer;
        if (!(value > least_block)) continue; /* of equal blocks the first ones stay */
        held = insert(log_probs, tokens, held, count, value, block);
        if (held == count) least_block = log_probs[count - 1];
    }
    for (int i = 0; i < held; i++) chosen[i] = tokens[i]; /* since the lists are filled anew */
    if (!is_few) held = blocks;
    for (int i = 0; i < held; i++) {
        int32_t first = (is_few ? chosen[i] : i) * BLOCK;
        for (int32_t token = first; token < first + BLOCK; token++) {
            float value = scores[token] - normalizer;
            if (!(value > floor) || (found == count && (value < log_probs[count - 1] || (value == log_probs[count - 1] && token > tokens[count - 1]))))
                continue;
            found = insert(log_probs, tokens, found, count, value, token);
        }
    }
    return found;
}

/* ---- rows */

static float dot(const float *a, const float *b, int n) {
    vec sum = {0};
    int i = 0;
    for (; i + LANES <= n; i += LANES) sum += load(a + i) * load(b + i);
    if (i < n) sum += load_some(a + i, n - i) * load_some(b + i, n - i);
    return sum_of(sum);
}

static float tanh_dot(const float *a, const float *b, const float *vector, int n) {
    vec sum = {0};
    int i = 0;
    for (; i + LANES <= n; i += LANES) sum += tanh_of(load(a + i) + load(b + i)) * load(vector + i);
    if (i < n) sum += tanh_of(load_some(a + i, n - i) + load_some(b + i, n - i)) * load_some(vector + i, n - i);
    return sum_of(sum);
}

static void softmax(float *x, int n) {
    float most = greatest(x, n);
    vec sum = {0};
    int i = 0;
    for (; i + LANES <= n; i += LANES) {
        vec e = exp_of(load(x + i) - most);
        store(x + i, e);
        sum += e;
    }
    if (i < n) {
        float rest[LANES];
        store(rest, exp_of(load_some(x + i, n - i) - most));
        for (int j = n - i; j < LANES; j++) rest[j] = 0.0f;
        store_some(x + i, load(rest), n - i);
        sum += load(rest);
    }
    float share = 1.0f / sum_of(sum);
    for (i = 0; i < n; i++) x[i] *= share;
}

static void log_softmax(const float *x, float *y, int n) {
    float most = greatest(x, n);
    vec sum = {0};
    int i = 0;
    for (; i + LANES <= n; i += LANES) sum += exp_of(load(x + i) - most);
    float rest = 0.0f;
    for (; i < n; i++) rest += expf(x[i] - most);
    float normalizer = most + logf(sum_of(sum) + rest);
    for (i = 0; i < n; i++) y[i] = x[i] - normalizer;
}

static void layer_norm(const float *x, int rows, int width, const float *weight, const float *bias,
                       float epsilon, float *y) {
    int whole = width / LANES * LANES, rest = width - whole;
    for (int row = 0; row < rows; row++, x += width, y += width) {
        vec sum = {0}, squares = {0};
        for (int i = 0; i < whole; i += LANES) sum += load(x + i);
        if (rest) sum += load_some(x + whole, rest);
        float mean = sum_of(sum) / (float)width;
        for (int i = 0; i < whole; i += LANES) {
            vec d = load(x + i) - mean;
            squares += d * d;
        }
        float last = 0.0f;
        for (int i = whole; i < width; i++) last += (x[i] - mean) * (x[i] - mean);
        float scale = 1.0f / sqrtf((sum_of(squares) + last) / (float)width + epsilon);
        for (int i = 0; i < whole; i += LANES)
            store(y + i, (load(x + i) - mean) * scale * load(weight + i) + load(bias + i));
        for (int i = whole; i < width; i++) y[i] = (x[i] - mean) * scale * weight[i] + bias[i];
    }
}

static void glu(const float *x, int rows, int width, float *y) {
    for (int row = 0; row < rows; row++, x += 2 * width, y += width) {
        int i = 0;
        for (; i + LANES <= width; i += LANES) store(y + i, load(x + i) * sigmoid_of(load(x + width + i)));
        if (i < width)
            store_some(y + i, load_some(x + i, width - i) * sigmoid_of(load_some(x + width + i, width - i)), width - i);
    }
}

static void add(const float *a, const float *b, float factor, float *y, size_t n) {
    for (size_t i = 0; i < n; i++) y[i] = (a[i] + b[i]) * factor;
}

static void multiply(const float *a, const float *b, float *y, size_t n) {
    for (size_t i = 0; i < n; i++) y[i] = a[i] * b[i];
}

static void affine(const float *x, int rows, int width, float factor, const float *scale, const float *shift, float *y) {
    for (int row = 0; row < rows; row++, x += width, y += width)
        for (int i = 0; i < width; i++)
            y[i] = x[i] * factor * (scale ? scale[i] : 1.0f) + (shift ? shift[i] : 0.0f);
}

static void add_scaled(float *y, const float *x, float factor, int n) {
    for (int i = 0; i < n; i++) y[i] += factor * x[i];
}

/* ---- attention */

static void transpose(const float *keys, ptrdiff_t stride, int positions, int width, float *turned) {
    int pitch = round_up(positions, LANES);
    for (int d = 0; d < width; d++, turned += pitch) {
        for (int s = 0; s < positions; s++) turned[s] = keys[s * stride + d];
        for (int s = positions; s < pitch; s++) turned[s] = 0.0f;
    }
}

INLINE void score_tile(const int rows, const int vectors, const float *query, ptrdiff_t stride,
                       const float *turned, int pitch, int width, float scale, float *y) {
    vec sum[4][2];
#pragma GCC unroll 4
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 2
        for (int j = 0; j < vectors; j++) sum[i][j] = (vec){0};
    for (int d = 0; d < width; d++, turned += pitch) {
        vec k[2];
#pragma GCC unroll 2
        for (int j = 0; j < vectors; j++) k[j] = load(turned + j * LANES);
#pragma GCC unroll 4
        for (int i = 0; i < rows; i++)
#pragma GCC unroll 2
            for (int j = 0; j < vectors; j++) sum[i][j] += query[i * stride + d] * k[j];
    }
#pragma GCC unroll 4
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 2
        for (int j = 0; j < vectors; j++) store(y + i * pitch + j * LANES, sum[i][j] * scale);
}

static void scores(const float *query, ptrdiff_t query_stride, int rows, const float *turned,
                   int positions, int width, float scale, float *y) {
    int pitch = round_up(positions, LANES);
    for (int row = 0; row < rows; row += 4, query += 4 * query_stride, y += 4 * pitch) {
        int count = least(4, rows - row), at = 0;
#define SCORE(n, v) score_tile(n, v, query, query_stride, turned + at, pitch, width, scale, y + at)
        for (; at + 2 * LANES <= pitch; at += 2 * LANES)
            switch (count) {
            case 1: SCORE(1, 2); break;
            case 2: SCORE(2, 2); break;
            case 3: SCORE(3, 2); break;
            default: SCORE(4, 2); break;
            }
        if (at < pitch)
            switch (count) {
            case 1: SCORE(1, 1); break;
            case 2: SCORE(2, 1); break;
            case 3: SCORE(3, 1); break;
            default: SCORE(4, 1); break;
            }
#undef SCORE
    }
}

INLINE void read_tile(const int rows, const int vectors, const float *weights, int pitch, int positions,
                      const float *values, ptrdiff_t stride, float *y, ptrdiff_t y_stride) {
    vec sum[4][2];
#pragma GCC unroll 4
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 2
        for (int j = 0; j < vectors; j++) sum[i][j] = (vec){0};
    for (int s = 0; s < positions; s++, values += stride) {
        vec v[2];
#pragma GCC unroll 2
        for (int j = 0; j < vectors; j++) v[j] = load(values + j * LANES);
#pragma GCC unroll 4
        for (int i = 0; i < rows; i++)
#pragma GCC unroll 2
            for (int j = 0; j < vectors; j++) sum[i][j] += weights[i * pitch + s] * v[j];
    }
#pragma GCC unroll 4
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 2
        for (int j = 0; j < vectors; j++) store(y + i * y_stride + j * LANES, sum[i][j]);
}

static void attend(float *weights, int rows, int positions, int seen, const float *values,
                   ptrdiff_t values_stride, int width, float *y, ptrdiff_t y_stride) {
    int pitch = round_up(positions, LANES);
    for (int row = 0; row < rows; row++) {
        int own = seen ? least(positions, seen + row) : positions;
        softmax(weights + row * pitch, own);
        for (int s = own; s < positions; s++) weights[row * pitch + s] = 0.0f;
    }
    for (int row = 0; row < rows; row += 4, weights += 4 * pitch, y += 4 * y_stride) {
        int count = least(4, rows - row), at = 0;
#define READ(n, v) read_tile(n, v, weights, pitch, positions, values + at, values_stride, y + at, y_stride)
        for (; at + 2 * LANES <= width; at += 2 * LANES)
            switch (count) {
            case 1: READ(1, 2); break;
            case 2: READ(2, 2); break;
            case 3: READ(3, 2); break;
            default: READ(4, 2); break;
            }
        for (; at + LANES <= width; at += LANES)
            switch (count) {
            case 1: READ(1, 1); break;
            case 2: READ(2, 1); break;
            case 3: READ(3, 1); break;
            default: READ(4, 1); break;
            }
#undef READ
        for (int i = 0; i < count; i++)
            for (int d = at; d < width; d++) {
                float sum = 0.0f;
                for (int s = 0; s < positions; s++) sum += weights[i * pitch + s] * values[s * values_stride + d];
                y[i * y_stride + d] = sum;
            }
    }
}

/* The product of two parts of n floats, lane by lane, not yet added up. */
INLINE vec lane_products(const float *a, const float *b, int n) {
    vec sum = {0};
    int i = 0;
    for (; i + LANES <= n; i += LANES) sum += load(a + i) * load(b + i);
    if (i < n) sum += load_some(a + i, n - i) * load_some(b + i, n - i);
    return sum;
}

static void attend_cached(const float *qkv, const float *keys, const float *values, const int32_t *numbers,
                          int count, int width, int heads, float *weights, float *y) {
    int part = width / heads, room = count + 1;
    float scale = 1.0f / sqrtf((float)part);
    for (int head = 0; head < heads; head++) {
        const float *query = qkv + head * part, *own = keys + head * part;
        float *scores_of_head = weights + head * room;
        int p = 0;
#define KEY(i) lane_products(query, own + (size_t)numbers[p + (i)] * (size_t)width, part)
        for (; p + 4 <= count; p += 4) {
            vec4 four = sums_of_four(KEY(0), KEY(1), KEY(2), KEY(3)) * scale;
            memcpy(scores_of_head + p, &four, sizeof four);
        }
        for (; p < count; p++) scores_of_head[p] = sum_of(KEY(0)) * scale;
#undef KEY
        scores_of_head[count] = sum_of(lane_products(query, query + width, part)) * scale;
        softmax(scores_of_head, room);
        const float *seen = values + head * part, *last = qkv + 2 * width + head * part;
        float *to = y + head * part;
        int at = 0;
        for (; at + 2 * LANES <= part; at += 2 * LANES) {
            vec a = scores_of_head[count] * load(last + at), b = scores_of_head[count] * load(last + at + LANES);
            for (p = 0; p < count; p++) {
                const float *value = seen + (size_t)numbers[p] * (size_t)width + at;
                a += scores_of_head[p] * load(value);
                b += scores_of_head[p] * load(value + LANES);
            }
            store(to + at, a);
            store(to + at + LANES, b);
        }
        for (; at < part; at += LANES) {
            int n = least(LANES, part - at);
            vec a = scores_of_head[count] * load_some(last + at, n);
            for (p = 0; p < count; p++)
                a += scores_of_head[p] * load_some(seen + (size_t)numbers[p] * (size_t)width + at, n);
            store_some(to + at, a, n);
        }
    }
}

/* ---- recurrent cells (Hochreiter and Schmidhuber 1997 with forget gates; Cho et al. 2014) */

struct cell_place {
    const float *gates, *input, *new_bias;
    float *hidden, *cell;
    int width;
};

/* Compute the units from `at` on, a whole vector or n < LANES of them. */
INLINE void recur_at(const int kind, const struct cell_place *place, int at, int n) {
#define PART(from, gate) (n == LANES ? load((from) + (gate) * place->width + at) : load_some((from) + (gate) * place->width + at, n))
#define GATE(gate) (PART(place->gates, gate) + PART(place->input, gate))
#define KEEP(to, value) \
    do { \
        if (n == LANES) store((to) + at, value); \
        else store_some((to) + at, value, n); \
    } while (0)
    if (kind == CELL_LSTM) {
        vec input = sigmoid_of(GATE(0)), forget = sigmoid_of(GATE(1));
        vec cell = forget * PART(place->cell, 0) + input * tanh_of(GATE(2));
        vec hidden = sigmoid_of(GATE(3)) * tanh_of(cell);
        KEEP(place->cell, cell);
        KEEP(place->hidden, hidden);
    } else if (kind == CELL_GRU) {
        vec reset = sigmoid_of(GATE(0)), update = sigmoid_of(GATE(1));
        vec inner = PART(place->gates, 2);
        if (place->new_bias) inner += PART(place->new_bias, 0);
        vec fresh = tanh_of(PART(place->input, 2) + reset * inner);
        vec hidden = (1.0f - update) * fresh + update * PART(place->hidden, 0);
        KEEP(place->hidden, hidden);
    } else {
        vec hidden = activated(GATE(0), kind == CELL_TANH ? ACT_TANH : ACT_RELU);
        KEEP(place->hidden, hidden);
    }
#undef KEEP
#undef GATE
#undef PART
}

INLINE void recur_as(const int kind, int rows, int width, const float *gates, const float *const *input,
                     const float *new_bias, float *hidden, float *cell) {
    int parts = kind == CELL_LSTM ? 4 : kind == CELL_GRU ? 3 : 1;
    for (int row = 0; row < rows; row++) {
        size_t at = (size_t)row * (size_t)width;
        struct cell_place place = {gates + at * (size_t)parts, input[row], new_bias, hidden + at, cell ? cell + at : NULL, width};
        int i = 0;
        for (; i + LANES <= width; i += LANES) recur_at(kind, &place, i, LANES);
        if (i < width) recur_at(kind, &place, i, width - i);
    }
}

static void recur(int kind, int rows, int width, const float *gates, const float *const *input,
                  const float *new_bias, float *hidden, float *cell) {
    switch (kind) {
    case CELL_LSTM: recur_as(CELL_LSTM, rows, width, gates, input, new_bias, hidden, cell); break;
    case CELL_GRU: recur_as(CELL_GRU, rows, width, gates, input, new_bias, hidden, cell); break;
    case CELL_TANH: recur_as(CELL_TANH, rows, width, gates, input, new_bias, hidden, cell); break;
    default: recur_as(CELL_RELU, rows, width, gates, input, new_bias, hidden, cell); break;
    }
}

const struct kernels TABLE = {
    .name = TABLE_NAME, .lanes = LANES, .packed_size = packed_size, .pack = pack, .product = product,
    .project = project, .top = top, .greatest = greatest, .softmax = softmax, .log_softmax = log_softmax,
    .layer_norm = layer_norm, .activate = activate, .glu = glu, .add = add, .multiply = multiply,
    .affine = affine, .add_scaled = add_scaled, .dot = dot, .tanh_dot = tanh_dot, .transpose = transpose,
    .scores = scores, .attend = attend, .attend_cached = attend_cached, .recur = recur,
#ifdef __AVX512VNNI__
    .byte_panels_size = byte_panels_size, .columns = whole_panels, .byte_stride = byte_stride, .pack_bytes = pack_bytes,
    .quantize = quantize, .product_bytes = product_bytes, .project_bytes = project_bytes,
#endif
};
