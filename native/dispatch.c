/* Choose the table of kernels for this processor. */
#include "kernels.h"

#include <string.h>

extern const struct kernels kernels_baseline;
#ifdef DRAGOMAN_X86
extern const struct kernels kernels_avx2, kernels_avx512, kernels_avx512vnni;
#endif

const struct kernels *kernels_choose(const char *limit) {
    const struct kernels *found[4];
    int count = 0;
    found[count++] = &kernels_baseline;
#ifdef DRAGOMAN_X86
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
        found[count++] = &kernels_avx2;
        if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
            __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw")) {
            found[count++] = &kernels_avx512;
            if (__builtin_cpu_supports("avx512vnni")) found[count++] = &kernels_avx512vnni;
        }
    }
#endif
    if (limit == NULL || !*limit) return found[count - 1];
    for (int i = 0; i < count; i++)
        if (strcmp(found[i]->name, limit) == 0) return found[i];
    return NULL;
}
