/* Objects of the native frame and headers of safetensors files: any bytes are read or left to the general parser, and
 * what is written is read back the same. */
#include "target.h"

#include "header.h"
#include "objects.h"
#include "wire.h"

/* What an element takes, by its code. */
static const uint8_t sizes[256] = {[1] = 4, [2] = 8, [4] = 1, [9] = 8, [OBJECTS_BOOL] = 1, [19] = 2, [200] = 16};
static const uint8_t codes[] = {1, 2, 4, 9, OBJECTS_BOOL, 19, 200, 3};
static const uint8_t origin[] = {0xb2, 0x3f, 17, 0x0a, 9, 'f', 'r', 'a', 'm', 'e', 'w', 'o', 'r', 'k', 0x12, 4, 'a', 'b', 'c', 'd'};

static uint8_t *put(uint8_t *out, const void *data, size_t n)
{
    memcpy(out, data, n);
    return out + n;
}

static uint8_t *put_varint(uint8_t *out, uint64_t value)
{
    for (; value >= 0x80; value >>= 7)
        *out++ = (uint8_t)(value | 0x80);
    *out++ = (uint8_t)value;
    return out;
}

static uint8_t *put_field(uint8_t *out, uint8_t first, uint8_t second, uint64_t value)
{
    *out++ = first;
    *out++ = second;
    return put_varint(out, value);
}

/* Dimensions that are mostly small; their product goes to *count. */
static size_t take_dims(struct input *in, uint64_t *dims, uint64_t *count)
{
    uint8_t choice = take_byte(in);
    size_t rank = choice >= 0xf0 ? (size_t)(OBJECTS_MAX_RANK + 2 - choice % 4) : choice % 5;
    *count = 1;
    for (size_t i = 0; i < rank; i++) {
        uint8_t size = take_byte(in);
        dims[i] = size >= 0xfc ? take_number(in, 8) : rank > 5 ? size % 2 + 1 : size % 16;
        *count *= dims[i];
    }
    return rank;
}

/* The fields dtype and tensor_shape. */
static uint8_t *put_head(uint8_t *out, uint64_t code, const uint64_t *dims, size_t rank, int zeros)
{
    uint8_t shape[16 * (OBJECTS_MAX_RANK + 2)], *at = shape, number[12];
    for (size_t i = 0; i < rank; i++) {
        size_t size = (size_t)(put_varint(number, dims[i]) - number);
        int told = dims[i] || zeros;
        *at++ = 0x12;
        *at++ = (uint8_t)(told ? size + 1 : 0);
        if (told) {
            *at++ = 0x08;
            at = put(at, number, size);
        }
    }
    *out++ = 0x08;
    out = put_varint(out, code);
    *out++ = 0x12;
    out = put_varint(out, (uint64_t)(at - shape));
    return put(out, shape, (size_t)(at - shape));
}

/* ---- any record --------------------------------------------------------------- */

/* A payload with its fields in their order, of which some are wrong; the checksum of the header fits what is there. */
static uint8_t *grow_record(struct input *in, uint8_t *out)
{
    uint64_t dims[OBJECTS_MAX_RANK + 2], count, code = codes[take_byte(in) % sizeof codes];
    uint8_t fields = take_byte(in), more = take_byte(in), part = take_byte(in) % 12, *start = out, digits[4];
    size_t rank = take_dims(in, dims, &count);
    out = put_head(out, code, dims, rank, more & 1);
    if (fields & 1) { /* a name: the number of the part, or some letters */
        int named = more & 2;
        size_t length = named ? take_byte(in) % 8 : (size_t)snprintf((char *)digits, sizeof digits, "%u", part);
        out = put_field(out, 0xc2, 0x3e, length);
        for (size_t i = 0; i < length; i++)
            *out++ = named ? take_byte(in) : digits[i];
    }
    if (fields & 2) { /* a step */
        static const uint8_t tags[] = {0x28, 0x18, 0x20, 0x28};
        uint8_t tag = tags[more >> 2 & 3], number = tag == 0x28 ? 1 : part;
        out = put_field(out, 0xd2, 0x3e, 2);
        *out++ = tag;
        *out++ = more & 16 ? take_byte(in) & 0x7f : number;
    }
    if (fields & 4) {
        out = put_field(out, 0xd8, 0x3e, part);
        out = put_field(out, 0xe0, 0x3e, more & 32 ? take_byte(in) : part + 1u);
    }
    if (fields & 8)
        out = put_field(out, 0xe8, 0x3e, take_number(in, more & 64 ? 8 : 1));
    if (fields & 16)
        out = put(out, origin, sizeof origin);
    for (int i = 0; i < 2; i++) /* the directory, and padding */
        if (fields & 32 << i) {
            size_t length = take_byte(in) % 16;
            out = put_field(out, i ? 0x92 : 0xe2, i ? 0x3f : 0x5d, length);
            while (length--)
                *out++ = take_byte(in);
        }
    uint8_t wrong = take_byte(in);
    if (wrong)
        start[take_byte(in) % (size_t)(out - start)] ^= wrong;
    if (fields & 128) {
        uint32_t crc = wire_mask(wire_crc32c(0, start, (size_t)(out - start)));
        *out++ = 0x9d;
        *out++ = 0x3f;
        wire_put_u32(out, crc);
        out += 4;
    }
    uint64_t content = count * sizes[code];
    if (content || more & 128) {
        size_t length = content < 512 ? (size_t)content : 512, tail = 0;
        *out++ = 0x22;
        out = put_varint(out, content);
        if (content && more & 128) { /* a length that is longer than it need be */
            out[-1] |= 0x80;
            *out++ = 0;
        }
        if (wrong & 1 && length)
            tail = take_byte(in) % 3;
        for (length -= tail < length ? tail : 0; length; length--)
            *out++ = take_byte(in);
    }
    return out;
}

