/* The floor of reading records: what plain C does with the same job, and nothing else.
 *
 * Each thread owns a stretch of the file, whose border it finds by looking for a header whose checksum is right. It reads
 * 1 MiB at a time into a buffer that stays in the cache, and walks, verifies and decodes it into columns in one pass.
 * Examples and SequenceExamples of the usual form are all that it knows: no schema is checked, nothing odd is read, no
 * error is told but a place. Columns grow in memory of malloc's, one set for each thread.
 *
 * limit.py builds it and looks at what it found.
 */

#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define BUFFER (1 << 20)
#define THREADS 16
#define POSITIONS 256

enum { BYTES = 1, FLOAT = 2, INT64 = 3 };

struct column {
    const uint8_t *key;
    size_t key_size;
    int kind, in_lists, fixed;      /* fixed: a record has the same number of values each time, so none is counted */
    uint8_t *values;                /* of all records, one after another */
    size_t size, room;              /* in bytes */
    int64_t *lengths;               /* of each list (of bytes: of each string) */
    size_t lists, lists_room;
    int64_t *steps;                 /* of each record's feature list */
    size_t records, steps_room;
};

struct stretch {
    int file;
    size_t begin, end;
    struct column *columns;
    size_t count; /* of columns */
    int expected[2][POSITIONS]; /* which column stood at each place of the last record: of features, of feature lists */
    int64_t records, failed_at;
};

/* ---- checksums ---------------------------------------------------------------- */

#if defined(__x86_64__)
#include <nmmintrin.h>
__attribute__((target("sse4.2"))) static uint32_t crc32c(const uint8_t *p, size_t size)
{
    uint64_t crc = 0xffffffff, word;
    for (; size >= 8; size -= 8, p += 8) {
        memcpy(&word, p, 8);
        crc = _mm_crc32_u64(crc, word);
    }
    while (size--)
        crc = _mm_crc32_u8((uint32_t)crc, *p++);
    return ~(uint32_t)crc;
}
static void prepare_crc(void) {}
#else
static uint32_t table[8][256];
static void prepare_crc(void)
{
    for (uint32_t n = 0; n < 256; n++) {
        uint32_t crc = n;
        for (int bit = 0; bit < 8; bit++)
            crc = crc & 1 ? crc >> 1 ^ 0x82f63b78 : crc >> 1;
        table[0][n] = crc;
    }
    for (int k = 1; k < 8; k++)
        for (int n = 0; n < 256; n++)
            table[k][n] = table[k - 1][n] >> 8 ^ table[0][table[k - 1][n] & 255];
}
static uint32_t crc32c(const uint8_t *p, size_t size)
{
    uint32_t crc = 0xffffffff;
    for (; size >= 8; size -= 8, p += 8) {
        crc ^= p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
        crc = table[7][crc & 255] ^ table[6][crc >> 8 & 255] ^ table[5][crc >> 16 & 255] ^ table[4][crc >> 24] ^
              table[3][p[4]] ^ table[2][p[5]] ^ table[1][p[6]] ^ table[0][p[7]];
    }
    while (size--)
        crc = crc >> 8 ^ table[0][(crc ^ *p++) & 255];
    return ~crc;
}
#endif

static int is_sum(const uint8_t *stored, const uint8_t *p, size_t size)
{
    uint32_t crc = crc32c(p, size), have;
    memcpy(&have, stored, 4);
    return have == (crc >> 15 | crc << 17) + 0xa282ead8u;
}

/* ---- columns ------------------------------------------------------------------ */

static int grow(void **memory, size_t *room, size_t needed, size_t width)
{
    if (needed <= *room)
        return 1;
    size_t wanted = *room ? *room * 2 : 4096;
    while (wanted < needed)
        wanted *= 2;
    void *more = realloc(*memory, wanted * width);
    if (!more)
        return 0;
    *memory = more;
    *room = wanted;
    return 1;
}

static int varint(const uint8_t **at, const uint8_t *end, uint64_t *out)
{
    uint64_t value = 0;
    for (int shift = 0; shift < 70 && *at < end; shift += 7) {
        uint8_t byte = *(*at)++;
        value |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80) {
            *out = value;
            return 1;
        }
    }
    return 0;
}

