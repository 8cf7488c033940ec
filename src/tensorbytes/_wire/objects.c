#include "objects.h"

#include <string.h>

#include "messages.h"
#include "wire.h"

#define ALIGNMENT 64
#define ALIGN_FROM 4096
/* Of the columns of a directory those that the usual form has, in their order. */
enum { NAMES = 1, LENGTHS, DTYPES, KINDS, RANKS, DIMS, NBYTES, SIZES32 };

static int get_shape(const uint8_t *buf, size_t *at, size_t end, uint64_t *rank, uint64_t *dims)
{
    size_t shape_end, dim_end;
    if (!get_tag(buf, at, end, 0x12) || !get_length(buf, at, end, &shape_end))
        return 0;
    *rank = 0;
    while (*at < shape_end) {
        uint64_t size = 0;
        if (*rank == OBJECTS_MAX_RANK || !get_tag(buf, at, shape_end, 0x12) || !get_length(buf, at, shape_end, &dim_end))
            return 0;
        if (*at < dim_end && (!get_tag(buf, at, dim_end, 0x08) || !get_varint(buf, at, dim_end, &size)))
            return 0;
        if (*at != dim_end || size > INT64_MAX)
            return 0;
        dims[(*rank)++] = size;
    }
    return 1;
}

/* The bytes of a shape; 0 in *fits where they can't be counted, whatever zeros there are. */
static uint64_t shape_bytes(const struct objects_record *record, uint64_t itemsize, int *fits)
{
    uint64_t total = itemsize;
    int empty = 0;
    *fits = 1;
    for (uint64_t i = 0; i < record->rank; i++) {
        uint64_t size = record->dims[i];
        empty |= size == 0;
        if (size && total > INT64_MAX / size) {
            *fits = 0;
            return 0;
        }
        total *= size ? size : 1;
    }
    return empty ? 0 : total;
}

/* Whether [at, end) is a number in decimal digits, as Python writes it. */
static int is_decimal(const uint8_t *buf, size_t at, size_t end, uint64_t number)
{
    do {
        if (end == at || buf[--end] != '0' + number % 10)
            return 0;
        number /= 10;
    } while (number);
    return at == end;
}

/* The place in a structure: one step, which the name repeats, or none. */
static int get_place(const uint8_t *buf, size_t *at, size_t end, struct objects_record *out)
{
    size_t step_end;
    uint64_t number;
    out->container = OBJECTS_ALONE;
    if (!get_tag2(buf, at, end, 0xd2, 0x3e))
        return 1;
    if (!get_length(buf, at, end, &step_end) || *at == step_end || !out->named)
        return 0;
    uint8_t tag = buf[(*at)++];
    if (!get_varint(buf, at, step_end, &number) || *at != step_end)
        return 0;
    if (tag == 0x28)
        out->container = number == 1 ? OBJECTS_DICT : -1;
    else if (tag == 0x18 || tag == 0x20)
        out->container = number != out->part || !is_decimal(buf, out->name, out->name_end, number) ? -1
            : tag == 0x18                                                                          ? OBJECTS_LIST
                                                                                                   : OBJECTS_TUPLE;
    else
        return 0;
    return out->container > 0;
}

/* The map of origins, of one entry at most: the framework. */
static int get_origin(const uint8_t *buf, size_t *at, size_t end)
{
    static const uint8_t key[] = {0x0a, 9, 'f', 'r', 'a', 'm', 'e', 'w', 'o', 'r', 'k', 0x12};
    size_t entry_end, text_end;
    if (!get_tag2(buf, at, end, 0xb2, 0x3f))
        return 1;
    if (!get_length(buf, at, end, &entry_end) || entry_end - *at < sizeof key || memcmp(buf + *at, key, sizeof key))
        return 0;
    *at += sizeof key;
    if (!get_length(buf, at, entry_end, &text_end) || text_end != entry_end)
        return 0;
    for (; *at < entry_end; ++*at)
        if (buf[*at] >= 0x80)
            return 0;
    return 1;
}

