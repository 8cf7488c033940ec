/* Examples and SequenceExamples to columns in one pass, with room for all, for some and for nothing. */
#include "target.h"

#include "example.h"
#include "varints.h"

#define KEYS 3
#define COLUMNS (2 * KEYS)
#define RECORDS 3

static void *some(size_t count, size_t item)
{
    return memory(count * item);
}

/* Running numbers start at 0, never fall, and end at `last`. */
static void check_running(const int64_t *numbers, size_t count, size_t last)
{
    PROMISE(numbers[0] == 0);
    for (size_t i = 0; i < count; i++)
        PROMISE(numbers[i] <= numbers[i + 1]);
    PROMISE((uint64_t)numbers[count] == last);
}

static void check_column(const struct example_target *t, size_t rows)
{
    size_t items = t->kind == KIND_BYTES ? t->strings_used : t->values_used;
    PROMISE(t->values_used <= t->value_room);
    if (t->lists)
        check_running(t->steps, rows, t->lists_used);
    else
        PROMISE(t->lists_used == rows);
    if (t->splits)
        check_running(t->splits, t->lists_used, items);
    else
        PROMISE(items == t->lists_used * (size_t)t->width);
    if (t->kind == KIND_BYTES)
        check_running(t->strings, t->strings_used, t->values_used);
    for (size_t row = 0; t->optional && row < rows; row++)
        PROMISE(t->present[row] <= 1);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const uint8_t names[] = "abcdabcd";
    static const int64_t offsets[] = {0, 1, 3, 4, 5, 7, 8};
    struct input in = {data, size};
    struct example_target targets[COLUMNS];
    struct key_search search[2];
    struct example_keys keys[2] = {{names, offsets, KEYS}, {names, offsets + KEYS, KEYS}};
    uint8_t choice = take_byte(&in);
    size_t cuts[2] = {(size_t)take_number(&in, 2), (size_t)take_number(&in, 2)}, rows = choice >> 6;
    varints_init();
    memset(targets, 0, sizeof targets);
    memset(search, 0, sizeof search);
    for (size_t c = 0; c < COLUMNS; c++) {
        struct example_target *t = targets + c;
        uint8_t how = take_byte(&in);
        t->kind = 1 + how % 3;
        t->lists = c >= KEYS;
        t->optional = how >> 2 & 1;
        t->width = (int64_t)(how >> 3 & 3) - 1;
        t->value_room = how & 0x20 ? 200 : how >> 6;
        t->step_room = t->present_room = rows;
        t->string_room = t->split_room = how & 0x20 ? 200 : how >> 5;
        t->values = some(t->value_room, t->kind == KIND_FLOAT ? 4 : t->kind == KIND_INT64 ? 8 : 1);
        if (t->kind == KIND_BYTES)
            t->strings = some(t->string_room + 1, 8);
        if (t->width < 0 || (t->optional && !t->lists))
            t->splits = some(t->split_room + 1, 8);
        if (t->lists)
            t->steps = some(rows + 1, 8);
        if (t->optional)
            t->present = some(rows, 1);
    }
    for (int i = 0; i < 2; i++) {
        search[i].keys = keys + i;
        if (choice & 1) {
            search[i].table.cells = some(keys_table_size(KEYS), 8);
            keys_fill_table(keys + i, &search[i].table);
        }
    }
    uint8_t *buf = message(&in, choice & 2);
    size_t n = in.size, middle = choice & 4 ? cuts[0] % (n + 1) : 0, last = middle + cuts[1] % (n - middle + 1);
    int64_t records[2 * RECORDS] = {0, (int64_t)middle, (int64_t)middle, (int64_t)(last - middle), (int64_t)last, (int64_t)(n - last)};
    struct example_job job = {buf, n, records, RECORDS, 0, choice >> 3 & 1, targets, {search, search + 1}};
    size_t row = 0, column = 0;
    int outcome = OUTCOME_DONE;
    for (size_t next = 0; next < RECORDS; next++) {
        job.records = records + 2 * next;
        job.count = RECORDS - next;
        size_t done = example_decode(&job, row, &outcome, &column);
        if (done == SIZE_MAX) /* a fixed width, and less room than rows: nothing was added before either */
            break;
        PROMISE(done <= job.count && (outcome == OUTCOME_DONE) == (done == job.count) && column < COLUMNS);
        row += done;
        next += done;
        for (size_t c = 0; c < COLUMNS; c++)
            check_column(targets + c, row);
        if (done) { /* what is added has the usual form */
            uint8_t kinds[2 * KEYS], notes;
            int64_t spans[4 * KEYS];
            example_locate(buf, records + 2 * (next - 1), 1, keys, 0, kinds, spans, &notes);
            PROMISE(!(notes & NOTE_ODD));
        }
    }
    for (size_t c = 0; c < COLUMNS; c++) {
        free(targets[c].values);
        free(targets[c].strings);
        free(targets[c].splits);
        free(targets[c].steps);
        free(targets[c].present);
    }
    if (choice & 1)
        for (int i = 0; i < 2; i++)
            free(search[i].table.cells);
    free(buf);
    return 0;
}