/* Enters the field that has this tag: its content is [*at, result). */
static const uint8_t *enter(const uint8_t **at, const uint8_t *end, uint8_t tag)
{
    uint64_t size;
    if (*at == end || *(*at)++ != tag || !varint(at, end, &size) || size > (uint64_t)(end - *at))
        return NULL;
    return *at + size;
}

static int count_list(struct column *c, int64_t length)
{
    if (c->fixed)
        return 1;
    if (!grow((void **)&c->lengths, &c->lists_room, c->lists + 1, 8))
        return 0;
    c->lengths[c->lists++] = length;
    return 1;
}

/* Adds what a Feature holds to its column. */
static int add_feature(struct column *c, const uint8_t *at, const uint8_t *end)
{
    const uint8_t *stop;
    if (at == end)
        return count_list(c, 0);
    if (!(stop = enter(&at, end, (uint8_t)(c->kind << 3 | 2))) || stop != end)
        return 0;
    if (c->kind == BYTES) {
        while (at < end) {
            if (!(stop = enter(&at, end, 0x0a)) || !grow((void **)&c->values, &c->room, c->size + (size_t)(stop - at), 1))
                return 0;
            memcpy(c->values + c->size, at, (size_t)(stop - at));
            c->size += (size_t)(stop - at);
            if (!count_list(c, stop - at))
                return 0;
            at = stop;
        }
        return 1;
    }
    if (at == end)
        return count_list(c, 0);
    if (!(stop = enter(&at, end, 0x0a)) || stop != end)
        return 0;
    if (c->kind == FLOAT) {
        size_t size = (size_t)(end - at);
        if (size % 4 || !grow((void **)&c->values, &c->room, c->size + size, 1))
            return 0;
        memcpy(c->values + c->size, at, size);
        c->size += size;
        return count_list(c, (int64_t)(size / 4));
    }
    if (!grow((void **)&c->values, &c->room, c->size + 8 * (size_t)(end - at), 1))
        return 0;
    uint8_t *out = c->values + c->size, *first = out;
    while (at < end) {
        uint64_t value = *at++;
        if (value >= 0x80) {
            at--;
            if (!varint(&at, end, &value))
                return 0;
        }
        memcpy(out, &value, 8);
        out += 8;
    }
    c->size += (size_t)(out - first);
    return count_list(c, (out - first) / 8);
}

static int add_steps(struct column *c, const uint8_t *at, const uint8_t *end)
{
    int64_t steps = 0;
    for (; at < end; steps++) {
        const uint8_t *stop = enter(&at, end, 0x0a);
        if (!stop || !add_feature(c, at, stop))
            return 0;
        at = stop;
    }
    if (!grow((void **)&c->steps, &c->steps_room, c->records + 1, 8))
        return 0;
    c->steps[c->records++] = steps;
    return 1;
}

static int has_key(const struct stretch *s, int number, int in_lists, const uint8_t *key, size_t size)
{
    const struct column *c = s->columns + number;
    return c->in_lists == in_lists && c->key_size == size && !memcmp(c->key, key, size);
}

static int add_entries(struct stretch *s, int in_lists, const uint8_t *at, const uint8_t *end)
{
    for (size_t position = 0; at < end; position++) {
        const uint8_t *stop = enter(&at, end, 0x0a), *key_end, *value_end;
        if (!stop || !(key_end = enter(&at, stop, 0x0a)))
            return 0;
        const uint8_t *key = at;
        at = key_end;
        if (!(value_end = enter(&at, stop, 0x12)) || value_end != stop)
            return 0;
        size_t size = (size_t)(key_end - key);
        int *place = &s->expected[in_lists][position % POSITIONS], number = *place;
        if (!has_key(s, number, in_lists, key, size)) {
            for (number = 0; number < (int)s->count && !has_key(s, number, in_lists, key, size); number++)
                ;
            if (number == (int)s->count)
                return 0;
            *place = number;
        }
        if (!(in_lists ? add_steps : add_feature)(s->columns + number, at, stop))
            return 0;
        at = stop;
    }
    return 1;
}

static int add_record(struct stretch *s, const uint8_t *at, const uint8_t *end)
{
    const uint8_t *stop;
    if (at < end && *at == 0x0a) {
        if (!(stop = enter(&at, end, 0x0a)) || !add_entries(s, 0, at, stop))
            return 0;
        at = stop;
    }
    if (at == end)
        return 1;
    return (stop = enter(&at, end, 0x12)) && stop == end && add_entries(s, 1, at, stop);
}

/* ---- the file ------------------------------------------------------------------ */

