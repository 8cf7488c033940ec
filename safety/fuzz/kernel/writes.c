/* Writing Examples: columns made from the input are written, in any room, and read back; columns that change between
 * measuring and writing, as another thread's array can, are refused without a byte beyond what was measured. */
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

static void fill(struct column *c, struct input *in, int kind, int lists, const char *key)
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
    c->column = (struct example_column){kind, (const uint8_t *)key, strlen(key), lists ? c->steps : NULL, c->offsets,
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

/* A batch: the columns of features, then those of feature lists. */
#define MOST_COLUMNS 3
struct made {
    struct column columns[MOST_COLUMNS];
    struct example_column views[MOST_COLUMNS];
    int kinds[MOST_COLUMNS];
    size_t features, lists;
};

static void fill_all(struct made *made, struct input *in)
{
    static const char *const keys[MOST_COLUMNS] = {"a", "", "bc"};
    for (size_t i = 0; i < made->features + made->lists; i++) {
        fill(made->columns + i, in, made->kinds[i], i >= made->features, keys[i]);
        made->views[i] = made->columns[i].column;
    }
}

/* Every record in memory of exactly its size. */
static void write_changed(struct example_batch *batch, struct made *made, struct example_measures *m, struct input *in)
{
    for (size_t r = 0; r < ROWS; r++) {
        size_t size = example_measure(batch, r, m);
        uint8_t *out = memory(size);
        fill_all(made, in);
        example_put(batch, r, m, out);
        free(out);
    }
}

static void write_all(struct example_batch *batch, struct made *made, struct example_measures *m, struct input *in)
{
    int64_t ends[ROWS], records[2 * ROWS], found[2 * ROWS], order[ROWS], needed;
    size_t total = 0, next = 0;
    int status;
    if (take_byte(in) & 1) {
        for (size_t r = 0; r < ROWS; r++)
            order[r] = take_byte(in) % ROWS;
        batch->rows = order;
    }
    for (size_t r = 0; r < ROWS; r++) {
        size_t size = example_measure(batch, batch->rows ? (size_t)order[r] : r, m);
        records[2 * r] = (int64_t)total + 12;
        records[2 * r + 1] = (int64_t)size - 16;
        total += size;
    }
    size_t room = take_byte(in) & 1 ? total : (size_t)take_number(in, 2) % (total + 1);
    uint8_t *out = memory(room);
    size_t done = example_records(batch, 0, ROWS, m, out, room, ends, &needed);
    PROMISE(done <= ROWS && (done == ROWS) == (room == total));
    PROMISE(done == ROWS ? !needed : needed == records[2 * done + 1] + 16);
    size_t n = done ? (size_t)ends[done - 1] : 0;
    PROMISE(wire_scan(out, n, &next, WIRE_ALL, found, ROWS, &status) == done && next == n);
    PROMISE(!memcmp(found, records, 2 * done * sizeof *found));
    if (done == ROWS && !batch->rows && made->features)
        read_back(out, n, made->columns, records, made->kinds[0]);
    free(out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input in = {data, size};
    struct made *made = memory(sizeof *made);
    int64_t *measured = memory(MOST_COLUMNS * sizeof *measured);
    uint8_t choice = take_byte(&in);
    made->features = choice & 3;
    made->lists = (choice >> 2 & 3) % (MOST_COLUMNS - made->features + 1);
    for (size_t i = 0; i < MOST_COLUMNS; i++)
        made->kinds[i] = KIND_BYTES + take_byte(&in) % 3;
    fill_all(made, &in);
    struct example_batch batch = {made->views, made->features, made->lists, made->lists || choice >> 4 & 1, NULL};
    struct example_measures measures = {.columns = measured};
    if (choice >> 5 & 1)
        write_changed(&batch, made, &measures, &in);
    else
        write_all(&batch, made, &measures, &in);
    free(measured);
    free(made);
    return 0;
}
