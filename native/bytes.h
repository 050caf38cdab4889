/* Products of whole numbers: weights of 8 bits, and rows that are rounded to 8 bits with a scale of their own.
 *
 * Only kernels.c includes this file, where the processor multiplies and adds four bytes in one instruction
 * (AVX-512 VNNI). Elsewhere weights of 8 bits are unpacked to floats when a model is opened: with AVX2 a product of
 * bytes needs as many instructions as one of floats. Sums of whole numbers are exact, so their order is free. */
#ifndef DRAGOMAN_BYTES_H
#define DRAGOMAN_BYTES_H

#include <immintrin.h>

enum { GROUP = 4, OFFSET = 128 }; /* bytes in one lane; a row is stored as unsigned bytes, OFFSET more than it is */

static int byte_stride(int inputs) { return round_up(inputs, GROUP); }

static size_t byte_panels_size(int outputs, int inputs) { return (size_t)round_up(outputs, PANEL) * (size_t)byte_stride(inputs); }

/* A panel has the GROUP weights of inputs 0 to 3 for each of its outputs, then those of inputs 4 to 7, and so on.
 * A sum begins with what OFFSET adds to it, with its sign turned. */
static void pack_bytes(const int8_t *weight, int outputs, int inputs, int8_t *packed, int32_t *starts) {
    int stride = byte_stride(inputs);
    for (int first = 0; first < outputs; first += PANEL)
        for (int k = 0; k < stride; k += GROUP)
            for (int j = first; j < first + PANEL; j++)
                for (int g = k; g < k + GROUP; g++)
                    *packed++ = j < outputs && g < inputs ? weight[(size_t)j * (size_t)inputs + (size_t)g] : 0;
    for (int j = 0; j < round_up(outputs, PANEL); j++) {
        starts[j] = 0;
        for (int k = 0; k < inputs && j < outputs; k++) starts[j] -= OFFSET * weight[(size_t)j * (size_t)inputs + (size_t)k];
    }
}

/* Round each row to whole numbers from -127 to 127. A row that is not finite has the scale NaN. */
static void quantize(const float *x, ptrdiff_t x_stride, int rows, int inputs, uint8_t *bytes, float *scales) {
    int stride = byte_stride(inputs), whole = inputs / LANES * LANES, rest = inputs - whole;
    for (int row = 0; row < rows; row++, x += x_stride, bytes += stride) {
        vec most = {0}, sum = {0};
        for (int i = 0; i < inputs; i += LANES) {
            vec size = (vec)((ivec)(i < whole ? load(x + i) : load_some(x + i, rest)) & 0x7fffffff);
            most = greater(size, most);
            sum += size;
        }
        float top = max_of(most), inverse = top > 0.0f ? 127.0f / top : 0.0f;
        scales[row] = sum_of(sum) < INFINITY ? top / 127.0f : NAN;
        for (int i = 0; i < inputs; i += LANES) {
            vec value = i < whole ? load(x + i) : load_some(x + i, rest);
            __m128i small = _mm512_cvtepi32_epi8(_mm512_add_epi32(_mm512_cvtps_epi32((__m512)(value * inverse)), _mm512_set1_epi32(OFFSET)));
            memcpy(bytes + i, &small, (size_t)least(LANES, stride - i)); /* rounded up to a whole group */
        }
    }
}

INLINE void byte_tile(const int rows, const uint8_t *x, const float *row_scales, int stride, const int8_t *panel, const int32_t *starts,
                      const float *scales, const float *bias, float *y, ptrdiff_t y_stride, int columns, int activation) {
    __m512i sum[TILE_ROWS][TILE_VECTORS];
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 8
        for (int j = 0; j < TILE_VECTORS; j++) sum[i][j] = _mm512_loadu_si512(starts + j * LANES);
    for (int k = 0; k < stride; k += GROUP, panel += PANEL * GROUP) {
        __m512i w[TILE_VECTORS];
#pragma GCC unroll 8
        for (int j = 0; j < TILE_VECTORS; j++) w[j] = _mm512_loadu_si512(panel + j * LANES * GROUP);
#pragma GCC unroll 8
        for (int i = 0; i < rows; i++) {
            int32_t four;
            memcpy(&four, x + i * stride + k, sizeof four);
            __m512i value = _mm512_set1_epi32(four);
#pragma GCC unroll 8
            for (int j = 0; j < TILE_VECTORS; j++) sum[i][j] = _mm512_dpbusd_epi32(sum[i][j], value, w[j]);
        }
    }
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++, y += y_stride) {
        float whole[PANEL];
        float *to = columns == PANEL ? y : whole;
#pragma GCC unroll 8
        for (int j = 0; j < TILE_VECTORS; j++) {
            vec value = __builtin_convertvector((ivec)sum[i][j], vec) * (load(scales + j * LANES) * row_scales[i]) + load(bias + j * LANES);
            store(to + j * LANES, activated(value, activation));
        }
        if (columns < PANEL) memcpy(y, whole, (size_t)columns * sizeof(float));
    }
}

INLINE void byte_panel_rows(const uint8_t *x, const float *row_scales, int rows, const struct byte_panels *panels, int first, const float *bias,
                            float *y, ptrdiff_t y_stride, int columns, int activation) {
    int tiles = (rows + TILE_ROWS - 1) / TILE_ROWS, stride = byte_stride(panels->inputs);
    const int8_t *panel = panels->bytes + (size_t)first * (size_t)stride;
    for (int t = 0; t < tiles; t++) {
        int here = rows / tiles + (t < rows % tiles);
#define TILE(n) byte_tile(n, x, row_scales, stride, panel, panels->starts + first, panels->scales + first, bias, y, y_stride, columns, activation)
        switch (here) {
        case 1: TILE(1); break;
        case 2: TILE(2); break;
        case 3: TILE(3); break;
        case 4: TILE(4); break;
        case 5: TILE(5); break;
        case 6: TILE(6); break;
        }
#undef TILE
        x += here * stride;
        row_scales += here;
        y += here * y_stride;
    }
}

static void product_bytes(const uint8_t *x, const float *row_scales, int rows, const struct byte_panels *panels, const float *bias, float *y,
                          ptrdiff_t y_stride, int activation) {
    for (int first = 0; first < panels->outputs; first += PANEL) {
        float own[PANEL];
        int columns = least(PANEL, panels->outputs - first);
        bias_of_panel(bias, first, columns, 0.0f, own);
        if (activation == ACT_RELU) byte_panel_rows(x, row_scales, rows, panels, first, own, y + first, y_stride, columns, ACT_RELU);
        else byte_panel_rows(x, row_scales, rows, panels, first, own, y + first, y_stride, columns, ACT_NONE);
    }
    if (activation == ACT_TANH || activation == ACT_SIGMOID)
        for (int row = 0; row < rows; row++) activate(y + row * y_stride, (size_t)panels->outputs, activation);
}

#endif