static void check_record(const struct objects_record *record, size_t start, size_t end)
{
    uint64_t count = 1;
    PROMISE(record->code < 256 && sizes[record->code] && record->rank <= OBJECTS_MAX_RANK);
    PROMISE(record->part < record->parts);
    PROMISE(record->container >= OBJECTS_ALONE && record->container <= OBJECTS_TUPLE);
    PROMISE(record->container == OBJECTS_ALONE || record->named);
    PROMISE(record->name <= record->name_end && (!record->named || (record->name > start && record->name_end <= end)));
    PROMISE(record->directory <= record->directory_end && record->directory_end <= end);
    PROMISE(record->content > start && record->content <= end && record->content_size == end - record->content);
    for (uint64_t i = 0; i < record->rank; i++) {
        PROMISE(record->dims[i] <= INT64_MAX);
        count *= record->dims[i];
    }
    PROMISE(count * sizes[record->code] == record->content_size);
}

static void read_any(struct input *in, int recipe)
{
    struct objects_record record;
    uint8_t room[8192], before = take_byte(in) % 8;
    if (recipe) {
        memset(room, 0x5a, before);
        uint8_t *end = grow_record(in, room + before);
        PROMISE(end <= room + sizeof room);
        in->data = room;
        in->size = (size_t)(end - room);
    }
    size_t n = in->size, start = before < n ? before : n, bools = 1;
    uint8_t *buf = rest(in);
    if (objects_parse(buf, start, n, sizes, &record)) {
        check_record(&record, start, n);
        for (size_t i = record.content; i < n; i++)
            bools &= buf[i] <= 1;
        PROMISE(objects_are_bools(buf + record.content, record.content_size) == (int)bools);
    }
    free(buf);
}

/* ---- records that are written --------------------------------------------------- */

#define MOST_PARTS 4

/* Heads of the usual form are built; others are taken as they come. */
struct made {
    uint8_t heads[MOST_PARTS][16 * (OBJECTS_MAX_RANK + 4)], names[MOST_PARTS][16];
    uint64_t codes[MOST_PARTS], dims[MOST_PARTS][OBJECTS_MAX_RANK + 2];
    size_t ranks[MOST_PARTS];
    struct objects_part parts[MOST_PARTS];
    int usual;
};

static void make_part(struct input *in, struct made *made, size_t i)
{
    struct objects_part *part = &made->parts[i];
    uint64_t count;
    uint8_t how = take_byte(in);
    made->codes[i] = codes[how % 7];
    made->ranks[i] = take_dims(in, made->dims[i], &count);
    uint8_t *end = put_head(made->heads[i], made->codes[i], made->dims[i], made->ranks[i], how & 8);
    part->head_size = (size_t)(end - made->heads[i]);
    if (how >= 0xe0) {
        made->usual = 0;
        made->heads[i][take_byte(in) % part->head_size] ^= take_byte(in);
    }
    size_t size = (size_t)count * sizes[made->codes[i]];
    if (made->ranks[i] > OBJECTS_MAX_RANK || size > 70000) {
        made->usual = 0;
        size %= 5000;
    }
    for (size_t axis = 0; axis < made->ranks[i]; axis++)
        made->usual &= made->dims[i][axis] <= 70000;
    uint8_t *head = memory(part->head_size), *data = memory(size);
    memcpy(head, made->heads[i], part->head_size);
    for (size_t k = 0; k < size; k++)
        data[k] = (uint8_t)(k * (how | 1u) >> 3);
    part->head = head;
    part->data = data;
    part->data_size = size;
    part->name = made->names[i];
    part->name_size = take_byte(in) % sizeof made->names[i];
    for (size_t k = 0; k < part->name_size; k++)
        made->names[i][k] = take_byte(in);
    if (how & 16) {
        part->origin = origin;
        part->origin_size = sizeof origin;
    }
}