int objects_parse(const uint8_t *buf, size_t start, size_t end, const uint8_t sizes[256], struct objects_record *out)
{
    size_t at = start, stop;
    int fits, ascii = 1;
    if (!get_tag(buf, &at, end, 0x08) || !get_varint(buf, &at, end, &out->code) || out->code > 255
        || !sizes[out->code] || !get_shape(buf, &at, end, &out->rank, out->dims))
        return 0;
    out->named = get_tag2(buf, &at, end, 0xc2, 0x3e);
    out->name = out->name_end = 0;
    if (out->named) {
        if (!get_length(buf, &at, end, &stop))
            return 0;
        out->name = at;
        out->name_end = stop;
        for (; at < stop; at++)
            ascii &= buf[at] < 0x80;
    }
    /* Steps of lists count as parts do, which stand after them. */
    size_t steps = at;
    if (get_tag2(buf, &at, end, 0xd2, 0x3e)) {
        if (!get_length(buf, &at, end, &stop))
            return 0;
        at = stop;
    }
    out->part = out->item = 0;
    out->parts = 1;
    if (get_tag2(buf, &at, end, 0xd8, 0x3e)
        && (!get_varint(buf, &at, end, &out->part) || !get_tag2(buf, &at, end, 0xe0, 0x3e)
            || !get_varint(buf, &at, end, &out->parts)))
        return 0;
    if (out->part >= out->parts || !get_place(buf, &steps, end, out) || (out->container == OBJECTS_ALONE && !ascii))
        return 0; /* nobody will look at the name of a tensor alone, to see whether it is text */
    if (get_tag2(buf, &at, end, 0xe8, 0x3e) && !get_varint(buf, &at, end, &out->item))
        return 0;
    if (!get_origin(buf, &at, end))
        return 0;
    out->directory = out->directory_end = 0;
    if (get_tag2(buf, &at, end, 0xe2, 0x5d)) {
        if (!get_length(buf, &at, end, &stop))
            return 0;
        out->directory = at;
        out->directory_end = at = stop;
    }
    if (get_tag2(buf, &at, end, 0x92, 0x3f)) {
        if (!get_length(buf, &at, end, &stop))
            return 0;
        at = stop;
    }
    size_t header_end = at;
    int checked = get_tag2(buf, &at, end, 0x9d, 0x3f);
    if (checked) {
        if (end - at < 4 || wire_get_u32(buf + at) != wire_mask(wire_crc32c(0, buf + start, header_end - start)))
            return 0;
        at += 4;
    }
    uint64_t want = shape_bytes(out, sizes[out->code], &fits);
    if (!fits || (want == 0 && (at != end || checked)))
        return 0;
    if (want) {
        size_t tag = at;
        if (!get_tag(buf, &at, end, 0x22) || !get_length(buf, &at, end, &stop) || stop != end || want != end - at)
            return 0;
        /* After a header's checksum the length must have its one shortest form. */
        uint64_t left = want;
        for (tag += 2; left >= 0x80; left >>= 7)
            tag++;
        if (checked && tag != at)
            return 0;
    }
    out->content = at;
    out->content_size = end - at;
    return 1;
}

int objects_are_bools(const uint8_t *data, size_t n)
{
    uint8_t all = 0;
    for (size_t i = 0; i < n; i++)
        all |= data[i];
    return all <= 1;
}

/* ---- directories ------------------------------------------------------------ */

/* One column that is read on, or not at all once something in it differs. */
struct cursor {
    size_t at, end;
};

static int same_varint(const uint8_t *buf, struct cursor *column, uint64_t value)
{
    for (; value >= 0x80; value >>= 7)
        if (column->at == column->end || buf[column->at++] != (uint8_t)(value | 0x80))
            return 0;
    return column->at < column->end && buf[column->at++] == value;
}

int objects_listed(const uint8_t *buf, size_t n, size_t start, size_t end, size_t first, size_t count,
                   const uint8_t sizes[256])
{
    struct cursor columns[SIZES32 + 1] = {{0, 0}};
    struct objects_record record;
    size_t at = start;
    for (int number = NAMES; number <= SIZES32; number++) {
        if (!get_tag(buf, &at, end, (uint8_t)(number << 3 | 2)))
            continue;
        if (!get_length(buf, &at, end, &columns[number].end))
            return 0;
        columns[number].at = at;
        at = columns[number].end;
    }
    if (at != end || columns[NBYTES].end)
        return 0;
    for (size_t i = 0; i < count; i++) {
        if (n - first < 16)
            return 0;
        uint64_t size = (uint64_t)wire_get_u32(buf + first) | (uint64_t)wire_get_u32(buf + first + 4) << 32;
        if (size > n - first - 16 || !objects_parse(buf, first + 12, first + 12 + (size_t)size, sizes, &record))
            return 0;
        size_t length = record.name_end - record.name;
        if (length > columns[NAMES].end - columns[NAMES].at
            || (length && memcmp(buf + columns[NAMES].at, buf + record.name, length)))
            return 0;
        columns[NAMES].at += length;
        if (!same_varint(buf, &columns[LENGTHS], length) || !same_varint(buf, &columns[DTYPES], record.code)
            || !same_varint(buf, &columns[KINDS], 0) || !same_varint(buf, &columns[RANKS], record.rank))
            return 0;
        for (uint64_t axis = 0; axis < record.rank; axis++)
            if (!same_varint(buf, &columns[DIMS], record.dims[axis] << 1))
                return 0;
        if (i) {
            struct cursor *column = &columns[SIZES32];
            if (column->end - column->at < 4 || size > UINT32_MAX || wire_get_u32(buf + column->at) != size)
                return 0;
            column->at += 4;
        }
        first += 16 + (size_t)size;
    }
    for (int number = NAMES; number <= SIZES32; number++)
        if (columns[number].at != columns[number].end)
            return 0;
    return 1;
}

