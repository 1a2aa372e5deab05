/* Runs a fuzzer's function over a file of inputs, a line of hex digits each: a short corpus for
 * every compiler, without libFuzzer. usage: replay_<fuzzer> FILE.hex */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int digit(int c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

int main(int argc, char **argv)
{
    FILE *file = argc == 2 ? fopen(argv[1], "re") : NULL;
    if (file == NULL) {
        fprintf(stderr, "usage: %s FILE.hex\n", argv[0]);
        return EXIT_FAILURE;
    }
    char *line = NULL;
    size_t cap = 0;
    int inputs = 0;
    while (getline(&line, &cap, file) > 0) {
        const size_t size = strcspn(line, "\n") / 2;
        uint8_t *bytes = malloc(size > 0 ? size : 1); /* its own, so that a read beyond is seen */
        if (bytes == NULL) {
            return EXIT_FAILURE;
        }
        for (size_t i = 0; i < size; i++) {
            const int high = digit(line[2 * i]);
            const int low = digit(line[2 * i + 1]);
            if (high < 0 || low < 0) {
                fprintf(stderr, "%s: input %d is not hex\n", argv[1], inputs);
                return EXIT_FAILURE;
            }
            bytes[i] = (uint8_t)(high << 4 | low);
        }
        (void)LLVMFuzzerTestOneInput(bytes, size);
        free(bytes);
        inputs++;
    }
    free(line);
    fclose(file);
    printf("%d inputs\n", inputs);
    return inputs > 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