/* One record is what its part was. */
static void check_written(const uint8_t *buf, const int64_t *place, const struct objects_whole *whole, const struct made *made,
                          size_t i, struct objects_record *record)
{
    const struct objects_part *part = &whole->parts[i];
    size_t start = (size_t)place[0], end = start + (size_t)place[1];
    char digits[24];
    PROMISE((size_t)place[1] == part->payload_size && part->header_size == part->payload_size - part->data_size);
    PROMISE(objects_parse(buf, start, end, sizes, record));
    check_record(record, start, end);
    PROMISE(record->code == made->codes[i] && part->code == made->codes[i] && record->rank == made->ranks[i]);
    PROMISE(!record->rank || !memcmp(record->dims, made->dims[i], record->rank * 8));
    PROMISE(record->part == i && record->parts == whole->count && record->item == whole->item);
    PROMISE(record->container == whole->container && record->named == (whole->container != OBJECTS_ALONE));
    size_t length = record->name_end - record->name;
    if (whole->container == OBJECTS_DICT)
        PROMISE(length == part->name_size && (!length || !memcmp(buf + record->name, part->name, length)));
    else if (whole->container != OBJECTS_ALONE)
        PROMISE(length == (size_t)snprintf(digits, sizeof digits, "%zu", i) && !memcmp(buf + record->name, digits, length));
    PROMISE(record->content_size == part->data_size);
    PROMISE(!part->data_size || !memcmp(buf + record->content, part->data, part->data_size));
    PROMISE(part->data_size < 4096 || (whole->at + record->content) % 64 == 0);
    PROMISE((record->directory_end != 0) == (!i && whole->count > 1 && !whole->item));
}

static void round_trip(struct input *in)
{
    struct made *made = memory(sizeof *made);
    struct objects_record first, record;
    int64_t places[2 * MOST_PARTS];
    uint8_t choice = take_byte(in);
    struct objects_whole whole = {made->parts, 1, choice & 3, 0, take_number(in, 2)};
    memset(made, 0, sizeof *made);
    made->usual = 1;
    if (whole.container != OBJECTS_ALONE)
        whole.count = 1 + (choice >> 2 & 3);
    if (choice & 16)
        whole.item = take_number(in, choice & 32 ? 8 : 1);
    for (size_t i = 0; i < whole.count; i++)
        make_part(in, made, i);
    size_t size = objects_measure(&whole), next = 0, at = take_number(in, 2);
    uint8_t wrong = take_byte(in);
    PROMISE(size || !made->usual);
    uint8_t *buf = memory(size);
    if (size) {
        int status;
        objects_write(buf, &whole);
        PROMISE(wire_scan(buf, size, &next, WIRE_ALL, places, MOST_PARTS, &status) == whole.count && next == size);
        for (size_t i = 0; i < whole.count && made->usual; i++)
            check_written(buf, places + 2 * i, &whole, made, i, i ? &record : &first);
        if (made->usual && first.directory_end) {
            size_t start = first.directory, end = first.directory_end, spot = start + at % (end - start);
            PROMISE(objects_listed(buf, size, start, end, 0, whole.count, sizes));
            PROMISE(!objects_listed(buf, size, start, end, 0, whole.count - 1, sizes));
            PROMISE(!objects_listed(buf, size, start, end - 1, 0, whole.count, sizes));
            buf[spot] ^= wrong;
            PROMISE(objects_listed(buf, size, start, end, 0, whole.count, sizes) == !wrong);
            buf[spot] ^= wrong;
            buf[at % size] ^= wrong; /* a mapped file can change between one look and the next */
            objects_listed(buf, size, start, end, 0, whole.count, sizes);
            objects_listed(buf, size, start, end, at % size, whole.count, sizes);
        }
    }
    free(buf);
    for (size_t i = 0; i < whole.count; i++) {
        free((void *)(uintptr_t)made->parts[i].head);
        free((void *)(uintptr_t)made->parts[i].data);
    }
    free(made);
}

/* ---- headers of safetensors files ------------------------------------------------ */

static const char dtype_names[][16] = {"F32", "BOOL", "F4", "A_NAME_OF_15_B_", "NONE", "F64"};
static const uint8_t dtype_bits[] = {32, 8, 4, 16, 0, 64};
#define DTYPES (sizeof dtype_bits)

