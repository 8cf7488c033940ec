/* Writing Examples: columns made from the input are sized, written, framed and read back; columns that change
 * between sizing and writing, as another thread's array can, are refused without a byte beyond the room. */
#include "target.h"

#include "example.h"
#include "wire.h"

#define ROWS 3
#define MOST_VALUES 40

struct column {
    int64_t steps[ROWS + 1], offsets[MOST_VALUES + 1], string_offsets[MOST_VALUES + 1], integers[MOST_VALUES];
    float floats[MOST_VALUES];
    uint8_t present[ROWS], bytes[MOST_VALUES * 3];
    struct example_column column;
};

static int64_t rising(struct input *in, int64_t *offsets, size_t count, int64_t most)
{
    offsets[0] = 0;
    for (size_t i = 0; i < count; i++) {
        int64_t next = offsets[i] + take_byte(in) % 5;
        offsets[i + 1] = next < most ? next : most;
    }
    return offsets[count];
}

static void fill(struct column *c, struct input *in, int kind, int lists)
{
    size_t rows = lists ? (size_t)rising(in, c->steps, ROWS, 8) : ROWS;
    int64_t values = rising(in, c->offsets, rows, MOST_VALUES);
    rising(in, c->string_offsets, (size_t)values, sizeof c->bytes);
    for (int64_t i = 0; i < values; i++) {
        c->integers[i] = (int64_t)(take_number(in, 8) >> take_byte(in) % 64);
        c->floats[i] = (float)i;
    }
    for (size_t i = 0; i < sizeof c->bytes; i++)
        c->bytes[i] = (uint8_t)i;
    for (size_t i = 0; i < ROWS; i++)
        c->present[i] = take_byte(in) & 1;
    const void *held[] = {NULL, c->bytes, c->floats, c->integers};
    c->column = (struct example_column){kind, (const uint8_t *)"a", 1, lists ? c->steps : NULL, c->offsets,
                                        c->present, held[kind], c->string_offsets};
}

/* What was written must be found again, value for value, by the reader. */
static void read_back(const uint8_t *buf, size_t n, const struct column *c, const int64_t *records, int kind)
{
    static const int64_t key_offsets[2] = {0, 1};
    struct example_keys keys = {(const uint8_t *)"a", key_offsets, 1};
    uint8_t kinds[ROWS] = {0}, notes[ROWS];
    int64_t spans[2 * ROWS] = {0};
    example_locate(buf, records, ROWS, &keys, 0, kinds, spans, notes);
    for (size_t r = 0; r < ROWS; r++) {
        PROMISE(!(notes[r] & NOTE_ODD) && kinds[r] == (c->present[r] ? kind : KIND_MISSING));
        if (!c->present[r])
            continue;
        int64_t from = c->offsets[r], width = c->offsets[r + 1] - from, found[2];
        uint64_t bytes;
        PROMISE(example_count(buf, spans + 2 * r, 1, kind, found, &bytes) == 1 && found[1] == width);
        if (kind == KIND_INT64) {
            int64_t *out = memory((size_t)width * 8);
            PROMISE(example_fill_int64(buf, n, spans + 2 * r, 1, width, out, (size_t)width) == 1);
            PROMISE(!memcmp(out, c->integers + from, (size_t)width * 8));
            free(out);
        } else if (kind == KIND_FLOAT) {
            uint8_t *out = memory((size_t)width * 4);
            PROMISE(example_fill_float(buf, spans + 2 * r, 1, width, out, (size_t)width) == 1);
            PROMISE(!memcmp(out, c->floats + from, (size_t)width * 4));
            free(out);
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input in = {data, size};
    uint8_t choice = take_byte(&in);
    int kind = KIND_BYTES + choice % 3, lists = choice >> 2 & 1, change = choice >> 3 & 1;
    struct column *c = memory(sizeof *c);
    fill(c, &in, kind, lists);

    int64_t sizes[ROWS] = {0}, at[ROWS], records[2 * ROWS], list_sizes[ROWS], total = 0;
    example_sizes(&c->column, 0, ROWS, sizes);
    for (size_t r = 0; r < ROWS; r++) {
        list_sizes[r] = lists ? sizes[r] : -1;
        if (lists)
            sizes[r] = 0;
        records[2 * r] = total + 12;
        records[2 * r + 1] = example_record_size(sizes[r], list_sizes[r]) - 16;
        total += records[2 * r + 1] + 16;
    }
    size_t n = (size_t)total;
    uint8_t *out = memory(n), *starts[3];
    for (size_t r = 0; r < ROWS; r++) {
        uint8_t *list_at = NULL, *entries;
        starts[r] = out + records[2 * r] - 12;
        entries = example_begin(starts[r], sizes[r], list_sizes[r], &list_at);
        at[r] = (lists ? list_at : entries) - out;
    }
    if (change)
        fill(c, &in, kind, lists);
    int written = example_write(&c->column, 0, ROWS, out, n, at);
    if (!change) {
        PROMISE(written);
        example_finish(starts, sizes, list_sizes, ROWS);
        int64_t found[2 * ROWS];
        size_t next = 0;
        int status;
        PROMISE(wire_scan(out, n, &next, WIRE_ALL, found, ROWS, &status) == ROWS && next == n);
        PROMISE(!memcmp(found, records, sizeof found));
        if (!lists)
            read_back(out, n, c, records, kind);
    }
    free(out);
    free(c);
    return 0;
}
