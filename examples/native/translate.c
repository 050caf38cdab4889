/* Translate the lines of the standard input with a model file, one output for each line:
 *
 *     dragoman export RUN --to portable && make native
 *     cc -I native examples/native/translate.c native/build/libdragoman.so -Wl,-rpath,native/build -lm -o translate
 *     ./translate RUN/portable/model.dragoman < inputs.txt
 *
 * For models that read one text. src/dragoman/program/file.py describes the file: this program reads the tokenisers and
 * the search settings from it, and the library the rest. */
#include "dragoman.h"
#include "tokenizer.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TOKENIZER = 10, SETTINGS = 11, FORBIDDEN = 12 }; /* kinds of sections */
enum { SOURCE, TARGET };                                /* numbers of the two tokenisers */
enum { STORED = DRAGOMAN_SEED + 1, RATIO = STORED, EXTRA, MOST, NUMBERS = STORED + 4 };
enum { END = 3, LONGEST = 1 << 16 };                    /* the end symbol; bytes of a line and tokens of an output */

static void stop(const char *what) {
    fprintf(stderr, "translate: %s\n", what);
    exit(1);
}

static void *read_file(const char *path, size_t *size) {
    FILE *file = fopen(path, "rb");
    if (!file || fseek(file, 0, SEEK_END)) stop("the file cannot be opened");
    long length = ftell(file);
    rewind(file);
    void *data = length > 0 ? malloc((size_t)length) : NULL;
    if (!data || fread(data, 1, (size_t)length, file) != (size_t)length) stop("the file cannot be read");
    fclose(file);
    *size = (size_t)length;
    return data;
}

/* The bytes of a section. The library has checked the file, so that all sections are inside it. */
static const char *find_section(const char *file, int kind, int number, size_t *size) {
    int32_t count, head[2];
    int64_t place[2];
    memcpy(&count, file + 12, sizeof count);
    for (const char *entry = file + 24; count-- > 0; entry += 24) {
        memcpy(head, entry, sizeof head);
        memcpy(place, entry + 8, sizeof place);
        *size = (size_t)place[1];
        if (head[0] == kind && head[1] == number) return file + place[0];
    }
    stop("the model is not one that reads a text");
    return NULL;
}

/* Sequences of token ids: their number, then the length and the ids of each. */
static void forbid(dragoman_settings *settings, const int32_t *list, size_t words) {
    int32_t count = words ? list[0] : 0, *ends = malloc((size_t)(count + 1) * sizeof *ends), *ids = malloc((words + 1) * sizeof *ids), used = 0;
    size_t at = 1;
    for (int32_t i = 0; i < count && at < words; i++) {
        int32_t length = list[at++];
        for (int32_t j = 0; j < length && at < words; j++) ids[used++] = list[at++];
        ends[i] = used;
    }
    if (dragoman_set_list(settings, DRAGOMAN_FORBIDDEN_RUNS, count, ids, ends)) stop("the settings are damaged");
    free(ends), free(ids);
}

static tokenizer *open_tokenizer(const char *file, int number) {
    char message[200];
    size_t size;
    const char *table = find_section(file, TOKENIZER, number, &size);
    tokenizer *opened = tokenizer_open(table, size, message, sizeof message);
    if (!opened) stop(message);
    return opened;
}

int main(int count, char **arguments) {
    static char line[LONGEST], text[4 * LONGEST], message[200];
    static int32_t ids[LONGEST];
    size_t size, needed, length;
    if (count != 2) stop("name a file model.dragoman");

    char *file = read_file(arguments[1], &size);
    dragoman_model *model = dragoman_open(file, size, NULL, message, sizeof message);
    if (!model) stop(message);
    dragoman_context *context = dragoman_new(model);
    tokenizer *source = open_tokenizer(file, SOURCE), *target = open_tokenizer(file, TARGET);

    double numbers[NUMBERS];
    const char *stored = find_section(file, SETTINGS, 0, &length);
    if (length != sizeof numbers) stop("the settings are damaged");
    memcpy(numbers, stored, sizeof numbers);
    dragoman_settings *settings = dragoman_settings_new();
    if (!context || !settings) stop("there is not enough memory");
    for (int i = 0; i < STORED; i++) dragoman_set(settings, i, numbers[i]);
    const char *list = find_section(file, FORBIDDEN, 0, &length);
    forbid(settings, (const int32_t *)(const void *)list, length / 4);

    while (fgets(line, sizeof line, stdin)) {
        line[strcspn(line, "\r\n")] = 0;
        if (tokenizer_encode(source, line, strlen(line), ids, LONGEST - 1, &needed) || needed >= LONGEST) stop("a line is too long");
        ids[needed++] = END;
        double limit = fmin(numbers[MOST], ceil(numbers[RATIO] * (double)needed) + numbers[EXTRA]);
        int32_t most = (int32_t)limit;
        dragoman_set_list(settings, DRAGOMAN_LIMITS, 1, &most, NULL);

        struct dragoman_input input = {ids, (int32_t)needed, 0, 0};
        dragoman_result *result;
        if (dragoman_search(context, 1, &input, settings, &result)) stop(dragoman_message(context));
        const int32_t *ends = dragoman_result_part(result, DRAGOMAN_TOKEN_ENDS, &length);
        const int32_t *tokens = dragoman_result_part(result, DRAGOMAN_TOKENS, &length);
        if (tokenizer_decode(target, tokens, (size_t)ends[0], text, sizeof text, &needed) || needed > sizeof text) stop("an output is too long");
        printf("%.*s\n", (int)needed, text);
        dragoman_result_free(result);
    }
    dragoman_settings_free(settings), tokenizer_close(source), tokenizer_close(target);
    dragoman_free(context), dragoman_close(model), free(file);
    return 0;
}
