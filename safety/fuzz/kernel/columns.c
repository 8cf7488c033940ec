/* Columns of tables: what is missing becomes zero and nothing else does; decimals come back; any text is parsed or
 * refused, within its memory. */
#include "target.h"

#include "columns.h"

static void clear(uint8_t *data, size_t n, const uint8_t *present, size_t width)
{
    uint8_t *before = memory(n * width), *portable = memory(n * width);
    if (n) {
        memcpy(before, data, n * width);
        memcpy(portable, data, n * width);
    }
    int zero = columns_missing_zero(data, present, n, width, 0);
    PROMISE(columns_missing_zero(data, present, n, width, 1) == zero);
    columns_missing_clear(data, present, n, width, 0);
    columns_missing_clear(portable, present, n, width, 1);
    PROMISE(columns_missing_zero(data, present, n, width, 0));
    PROMISE(!n || !memcmp(portable, data, n * width));
    PROMISE(!zero || !n || !memcmp(before, data, n * width));
    for (size_t i = 0; i < n; i++)
        PROMISE(!present[i] || !memcmp(before + i * width, data + i * width, width));
    free(portable);
    free(before);
}

static void round_trip(const uint8_t *data, size_t n, const uint8_t *present, size_t width, unsigned scale)
{
    int64_t *offsets = memory((n + 1) * sizeof *offsets);
    if (columns_decimal_sizes(offsets, data, present, n, width, scale, COLUMNS_MOST_DECIMAL)) {
        PROMISE(columns_offsets_rise((const uint8_t *)offsets, n + 1, 8));
        size_t size = (size_t)offsets[n];
        uint8_t *text = memory(size), *back = memory(n * width);
        PROMISE(columns_decimal_text(text, size, offsets, data, n, width, scale));
        PROMISE(columns_decimal_parse(back, text, size, offsets, present, n, width, scale, COLUMNS_MOST_DECIMAL));
        for (size_t i = 0; i < n; i++)
            PROMISE((present && !present[i]) || !memcmp(back + i * width, data + i * width, width));
        free(back);
        free(text);
    }
    free(offsets);
}

/* Offsets may lie. */
static void any(const uint8_t *data, size_t size, const int64_t *offsets, size_t n, size_t width, unsigned scale)
{
    uint8_t *numbers = memory(n * width), *text = memory(size);
    columns_decimal_parse(numbers, data, size, offsets, NULL, n, width, scale, COLUMNS_MOST_DECIMAL);
    columns_decimal_text(text, size, offsets, numbers, n, width, scale);
    columns_longest_word(data, size, n);
    free(text);
    free(numbers);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const size_t widths[] = {4, 8, 16, 32, 1, 2, 3, 24};
    struct input in = {data, size};
    uint8_t choice = take_byte(&in), kind = take_byte(&in) % 3;
    const size_t width = widths[choice & (kind == 0 ? 7 : 3)];
    const unsigned scale = (choice >> 3) % (COLUMNS_MOST_SCALE + 1);
    size_t n = take_byte(&in) % 40;
    uint8_t *present = memory(n);
    int64_t *offsets = memory((n + 1) * sizeof *offsets);
    for (size_t i = 0; i < n; i++)
        present[i] = take_byte(&in) & 3;
    for (size_t i = 0, sum = 0; kind == 2 && i <= n; i++)
        offsets[i] = (int64_t)(sum += take_byte(&in) % 24) - (choice >> 7 ? take_byte(&in) % 32 : 0);
    if (kind == 2) {
        size_t left = in.size;
        uint8_t *buf = rest(&in);
        any(buf, left, offsets, n, width, scale);
        free(buf);
    } else {
        uint8_t *numbers = memory(n * width);
        for (size_t i = 0; i < n * width; i++) /* mostly small numbers of either sign */
            numbers[i] = kind == 1 && i % width > choice % 8u ? (uint8_t)-(numbers[i - i % width] & 1) : take_byte(&in);
        if (kind == 0)
            clear(numbers, n, present, width);
        else
            round_trip(numbers, n, choice >> 7 ? present : NULL, width, scale);
        free(numbers);
    }
    free(offsets);
    free(present);
    return 0;
}
