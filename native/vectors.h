/* Vectors of floats in the compiler's vector extensions, and the functions of one variable.
 *
 * Only kernels.c includes this file. The width follows the instruction set that it is compiled for.
 */
#ifndef DRAGOMAN_VECTORS_H
#define DRAGOMAN_VECTORS_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#if defined(__AVX512F__)
enum { LANES = 16, TILE_ROWS = 6, TILE_VECTORS = 4 }; /* 24 of 32 registers hold sums */
#elif defined(__AVX__)
enum { LANES = 8, TILE_ROWS = 6, TILE_VECTORS = 2 }; /* 12 of 16 */
#elif defined(__aarch64__)
enum { LANES = 4, TILE_ROWS = 6, TILE_VECTORS = 4 }; /* 24 of 32 */
#else
enum { LANES = 4, TILE_ROWS = 4, TILE_VECTORS = 2 }; /* 8 of 16: without FMA products need registers too */
#endif

typedef float vec __attribute__((vector_size(4 * LANES)));
typedef int32_t ivec __attribute__((vector_size(4 * LANES)));
typedef float vec_in_memory __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
typedef float vec4 __attribute__((vector_size(16)));

#define INLINE static inline __attribute__((always_inline))

INLINE vec load(const float *from) { return *(const vec_in_memory *)from; }
INLINE void store(float *to, vec value) { *(vec_in_memory *)to = value; }
INLINE vec broadcast(float value) { return value - (vec){0}; } /* -0 stays -0 */

/* The first n < LANES floats; the others are zero. */
INLINE vec load_some(const float *from, int n) {
    vec value = {0};
    memcpy(&value, from, (size_t)n * sizeof(float));
    return value;
}

INLINE void store_some(float *to, vec value, int n) { memcpy(to, &value, (size_t)n * sizeof(float)); }

INLINE vec choose(ivec mask, vec yes, vec no) { return (vec)(((ivec)yes & mask) | ((ivec)no & ~mask)); }
INLINE vec greater(vec a, vec b) { return choose(a > b, a, b); }

/* Four vectors are added up to four numbers, by halves. */
#if defined(__AVX512F__)
typedef float vec8 __attribute__((vector_size(32)));
INLINE vec4 fold(vec x) {
    vec8 half = __builtin_shufflevector(x, x, 0, 1, 2, 3, 4, 5, 6, 7) +
                __builtin_shufflevector(x, x, 8, 9, 10, 11, 12, 13, 14, 15);
    return __builtin_shufflevector(half, half, 0, 1, 2, 3) + __builtin_shufflevector(half, half, 4, 5, 6, 7);
}
#elif defined(__AVX__)
INLINE vec4 fold(vec x) {
    return __builtin_shufflevector(x, x, 0, 1, 2, 3) + __builtin_shufflevector(x, x, 4, 5, 6, 7);
}
#else
INLINE vec4 fold(vec x) { return x; }
#endif

INLINE vec4 sums_of_four(vec a, vec b, vec c, vec d) {
    vec4 fa = fold(a), fb = fold(b), fc = fold(c), fd = fold(d);
    vec4 ab = __builtin_shufflevector(fa, fb, 0, 4, 1, 5) + __builtin_shufflevector(fa, fb, 2, 6, 3, 7);
    vec4 cd = __builtin_shufflevector(fc, fd, 0, 4, 1, 5) + __builtin_shufflevector(fc, fd, 2, 6, 3, 7);
    return __builtin_shufflevector(ab, cd, 0, 1, 4, 5) + __builtin_shufflevector(ab, cd, 2, 3, 6, 7);
}

/* The sum in the order of `sums_of_four`, so that a number alone equals one of four. */
INLINE float sum_of(vec x) {
    vec4 part = fold(x);
    return (part[0] + part[2]) + (part[1] + part[3]);
}

INLINE float max_of(vec x) {
    float most = x[0];
    for (int i = 1; i < LANES; i++) most = x[i] > most ? x[i] : most;
    return most;
}

/* exp(x) with a relative error of 1e-7, by 2^n exp(r) with |r| <= ln(2) / 2 and the polynomial of
 * Cephes (Moshier 1989). Below -87 it is 0, above 88 it is exp(88). */
INLINE vec exp_of(vec x) {
    ivec is_tiny = x < -87.0f;
    x = choose(x > 88.0f, broadcast(88.0f), choose(is_tiny, broadcast(-87.0f), x));
    const float round = 12582912.0f; /* 1.5 * 2^23: adding it leaves an integer */
    vec n = (x * 1.44269504088896341f + round) - round;
    vec r = x - n * 0.693359375f;
    r = r - n * -2.12194440e-4f;
    vec p = broadcast(1.9875691500e-4f);
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * (r * r) + r + 1.0f;
    ivec power = (__builtin_convertvector(n, ivec) + 127) << 23;
    return (vec)((ivec)(p * (vec)power) & ~is_tiny);
}

INLINE vec sigmoid_of(vec x) { return 1.0f / (1.0f + exp_of(-x)); }

/* tanh(x) with a relative error of 1e-6: near 0 the polynomial of Cephes, otherwise by exp(2 |x|). */
INLINE vec tanh_of(vec x) {
    vec size = (vec)((ivec)x & 0x7fffffff);
    vec z = x * x;
    vec p = broadcast(-5.70498872745e-3f);
    p = p * z + 2.06390887954e-2f;
    p = p * z + -5.37397155531e-2f;
    p = p * z + 1.33314422036e-1f;
    p = p * z + -3.33332819422e-1f;
    vec small = p * z * x + x;
    vec large = 1.0f - 2.0f / (exp_of(size + size) + 1.0f);
    large = (vec)((ivec)large | ((ivec)x & (int32_t)0x80000000));
    return choose(size < 0.625f, small, large);
}

INLINE vec activated(vec x, int activation) {
    switch (activation) {
    case 1: return greater(x, (vec){0});
    case 2: return tanh_of(x);
    case 3: return sigmoid_of(x);
    default: return x;
    }
}

#endif