/* A header whose offsets fit its shapes, but for what the input makes wrong; returns the size of the data. */
static uint64_t grow_header(struct input *in, char *out, size_t room, size_t *n)
{
    uint64_t size = 0;
    size_t at = 0, entries = take_byte(in) % 5;
    at += (size_t)snprintf(out, room, "{");
    for (size_t i = 0; i < entries; i++) {
        uint64_t dims[OBJECTS_MAX_RANK + 2], count;
        uint8_t how = take_byte(in), letter = take_byte(in);
        size_t dtype = how % DTYPES, rank;
        if (how >= 0xe0) {
            at += (size_t)snprintf(out + at, room - at, "%s\"__metadata__\":{", i ? "," : "");
            for (int k = 0; k < (how & 3); k++)
                at += (size_t)snprintf(out + at, room - at, "%s\"%c\":\"%c\"", k ? "," : "", letter, take_byte(in));
            at += (size_t)snprintf(out + at, room - at, "}");
            continue;
        }
        rank = take_dims(in, dims, &count);
        at += (size_t)snprintf(out + at, room - at, "%s\"%c%c\":{\"dtype\":\"%s\",\"shape\":[", i ? "," : "", letter,
                               take_byte(in), dtype_names[dtype]);
        for (size_t axis = 0; axis < rank; axis++)
            at += (size_t)snprintf(out + at, room - at, "%s%llu", axis ? "," : "", (unsigned long long)dims[axis]);
        uint64_t begin = size;
        size += count * dtype_bits[dtype] / 8;
        at += (size_t)snprintf(out + at, room - at, "],\"data_offsets\":[%llu,%llu]}", (unsigned long long)begin,
                               (unsigned long long)size);
    }
    at += (size_t)snprintf(out + at, room - at, "}%*s", take_byte(in) % 8, "");
    PROMISE(at < room);
    uint8_t wrong = take_byte(in);
    if (wrong)
        out[take_number(in, 2) % at] ^= (char)wrong;
    *n = at;
    return size;
}

static void check_header(const uint8_t *buf, size_t n, uint64_t size, const struct header_dtypes *dtypes,
                         const struct header_found *counted)
{
    struct header_found found;
    int64_t *table = memory(counted->entries * HEADER_COLUMNS * 8), *dims = memory(counted->dims * 8), at = 0;
    size_t used = 0;
    PROMISE(header_read(buf, n, size, dtypes, table, dims, &found));
    PROMISE(!memcmp(&found, counted, sizeof found));
    for (size_t i = 0; i < found.entries; i++) {
        const int64_t *entry = table + HEADER_COLUMNS * i;
        uint64_t bits;
        PROMISE(entry[HEADER_NAME] > 0 && entry[HEADER_NAME] <= entry[HEADER_NAME_END] && (uint64_t)entry[HEADER_NAME_END] < n);
        PROMISE(buf[entry[HEADER_NAME] - 1] == '"' && buf[entry[HEADER_NAME_END]] == '"');
        PROMISE(entry[HEADER_DTYPE] >= 0 && (uint64_t)entry[HEADER_DTYPE] < DTYPES && dtype_bits[entry[HEADER_DTYPE]]);
        PROMISE(entry[HEADER_BEGIN] == at && entry[HEADER_END] >= at);
        PROMISE(entry[HEADER_RANK] >= 0 && entry[HEADER_RANK] <= HEADER_MAX_RANK);
        bits = dtype_bits[entry[HEADER_DTYPE]];
        for (int64_t axis = 0; axis < entry[HEADER_RANK]; axis++)
            bits *= (uint64_t)dims[used++];
        PROMISE(bits == 8 * (uint64_t)(entry[HEADER_END] - at));
        at = entry[HEADER_END];
    }
    PROMISE((uint64_t)at == size && used == found.dims);
    PROMISE(!found.metadata_end || (buf[found.metadata] == '{' && buf[found.metadata_end - 1] == '}'));
    free(dims);
    free(table);
}

static void read_header(struct input *in, int recipe)
{
    static const struct header_dtypes dtypes = {dtype_names, dtype_bits, DTYPES};
    struct header_found counted;
    char room[16384];
    uint64_t size = take_number(in, 2);
    if (recipe) {
        size_t n;
        size = grow_header(in, room, sizeof room, &n);
        in->data = (const uint8_t *)room;
        in->size = n;
    }
    size_t n = in->size;
    uint8_t *buf = rest(in);
    if (header_read(buf, n, size, &dtypes, NULL, NULL, &counted))
        check_header(buf, n, size, &dtypes, &counted);
    free(buf);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input in = {data, size};
    uint8_t choice = take_byte(&in) % 5;
    if (choice < 2)
        read_any(&in, choice);
    else if (choice < 4)
        read_header(&in, choice - 2);
    else
        round_trip(&in);
    return 0;
}
