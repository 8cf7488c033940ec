#include "header.h"

#include <string.h>

/* Where the reading stands. */
struct text {
    const uint8_t *buf;
    size_t at, n;
};

static int is(struct text *text, const char *word)
{
    size_t length = strlen(word);
    if (text->n - text->at < length || memcmp(text->buf + text->at, word, length))
        return 0;
    text->at += length;
    return 1;
}

/* The rest of a string, after its quotation mark: no escapes, no control characters. */
static int get_string(struct text *text, size_t *start, size_t *end)
{
    *start = text->at;
    while (text->at < text->n && text->buf[text->at] != '"')
        if (text->buf[text->at] < 0x20 || text->buf[text->at++] == '\\')
            return 0;
    *end = text->at;
    return is(text, "\"");
}

/* A whole number of at most 18 digits, without zeros in front. */
static int get_number(struct text *text, uint64_t *number)
{
    size_t first = text->at;
    *number = 0;
    while (text->at < text->n && text->buf[text->at] >= '0' && text->buf[text->at] <= '9')
        if (text->at - first == 18)
            return 0;
        else
            *number = 10 * *number + (uint64_t)(text->buf[text->at++] - '0');
    return text->at > first && (text->at - first == 1 || text->buf[first] != '0');
}

static int get_dtype(struct text *text, const struct header_dtypes *dtypes, size_t *dtype)
{
    size_t start, end;
    if (!get_string(text, &start, &end) || end - start > 15)
        return 0;
    for (size_t tries = 0; tries < dtypes->count; tries++, *dtype = (*dtype + 1) % dtypes->count) /* most are as before */
        if (strlen(dtypes->names[*dtype]) == end - start && !memcmp(dtypes->names[*dtype], text->buf + start, end - start))
            return dtypes->bits[*dtype] > 0;
    return 0;
}

/* The dimensions; *bits gets what the shape takes, which must fit into 63 bits whatever zeros there are. */
static int get_dims(struct text *text, uint64_t *bits, int64_t *dims, size_t *count)
{
    uint64_t size, total = *bits;
    size_t rank = 0;
    int empty = 0;
    if (!is(text, "["))
        return 0;
    if (is(text, "]"))
        return 1;
    do {
        if (rank++ == HEADER_MAX_RANK || !get_number(text, &size))
            return 0;
        empty |= size == 0;
        if (size && total > INT64_MAX / size)
            return 0;
        total *= size ? size : 1;
        if (dims)
            dims[*count] = (int64_t)size;
        ++*count;
    } while (is(text, ","));
    *bits = empty ? 0 : total;
    return is(text, "]");
}

/* Text to text, each of them without escapes: whoever reads it looks at it again. */
static int get_metadata(struct text *text, struct header_found *found)
{
    size_t start, end;
    if (found->metadata_end)
        return 0;
    found->metadata = text->at;
    if (!is(text, "{"))
        return 0;
    if (!is(text, "}")) {
        do
            if (!is(text, "\"") || !get_string(text, &start, &end) || !is(text, ":\"") || !get_string(text, &start, &end))
                return 0;
        while (is(text, ","));
        if (!is(text, "}"))
            return 0;
    }
    found->metadata_end = text->at;
    return 1;
}

int header_read(const uint8_t *buf, size_t n, uint64_t size, const struct header_dtypes *dtypes, int64_t *table,
                int64_t *dims, struct header_found *found)
{
    static const char metadata[] = "__metadata__";
    struct text text = {buf, 0, n};
    uint64_t at = 0, begin, end;
    size_t dtype = 0;
    memset(found, 0, sizeof *found);
    if (!is(&text, "{\""))
        return 0;
    do {
        size_t name, name_end, before = found->dims;
        if (!get_string(&text, &name, &name_end) || !is(&text, ":"))
            return 0;
        if (name_end - name == sizeof metadata - 1 && !memcmp(buf + name, metadata, sizeof metadata - 1)) {
            if (!get_metadata(&text, found))
                return 0;
            continue;
        }
        if (!is(&text, "{\"dtype\":\"") || !get_dtype(&text, dtypes, &dtype) || !is(&text, ",\"shape\":"))
            return 0;
        uint64_t bits = dtypes->bits[dtype];
        if (!get_dims(&text, &bits, dims, &found->dims) || !is(&text, ",\"data_offsets\":[") || !get_number(&text, &begin)
            || !is(&text, ",") || !get_number(&text, &end) || !is(&text, "]}"))
            return 0;
        if (begin != at || end < begin || end > size || bits % 8 || end - begin != bits / 8)
            return 0;
        at = end;
        if (table) {
            int64_t *entry = table + HEADER_COLUMNS * found->entries;
            entry[HEADER_NAME] = (int64_t)name;
            entry[HEADER_NAME_END] = (int64_t)name_end;
            entry[HEADER_DTYPE] = (int64_t)dtype;
            entry[HEADER_BEGIN] = (int64_t)begin;
            entry[HEADER_END] = (int64_t)end;
            entry[HEADER_RANK] = (int64_t)(found->dims - before);
        }
        found->entries++;
    } while (is(&text, ",\""));
    if (!is(&text, "}") || at != size)
        return 0;
    while (text.at < n)
        if (buf[text.at++] != ' ')
            return 0;
    return 1;
}
