/* Examples and SequenceExamples: locate, count, fill, as the reader calls them. */
#include "target.h"

#include "example.h"
#include "wire.h"

#define KEYS 3

static void columns(const uint8_t *buf, size_t n, const int64_t *spans, size_t count, int kind, int64_t width)
{
    int64_t *offsets = memory((count + 1) * 8);
    uint64_t bytes = 0;
    size_t done = example_count(buf, spans, count, kind, offsets, &bytes);
    PROMISE(done <= count);
    if (done == count) {
        uint64_t values = (uint64_t)offsets[count];
        PROMISE(values <= n && bytes <= n);
        if (kind == KIND_BYTES) {
            int64_t *strings = memory((values + 1) * 8);
            uint8_t *data = memory(bytes);
            PROMISE(example_fill_bytes(buf, spans, count, strings, values, data, bytes) == count);
            PROMISE(strings[0] == 0 && (uint64_t)strings[values] == bytes);
            free(data);
            free(strings);
        } else {
            size_t item = kind == KIND_FLOAT ? 4 : 8;
            void *out = memory(values * item);
            size_t filled = kind == KIND_FLOAT ? example_fill_float(buf, spans, count, -1, out, values)
                                               : example_fill_int64(buf, n, spans, count, -1, out, values);
            PROMISE(filled == count || kind == KIND_INT64); /* only filling sees that a varint is too long */
            free(out);
        }
    }
    if (kind != KIND_BYTES) { /* as many as the schema says, whatever the file has */
        size_t room = width < 0 ? 3 : (size_t)width * count, item = kind == KIND_FLOAT ? 4 : 8;
        void *out = memory(room * item);
        size_t filled = kind == KIND_FLOAT ? example_fill_float(buf, spans, count, width, out, room)
                                           : example_fill_int64(buf, n, spans, count, width, out, room);
        PROMISE(filled <= count);
        free(out);
    } else {
        int64_t strings[3];
        uint8_t data[4];
        PROMISE(example_fill_bytes(buf, spans, count, strings, 2, data, sizeof data) <= count);
    }
    free(offsets);
}

static void steps(const uint8_t *buf, size_t n, const int64_t *spans, size_t count, int64_t width)
{
    int64_t *offsets = memory((count + 1) * 8);
    size_t done = example_steps(buf, spans, count, offsets, NULL, NULL, 0);
    PROMISE(done <= count);
    if (done == count) {
        size_t total = (size_t)offsets[count];
        PROMISE(total <= n);
        uint8_t *kinds = memory(total);
        int64_t *places = memory(total * 16);
        PROMISE(example_steps(buf, spans, count, offsets, kinds, places, total) == count);
        for (size_t i = 0; i < total; i++) {
            PROMISE(places[2 * i] >= 0 && places[2 * i] <= places[2 * i + 1] && (uint64_t)places[2 * i + 1] <= n);
            if (kinds[i] != KIND_MISSING)
                columns(buf, n, places + 2 * i, 1, kinds[i], width);
        }
        free(places);
        free(kinds);
    }
    free(offsets);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const uint8_t names[] = "abcd";
    struct input in = {data, size};
    uint8_t choice = take_byte(&in);
    int lists = choice & 1;
    int64_t width = (int64_t)(take_byte(&in) % 6) - 1;
    size_t cut = (size_t)take_number(&in, 2);
    uint8_t *buf = message(&in, choice & 2);
    size_t n = in.size;
    /* Two records, end to end; keys "a", "bc" and "d". */
    int64_t middle = n && choice & 4 ? (int64_t)(cut % (n + 1)) : 0, offsets[KEYS + 1] = {0, 1, 3, 4};
    int64_t records[4] = {0, middle, middle, (int64_t)n - middle};
    struct example_keys keys = {names, offsets, KEYS};
    uint8_t kinds[KEYS * 2], notes[2];
    int64_t spans[KEYS * 2 * 2];
    memset(kinds, 0, sizeof kinds);
    memset(spans, 0, sizeof spans);
    example_locate(buf, records, 2, &keys, lists, kinds, spans, notes);
    for (size_t k = 0; k < KEYS; k++)
        for (size_t r = 0; r < 2; r++) {
            const int64_t *span = spans + 2 * (k * 2 + r);
            if ((notes[r] & NOTE_ODD) || kinds[k * 2 + r] == KIND_MISSING)
                continue;
            PROMISE(kinds[k * 2 + r] <= KIND_INT64 && span[0] <= span[1]);
            PROMISE(span[0] >= records[2 * r] && span[1] <= records[2 * r] + records[2 * r + 1]);
            if (lists)
                steps(buf, n, span, 1, width);
            else
                columns(buf, n, span, 1, kinds[k * 2 + r], width);
        }
    free(buf);
    return 0;
}