/* ---- writing ---------------------------------------------------------------- */

/* Where bytes go; with no memory, they are counted. */
struct sink {
    uint8_t *out;
    size_t n;
};

static void put(struct sink *sink, const void *data, size_t n)
{
    if (sink->out && n)
        memcpy(sink->out + sink->n, data, n);
    sink->n += n;
}

static void put_byte(struct sink *sink, uint8_t byte)
{
    if (sink->out)
        sink->out[sink->n] = byte;
    sink->n++;
}

static void put_varint(struct sink *sink, uint64_t value)
{
    for (; value >= 0x80; value >>= 7)
        put_byte(sink, (uint8_t)(value | 0x80));
    put_byte(sink, (uint8_t)value);
}

static void put_tag(struct sink *sink, uint8_t first, uint8_t second)
{
    put_byte(sink, first);
    put_byte(sink, second);
}

static void put_number(struct sink *sink, uint8_t first, uint8_t second, uint64_t value)
{
    put_tag(sink, first, second);
    put_varint(sink, value);
}

static size_t varint_length(uint64_t value)
{
    struct sink sink = {NULL, 0};
    put_varint(&sink, value);
    return sink.n;
}

/* What the head of a part says; it was found to be of the usual form. */
static void read_head(const struct objects_part *part, uint64_t *code, uint64_t *rank, uint64_t *dims)
{
    size_t at = 1;
    *rank = 0;
    if (get_varint(part->head, &at, part->head_size, code))
        (void)get_shape(part->head, &at, part->head_size, rank, dims);
}

/* The number of a part in digits; the name that an item of a list or tuple has. */
static size_t digits_of(uint64_t number, uint8_t out[20])
{
    size_t n = 0;
    uint8_t backwards[20];
    do
        backwards[n++] = (uint8_t)('0' + number % 10);
    while (number /= 10);
    for (size_t i = 0; i < n; i++)
        out[i] = backwards[n - 1 - i];
    return n;
}

static size_t name_of(const struct objects_whole *whole, size_t number, uint8_t digits[20], const uint8_t **name)
{
    if (whole->container == OBJECTS_DICT) {
        *name = whole->parts[number].name;
        return whole->parts[number].name_size;
    }
    *name = digits;
    return digits_of(number, digits);
}

/* One column, without its tag and length. */
static void put_values(struct sink *sink, const struct objects_whole *whole, int number)
{
    uint64_t code = 0, rank, dims[OBJECTS_MAX_RANK];
    uint8_t digits[20];
    const uint8_t *name;
    for (size_t i = 0; i < whole->count; i++) {
        const struct objects_part *part = &whole->parts[i];
        if (number == NAMES || number == LENGTHS) {
            size_t length = name_of(whole, i, digits, &name);
            if (number == NAMES)
                put(sink, name, length);
            else
                put_varint(sink, length);
        } else if (number == KINDS) {
            put_byte(sink, 0);
        } else if (number == SIZES32) {
            for (int byte = 0; i && byte < 4; byte++)
                put_byte(sink, (uint8_t)(part->payload_size >> 8 * byte));
        } else {
            read_head(part, &code, &rank, dims);
            if (number == DTYPES)
                put_varint(sink, code);
            else if (number == RANKS)
                put_varint(sink, rank);
            else
                for (uint64_t axis = 0; axis < rank; axis++)
                    put_varint(sink, dims[axis] << 1);
        }
    }
}