static int64_t read_all(int file, uint8_t *to, size_t size, size_t at)
{
    size_t have = 0;
    while (have < size) {
        ssize_t got = pread(file, to + have, size - have, (off_t)(at + have));
        if (got <= 0)
            return got < 0 ? -1 : (int64_t)have;
        have += (size_t)got;
    }
    return (int64_t)have;
}

/* The first record that starts at `at` or after it. */
static size_t border(int file, size_t at, size_t size)
{
    uint8_t *buffer = malloc(BUFFER);
    size_t found = size;
    for (; buffer && at + 12 <= size && found == size; at += BUFFER - 12) {
        int64_t have = read_all(file, buffer, BUFFER, at);
        for (int64_t n = 0; n + 12 <= have; n++) {
            uint64_t length;
            memcpy(&length, buffer + n, 8);
            if (length < size && is_sum(buffer + n + 8, buffer + n, 8)) {
                found = at + (size_t)n;
                break;
            }
        }
    }
    free(buffer);
    return found;
}

static void *run(void *given)
{
    struct stretch *s = given;
    size_t room = BUFFER, kept = 0, at = s->begin; /* `at` is the place of buffer[0] */
    uint8_t *buffer = malloc(room);
    while (buffer && at < s->end) {
        size_t wanted = s->end - at < room ? s->end - at : room;
        if (read_all(s->file, buffer + kept, wanted - kept, at + kept) != (int64_t)(wanted - kept))
            break;
        size_t p = 0;
        uint64_t length = 0;
        while (wanted - p >= 16) {
            memcpy(&length, buffer + p, 8);
            if (!is_sum(buffer + p + 8, buffer + p, 8))
                goto wrong;
            if (length > wanted - p - 16)
                break;
            if (!is_sum(buffer + p + 12 + length, buffer + p + 12, length) ||
                !add_record(s, buffer + p + 12, buffer + p + 12 + length))
                goto wrong;
            s->records++;
            p += 16 + length;
        }
        if (!p) { /* a record that is larger than the buffer */
            if (length > s->end - at - 16)
                break;
            uint8_t *more = realloc(buffer, room = length + 16);
            if (!more)
                break;
            buffer = more;
            kept = wanted;
            continue;
        }
        kept = wanted - p;
        memmove(buffer, buffer + p, kept);
        at += p;
    }
wrong:
    free(buffer);
    if (at < s->end)
        s->failed_at = (int64_t)at;
    return NULL;
}

/* Reads a file of records into `threads` times `count` columns, of which the first `count` are filled in by the caller:
 * keys and kinds. The number of records; -1 if anything went wrong. */
int64_t limit_read(const char *path, int threads, struct column *columns, size_t count)
{
    struct stretch all[THREADS];
    pthread_t running[THREADS];
    struct stat about;
    int file = open(path, O_RDONLY | O_CLOEXEC);
    int64_t records = 0;
    if (file < 0 || threads < 1 || threads > THREADS || fstat(file, &about))
        return -1;
    prepare_crc();
    size_t size = (size_t)about.st_size, begin = 0;
    for (int n = 0; n < threads; n++) {
        size_t end = n == threads - 1 ? size : border(file, size / (size_t)threads * (size_t)(n + 1), size);
        struct column *own = columns + (size_t)n * count;
        if (n)
            for (size_t c = 0; c < count; c++)
                own[c] = (struct column){columns[c].key, columns[c].key_size, columns[c].kind, columns[c].in_lists,
                                         columns[c].fixed, 0, 0, 0, 0, 0, 0, 0, 0, 0};
        all[n] = (struct stretch){file, begin, end < begin ? begin : end, own, count, {{0}}, 0, -1};
        begin = all[n].end;
    }
    int started = 0;
    for (; started < threads - 1; started++)
        if (pthread_create(running + started, NULL, run, all + started))
            break;
    for (int n = started; n < threads; n++)
        run(all + n);
    for (int n = 0; n < started; n++)
        pthread_join(running[n], NULL);
    close(file);
    for (int n = 0; n < threads; n++)
        records = records < 0 || all[n].failed_at >= 0 ? -1 : records + all[n].records;
    return records;
}

void limit_free(struct column *columns, size_t count)
{
    for (size_t n = 0; n < count; n++) {
        free(columns[n].values);
        free(columns[n].lengths);
        free(columns[n].steps);
    }
}
