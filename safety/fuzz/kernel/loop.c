/* In place of libFuzzer where there is none: runs the files it is given, then variations of them until the time is
 * over, and prints the count in libFuzzer's words. Blind, for it sees no coverage.
 *
 *     loop SECONDS FILE... */
#include <time.h>

#include "target.h"

#define MOST_FILES 4096
#define MOST_BYTES 4096

static struct input files[MOST_FILES];
static size_t count;
static uint64_t state = 88172645463325252u;

static uint64_t any(uint64_t below)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state % below;
}

static void add(const char *path)
{
    FILE *file = fopen(path, "rb");
    PROMISE(file != NULL && count < MOST_FILES);
    uint8_t *data = memory(MOST_BYTES);
    files[count].data = data;
    files[count++].size = fread(data, 1, MOST_BYTES, file);
    fclose(file);
}

/* One of the files with a few bytes changed, cut, doubled or taken from another. */
static size_t vary(uint8_t *out)
{
    struct input from = files[any(count)];
    memcpy(out, from.data, from.size);
    for (uint64_t edits = 1 + any(5); edits && from.size; edits--) {
        struct input other = files[any(count)];
        size_t at = any(from.size), size = from.size - at, taken;
        switch (any(5)) {
        case 0:
            out[at] ^= (uint8_t)(1u << any(8));
            break;
        case 1:
            out[at] = (uint8_t)any(256);
            break;
        case 2:
            from.size = at;
            break;
        case 3:
            taken = other.size < size ? other.size : size;
            memcpy(out + at, other.data, taken);
            break;
        default:
            if (from.size + size <= MOST_BYTES) {
                memcpy(out + from.size, out + at, size);
                from.size += size;
            }
        }
    }
    return from.size;
}

int main(int argc, char **argv)
{
    static uint8_t none[1], edited[MOST_BYTES];
    unsigned long long runs = 0;
    wire_init();
    if (argc < 2)
        return 2;
    for (int i = 2; i < argc; i++)
        add(argv[i]);
    for (; runs < count; runs++)
        LLVMFuzzerTestOneInput(files[runs].data, files[runs].size);
    if (!count)
        files[count++] = (struct input){none, 1};
    for (time_t end = time(NULL) + atoi(argv[1]); time(NULL) < end;)
        for (int i = 0; i < 1000; i++, runs++) {
            size_t size = vary(edited);
            uint8_t *exact = memory(size);
            memcpy(exact, edited, size);
            LLVMFuzzerTestOneInput(exact, size);
            free(exact);
        }
    printf("stat::number_of_executed_units: %llu\n", runs);
    return 0;
}
