/* Choose the table of kernels for this processor. */
#include "kernels.h"

#include <string.h>

extern const struct kernels kernels_baseline;
#ifdef DRAGOMAN_X86
#include <cpuid.h>

extern const struct kernels kernels_avx2, kernels_avx512, kernels_avx512vnni;

/* What the processor has and the system saves (Intel's manual, volume 1, sections 14.3 and 15.2). The compiler's
 * __builtin_cpu_supports would need a library that not every compiler brings for every system. */
enum { FMA = 1 << 12, OSXSAVE = 1 << 27, AVX2 = 1 << 5, AVX512F = 1 << 16, AVX512DQ = 1 << 17, AVX512BW = 1 << 30, VNNI = 1 << 11 };
#define AVX512VL (1u << 31)

static unsigned saved_registers(void) {
    unsigned low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return low;
}

/* The number of tables after the baseline that can be run. */
static int tables_above(void) {
    const unsigned ymm = 0x6, zmm = 0xe6, wide = AVX512F | AVX512DQ | AVX512BW | AVX512VL;
    unsigned a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & FMA) || !(c & OSXSAVE)) return 0;
    unsigned saved = saved_registers();
    if ((saved & ymm) != ymm || !__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(b & AVX2)) return 0;
    if ((saved & zmm) != zmm || (b & wide) != wide) return 1;
    return c & VNNI ? 3 : 2;
}
#endif

const struct kernels *kernels_choose(const char *limit) {
    const struct kernels *found[4];
    int count = 0;
    found[count++] = &kernels_baseline;
#ifdef DRAGOMAN_X86
    int above = tables_above();
    if (above > 0) found[count++] = &kernels_avx2;
    if (above > 1) found[count++] = &kernels_avx512;
    if (above > 2) found[count++] = &kernels_avx512vnni;
#endif
    if (limit == NULL || !*limit) return found[count - 1];
    for (int i = 0; i < count; i++)
        if (strcmp(found[i]->name, limit) == 0) return found[i];
    return NULL;
}