static void put_directory(struct sink *sink, const struct objects_whole *whole)
{
    for (int number = NAMES; number <= SIZES32; number++) {
        struct sink counted = {NULL, 0};
        if (number == NBYTES)
            continue;
        put_values(&counted, whole, number);
        if (!counted.n && number != NAMES)
            continue;
        put_byte(sink, (uint8_t)(number << 3 | 2));
        put_varint(sink, counted.n);
        put_values(sink, whole, number);
    }
}

/* All of a record's payload but the content; `at` is where it stands in the file. */
static void put_header(struct sink *sink, const struct objects_whole *whole, size_t number, uint64_t at)
{
    const struct objects_part *part = &whole->parts[number];
    uint8_t digits[20];
    const uint8_t *name;
    put(sink, part->head, part->head_size);
    if (whole->container != OBJECTS_ALONE) {
        size_t length = name_of(whole, number, digits, &name);
        put_number(sink, 0xc2, 0x3e, length);
        put(sink, name, length);
        int named = whole->container == OBJECTS_DICT;
        put_number(sink, 0xd2, 0x3e, 1 + (named ? 1 : varint_length(number)));
        put_byte(sink, named ? 0x28 : whole->container == OBJECTS_LIST ? 0x18 : 0x20);
        put_varint(sink, named ? 1 : number);
    }
    if (whole->count != 1) {
        put_number(sink, 0xd8, 0x3e, number);
        put_number(sink, 0xe0, 0x3e, whole->count);
    }
    if (whole->item)
        put_number(sink, 0xe8, 0x3e, whole->item);
    put(sink, part->origin, part->origin_size);
    if (!number && whole->count != 1 && !whole->item) {
        struct sink counted = {NULL, 0};
        put_directory(&counted, whole);
        put_number(sink, 0xe2, 0x5d, counted.n);
        put_directory(sink, whole);
    }
    size_t tag = part->data_size ? 1 + varint_length(part->data_size) : 0;
    if (part->data_size >= ALIGN_FROM) {
        size_t need = (size_t)(ALIGNMENT - (at + sink->n + 6 + tag) % ALIGNMENT) % ALIGNMENT;
        if (need) {
            need += need < 3 ? ALIGNMENT : 0;
            put_number(sink, 0x92, 0x3f, need - 3);
            for (size_t i = 3; i < need; i++)
                put_byte(sink, 0);
        }
        uint32_t crc = sink->out ? wire_mask(wire_crc32c(0, sink->out, sink->n)) : 0;
        put_tag(sink, 0x9d, 0x3f);
        for (int byte = 0; byte < 4; byte++)
            put_byte(sink, (uint8_t)(crc >> 8 * byte));
    }
    if (tag) {
        put_byte(sink, 0x22);
        put_varint(sink, part->data_size);
    }
}

size_t objects_measure(struct objects_whole *whole)
{
    uint64_t at = whole->at, rank, dims[OBJECTS_MAX_RANK];
    for (size_t i = 0; i < whole->count; i++) {
        struct objects_part *part = &whole->parts[i];
        size_t head = 0;
        if (!get_tag(part->head, &head, part->head_size, 0x08)
            || !get_varint(part->head, &head, part->head_size, &part->code)
            || !get_shape(part->head, &head, part->head_size, &rank, dims) || head != part->head_size)
            return 0;
    }
    for (size_t i = 0; i < whole->count; i++) {
        struct sink counted = {NULL, 0};
        put_header(&counted, whole, i, at + 12);
        whole->parts[i].header_size = counted.n;
        whole->parts[i].payload_size = counted.n + whole->parts[i].data_size;
        at += 16 + whole->parts[i].payload_size;
    }
    return (size_t)(at - whole->at);
}

void objects_write(uint8_t *out, const struct objects_whole *whole)
{
    uint64_t at = whole->at;
    for (size_t i = 0; i < whole->count; i++) {
        const struct objects_part *part = &whole->parts[i];
        struct sink header = {out + 12, 0};
        wire_frame_header(out, part->payload_size);
        put_header(&header, whole, i, at + 12);
        uint32_t crc = wire_crc32c(0, out + 12, header.n);
        crc = wire_copy_crc32c(crc, out + 12 + header.n, part->data, part->data_size);
        wire_put_u32(out + 12 + part->payload_size, wire_mask(crc));
        out += 16 + part->payload_size;
        at += 16 + part->payload_size;
    }
}
