#include "huffman.h"

#include <string.h>

#include "instruction.h"

#define SYMBOLS 256
#define STREAMS 4
#define TABLE_SIZE (1u << HUFFMAN_BITS)
/* first and last symbol of the table of lengths, and the sizes of all streams but the last */
#define FIXED_BYTES (2 + 4 * (STREAMS - 1))

/* ---- little-endian memory ------------------------------------------------- */

static ALWAYS_INLINE uint64_t load64(const uint8_t *p)
{
    return (uint64_t)p[0] | (uint64_t)p[1] << 8 | (uint64_t)p[2] << 16 | (uint64_t)p[3] << 24
         | (uint64_t)p[4] << 32 | (uint64_t)p[5] << 40 | (uint64_t)p[6] << 48 | (uint64_t)p[7] << 56;
}

static uint32_t load32(const uint8_t *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static ALWAYS_INLINE void store64(uint8_t *p, uint64_t value)
{
    for (int i = 0; i < 8; i++)
        p[i] = (uint8_t)(value >> 8 * i);
}

static ALWAYS_INLINE void store32(uint8_t *p, uint32_t value)
{
    for (int i = 0; i < 4; i++)
        p[i] = (uint8_t)(value >> 8 * i);
}

static ALWAYS_INLINE unsigned leading_zeros(uint64_t value) /* of a value that is not 0 */
{
#if defined(__GNUC__) || defined(__clang__)
    return (unsigned)__builtin_clzll(value);
#else
    unsigned count = 0;
    for (; !(value >> 63); value <<= 1)
        count++;
    return count;
#endif
}

/* ---- code lengths --------------------------------------------------------- */

/* Counts the bytes of each segment: from the counts follows where each stream stands. */
static void count_bytes(uint32_t counts[STREAMS][SYMBOLS], const uint8_t *src, size_t n, size_t segment)
{
    /* Two tables for each, in turn: counting the same byte twice in a row would wait for the first to be stored. */
    uint32_t other[STREAMS][SYMBOLS];
    size_t common = n > (STREAMS - 1) * segment ? n - (STREAMS - 1) * segment : 0, i = 0;
    memset(counts, 0, STREAMS * sizeof counts[0]);
    memset(other, 0, sizeof other);
    for (; i + 8 <= common; i += 8) {
        uint64_t values[STREAMS];
        for (size_t k = 0; k < STREAMS; k++)
            values[k] = load64(src + k * segment + i);
        for (int byte = 0; byte < 8; byte += 2)
            for (size_t k = 0; k < STREAMS; k++) {
                counts[k][values[k] >> 8 * byte & 0xff]++;
                other[k][values[k] >> 8 * byte >> 8 & 0xff]++;
            }
    }
    for (size_t k = 0; k < STREAMS; k++) {
        size_t end = (k + 1) * segment < n ? (k + 1) * segment : n;
        for (size_t at = k * segment + i; at < end; at++)
            counts[k][src[at]]++;
        for (int s = 0; s < SYMBOLS; s++)
            counts[k][s] += other[k][s];
    }
}

/* Whether a glance shows bytes so even that coding can't pay: sixteen stretches are counted. The sum of
 * squares bounds the entropy from below, so a plane that would gain more than 3 % is never passed over
 * for what was looked at. */
#define GLANCE_FROM 65536
#define GLANCE_BYTES 256
static int looks_random(const uint8_t *src, size_t n)
{
    uint32_t counts[SYMBOLS] = {0};
    uint64_t squares = 0, total = 16 * GLANCE_BYTES;
    if (n < GLANCE_FROM)
        return 0;
    for (size_t k = 0; k < 16; k++) {
        const uint8_t *at = src + (n - GLANCE_BYTES) / 15 * k;
        for (size_t i = 0; i < GLANCE_BYTES; i++)
            counts[at[i]]++;
    }
    for (int s = 0; s < SYMBOLS; s++)
        squares += (uint64_t)counts[s] * counts[s];
    /* Random bytes give total * total / 256 + total, nearly. */
    return (squares - total) * SYMBOLS * 10 <= total * total * 11;
}

/* Logarithms have 16 bits after the point. */
#define LOG_UNIT 65536
/* The parabola below lies within a hundredth of the logarithm. */
#define LOG_ERROR (LOG_UNIT / 100)

/* log2 of a value that is not 0, nearly. */
static uint32_t logarithm(uint32_t value)
{
    unsigned whole = 63 - leading_zeros(value);
    uint64_t m = whole > 16 ? (uint64_t)value >> (whole - 16) : (uint64_t)value << (16 - whole); /* 1 to 2 */
    return whole * LOG_UNIT + (uint32_t)((6 * m * LOG_UNIT - m * m - (uint64_t)5 * LOG_UNIT * LOG_UNIT) / 3 / LOG_UNIT);
}

/* Fewer bits than any code takes: that of each byte by its chance, as far as the logarithms are true. */
static uint64_t least_bits(const uint32_t counts[SYMBOLS], size_t n)
{
    const uint32_t all = logarithm((uint32_t)n) - LOG_ERROR;
    uint64_t bits = 0; /* n is below 2^32, the sum below 2^32 * 33 * 2^16 */
    for (int s = 0; s < SYMBOLS; s++) {
        uint32_t one = counts[s] ? logarithm(counts[s]) + LOG_ERROR : all;
        bits += (uint64_t)counts[s] * (all > one ? all - one : 0);
    }
    return bits / LOG_UNIT;
}

/* Puts the symbols that occur in order of their counts, equal ones in order of their values. */
static int sort_symbols(uint8_t order[SYMBOLS], const uint32_t counts[SYMBOLS])
{
    uint64_t keys[2][SYMBOLS]; /* which are all different */
    uint64_t *from = keys[0], *to = keys[1];
    int used = 0;
    for (int s = 0; s < SYMBOLS; s++)
        if (counts[s])
            from[used++] = (uint64_t)counts[s] << 8 | (unsigned)s;
    for (int width = 1; width < used; width *= 2) {
        uint64_t *sorted = to;
        for (int start = 0; start < used; start += 2 * width) {
            int one = start, middle = start + width < used ? start + width : used;
            int two = middle, end = middle + width < used ? middle + width : used;
            for (int i = start; i < end; i++) {
                int first = two == end || (one < middle && from[one] < from[two]);
                to[i] = from[first ? one : two];
                one += first;
                two += !first;
            }
        }
        to = from;
        from = sorted;
    }
    for (int i = 0; i < used; i++)
        order[i] = (uint8_t)from[i];
    return used;
}

/* The best lengths up to HUFFMAN_BITS, by package-merge: on each of HUFFMAN_BITS levels the symbols are
 * merged with pairs of the items of the level before, by weight, symbols first. The 2 * used - 2 lightest
 * items of the last level then tell how often each symbol is taken, which is its length. used >= 2. */
static void find_lengths(uint8_t lengths[SYMBOLS], const uint8_t order[SYMBOLS], int used,
                         const uint32_t counts[SYMBOLS])
{
    uint64_t weights[2][2 * SYMBOLS];
    uint8_t is_symbol[HUFFMAN_BITS][2 * SYMBOLS];
    int items = 0;
    for (int level = 0; level < HUFFMAN_BITS; level++) {
        const uint64_t *below = weights[(level + 1) & 1];
        uint64_t *here = weights[level & 1];
        int pairs = items / 2, pair = 0, leaf = 0;
        items = 0;
        while (leaf < used || pair < pairs) {
            uint64_t packed = pair < pairs ? below[2 * pair] + below[2 * pair + 1] : UINT64_MAX;
            int take = leaf < used && counts[order[leaf]] <= packed;
            here[items] = take ? counts[order[leaf]] : packed;
            is_symbol[level][items++] = (uint8_t)take;
            leaf += take;
            pair += !take;
        }
    }
    memset(lengths, 0, SYMBOLS);
    for (int level = HUFFMAN_BITS - 1, taken = 2 * used - 2; level >= 0; level--) {
        int leaves = 0;
        for (int i = 0; i < taken; i++)
            leaves += is_symbol[level][i];
        for (int i = 0; i < leaves; i++)
            lengths[order[i]]++;
        taken = 2 * (taken - leaves);
    }
}

/* Canonical codes, shorter ones first, then by symbol; their bits reversed, since streams are read from
 * the low end. Returns 0 unless they fill the space of codes exactly. */
static int assign_codes(uint16_t codes[SYMBOLS], const uint8_t lengths[SYMBOLS])
{
    uint32_t counts[HUFFMAN_BITS + 1] = {0}, next[HUFFMAN_BITS + 1] = {0}, space = 0;
    for (int s = 0; s < SYMBOLS; s++)
        counts[lengths[s]]++;
    counts[0] = 0;
    for (int length = 1; length <= HUFFMAN_BITS; length++) {
        next[length] = (next[length - 1] + counts[length - 1]) << 1;
        space += counts[length] << (HUFFMAN_BITS - length);
    }
    if (space != TABLE_SIZE)
        return 0;
    for (int s = 0; s < SYMBOLS; s++) {
        uint32_t code = lengths[s] ? next[lengths[s]]++ : 0, reversed = 0;
        for (int bit = 0; bit < lengths[s]; bit++)
            reversed |= (code >> bit & 1) << (lengths[s] - 1 - bit);
        codes[s] = (uint16_t)reversed;
    }
    return 1;
}

/* ---- encoding ------------------------------------------------------------- */

static size_t segment_size(size_t n)
{
    return (n + STREAMS - 1) / STREAMS;
}

/* One segment and the stream that it becomes. Codes come in at the top of `bits`: of its top `held` bits, the lowest
 * come first. */
struct writer {
    const uint8_t *src, *src_end;
    uint8_t *out, *end;
    uint64_t bits;
    uint64_t held; /* in the low byte */
};

/* Codes come at the top of 64 bits, with their length in the low byte. It is added and shifted in with them: below
 * the bits that are held there is room for it, but for the last of five codes. */
#define LENGTH(code) ((unsigned)(code) & 0xff)
#define CODES 5 /* 5 codes and the 7 bits held before fit 64 */

static ALWAYS_INLINE void put_codes(struct writer *w, const uint64_t codes[SYMBOLS])
{
    for (int i = 0; i < CODES; i++) {
        uint64_t code = codes[w->src[i]];
        w->bits = w->bits >> LENGTH(code) | (i == CODES - 1 ? code & ~(uint64_t)0xff : code);
        w->held += code;
    }
    w->held &= 0xff;
    store64(w->out, w->bits >> 1 >> (63 - w->held)); /* none may be held, where bytes changed after they were counted */
    w->out += w->held >> 3;
    w->held &= 7;
    w->src += CODES;
}

/* How many times codes can be put unchecked: each time 8 bytes are written, and up to 7 taken. */
static size_t writer_rounds(const struct writer *w)
{
    size_t in = (size_t)(w->src_end - w->src) / CODES, room = (size_t)(w->end - w->out);
    size_t out = room < 8 ? 0 : (room - 8) / 7 + 1;
    return in < out ? in : out;
}

/* Two at a time: neither waits for the other. */
static ALWAYS_INLINE void encode_most(struct writer *one, struct writer *two, const uint64_t codes[SYMBOLS])
{
    struct writer a = *one, b = *two;
    for (;;) {
        size_t most = writer_rounds(&a), other = writer_rounds(&b);
        most = other < most ? other : most;
        if (!most)
            break;
        while (most--) {
            put_codes(&a, codes);
            put_codes(&b, codes);
        }
    }
    *one = a, *two = b;
}

/* Twice: where shifts by a variable are cheap, both directions take a fifth less time. */
static void encode_plain(struct writer *one, struct writer *two, const uint64_t codes[SYMBOLS])
{
    encode_most(one, two, codes);
}

static WITH_BMI2 void encode_bmi2(struct writer *one, struct writer *two, const uint64_t codes[SYMBOLS])
{
    encode_most(one, two, codes);
}

/* The rest of a stream, byte by byte. Returns 0 unless it ends where it must: the bytes were others when they were
 * counted. */
static int encode_rest(struct writer *w, const uint64_t codes[SYMBOLS])
{
    while (w->src < w->src_end) {
        uint64_t code = codes[*w->src++];
        w->bits = w->bits >> LENGTH(code) | (code & ~(uint64_t)0xff);
        for (w->held += LENGTH(code); w->held >= 8; w->held -= 8) {
            if (w->out == w->end)
                return 0;
            *w->out++ = (uint8_t)(w->bits >> (64 - w->held));
        }
    }
    if (w->held) {
        if (w->out == w->end)
            return 0;
        *w->out++ = (uint8_t)(w->bits >> (64 - w->held));
    }
    return w->out == w->end;
}

size_t huffman_encode(uint8_t *dst, const uint8_t *src, size_t n, int portable)
{
    uint32_t segments[STREAMS][SYMBOLS], counts[SYMBOLS];
    uint64_t codes[SYMBOLS] = {0};
    uint16_t plain[SYMBOLS] = {0};
    uint8_t order[SYMBOLS], lengths[SYMBOLS];
    uint64_t bits = 0;
    int used, first = 0, last = SYMBOLS - 1;
    size_t at, segment = segment_size(n);
    struct writer writers[STREAMS];
    if (n < 2 || n > UINT32_MAX || looks_random(src, n))
        return 0;
    count_bytes(segments, src, n, segment);
    for (int s = 0; s < SYMBOLS; s++)
        counts[s] = segments[0][s] + segments[1][s] + segments[2][s] + segments[3][s];
    if (counts[src[0]] != n && FIXED_BYTES + least_bits(counts, n) / 8 + STREAMS >= n - n / 64)
        return 0; /* as below, without the lengths */
    used = sort_symbols(order, counts);
    if (used == 1) {
        dst[0] = order[0];
        return 1;
    }
    find_lengths(lengths, order, used, counts);
    while (!lengths[first])
        first++;
    while (!lengths[last])
        last--;
    for (int s = first; s <= last; s++)
        bits += (uint64_t)counts[s] * lengths[s];
    at = FIXED_BYTES + (size_t)(last - first + 2) / 2;
    if (at + bits / 8 + STREAMS >= n - n / 64)
        return 0;
    assign_codes(plain, lengths);
    for (int s = first; s <= last; s++)
        if (lengths[s])
            codes[s] = (uint64_t)plain[s] << (64 - lengths[s]) | lengths[s];
    dst[0] = (uint8_t)first;
    dst[1] = (uint8_t)last;
    for (int s = first; s <= last; s += 2)
        dst[FIXED_BYTES + (s - first) / 2] = (uint8_t)(lengths[s] | (s < last ? lengths[s + 1] : 0) << 4);
    for (size_t k = 0; k < STREAMS; k++) {
        size_t start = k * segment < n ? k * segment : n, size;
        bits = 0;
        for (int s = first; s <= last; s++)
            bits += (uint64_t)segments[k][s] * lengths[s];
        size = (size_t)((bits + 7) / 8);
        writers[k] = (struct writer){src + start, n - start < segment ? src + n : src + start + segment,
                                     dst + at, dst + at + size, 0, 0};
        if (k + 1 < STREAMS)
            store32(dst + 2 + 4 * k, (uint32_t)size);
        at += size;
    }
    for (size_t k = 0; k < STREAMS; k += 2)
        (HAS_BMI2() && !portable ? encode_bmi2 : encode_plain)(&writers[k], &writers[k + 1], codes);
    for (size_t k = 0; k < STREAMS; k++)
        if (!encode_rest(&writers[k], codes))
            return 0;
    return at;
}

/* ---- decoding ------------------------------------------------------------- */

/* What the next HUFFMAN_BITS bits of a stream say: as many symbols as they hold, four at most, in the low
 * 32 bits; the bits of all of them; how many they are; the bits of the first alone. */
#define ALL_BITS(entry) ((unsigned)((entry) >> 32 & 0xff))
#define COUNT(entry) ((unsigned)((entry) >> 40 & 0xff))
#define FIRST_BITS(entry) ((unsigned)((entry) >> 48))
#define MOST_SYMBOLS 4
/* Lookups between two loads of a stream: 5 * 11 bits of the 57 that a load is sure to give. */
#define LOOKUPS 5

static void fill_table(uint64_t table[TABLE_SIZE], const uint8_t lengths[SYMBOLS], const uint16_t codes[SYMBOLS])
{
    uint16_t single[TABLE_SIZE]; /* the first symbol and its bits */
    uint8_t ends[TABLE_SIZE][3]; /* where the first three symbols of an entry end */
    for (unsigned s = 0; s < SYMBOLS; s++)
        for (uint32_t index = codes[s]; lengths[s] && index < TABLE_SIZE; index += 1u << lengths[s])
            single[index] = (uint16_t)(s | (unsigned)lengths[s] << 8);
    /* What follows the first symbol of an entry is an earlier entry, as far as the bits reach. */
    for (uint32_t index = 0; index < TABLE_SIZE; index++) {
        unsigned length = single[index] >> 8, left = HUFFMAN_BITS - length, count = 1, bits = length;
        uint32_t next = index >> length, symbols = single[index] & 0xff;
        if (index == 0) { /* which follows itself */
            for (int i = 0; i < 3; i++)
                ends[0][i] = (uint8_t)(length * (unsigned)(i + 1));
            symbols *= 0x01010101;
        } else {
            symbols |= (uint32_t)table[next] << 8;
            ends[index][0] = (uint8_t)length;
            ends[index][1] = (uint8_t)(length + ends[next][0]);
            ends[index][2] = (uint8_t)(length + ends[next][1]);
        }
        for (int i = 0; i < 3; i++)
            if (ends[next][i] <= left) {
                count++;
                bits = length + ends[next][i];
            }
        table[index] = symbols | (uint64_t)bits << 32 | (uint64_t)count << 40 | (uint64_t)length << 48;
    }
}

/* One bit stream and the segment it fills. */
struct stream {
    const uint8_t *start;
    size_t size;
    uint64_t at; /* in bits */
    uint8_t *out, *end;
};

/* How many times LOOKUPS can be made of a stream unchecked: each may write MOST_SYMBOLS bytes, all of them take
 * up to 7 bytes, and 8 are read. */
static size_t rounds(const struct stream *s)
{
    size_t out = (size_t)(s->end - s->out) / (LOOKUPS * MOST_SYMBOLS), at = (size_t)(s->at >> 3);
    size_t in = at + 8 <= s->size ? (s->size - at - 8) / 7 + 1 : 0;
    return out < in ? out : in;
}

/* The next bits of a stream, from the low end, and far above them a one: how far it has moved down tells
 * how many bits were used. */
static ALWAYS_INLINE uint64_t refill(const struct stream *s)
{
    return load64(s->start + (s->at >> 3)) >> (s->at & 7) | (uint64_t)1 << 63;
}

static ALWAYS_INLINE uint8_t *look_up(uint64_t *bits, uint8_t *out, const uint64_t table[TABLE_SIZE])
{
    uint64_t entry = table[*bits & (TABLE_SIZE - 1)];
    store32(out, (uint32_t)entry);
    *bits >>= ALL_BITS(entry);
    return out + COUNT(entry);
}

/* LOOKUPS of each stream, taken in turn: none waits for another. Then what is left of each. */
static ALWAYS_INLINE void decode_most(struct stream s[STREAMS], const uint64_t table[TABLE_SIZE])
{
    uint8_t *out0 = s[0].out, *out1 = s[1].out, *out2 = s[2].out, *out3 = s[3].out;
    for (;;) {
        size_t most = rounds(&s[0]);
        for (size_t k = 1; k < STREAMS; k++)
            most = rounds(&s[k]) < most ? rounds(&s[k]) : most;
        if (!most)
            break;
        while (most--) {
            uint64_t bits0 = refill(&s[0]), bits1 = refill(&s[1]), bits2 = refill(&s[2]), bits3 = refill(&s[3]);
            for (int i = 0; i < LOOKUPS; i++) {
                out0 = look_up(&bits0, out0, table);
                out1 = look_up(&bits1, out1, table);
                out2 = look_up(&bits2, out2, table);
                out3 = look_up(&bits3, out3, table);
            }
            s[0].at += leading_zeros(bits0);
            s[1].at += leading_zeros(bits1);
            s[2].at += leading_zeros(bits2);
            s[3].at += leading_zeros(bits3);
        }
        s[0].out = out0, s[1].out = out1, s[2].out = out2, s[3].out = out3;
    }
    for (size_t k = 0; k < STREAMS; k++)
        while (rounds(&s[k])) {
            uint64_t bits = refill(&s[k]);
            for (int i = 0; i < LOOKUPS; i++)
                s[k].out = look_up(&bits, s[k].out, table);
            s[k].at += leading_zeros(bits);
        }
}

static void decode_plain(struct stream s[STREAMS], const uint64_t table[TABLE_SIZE])
{
    decode_most(s, table);
}

static WITH_BMI2 void decode_bmi2(struct stream s[STREAMS], const uint64_t table[TABLE_SIZE])
{
    decode_most(s, table);
}

/* The rest of a stream, symbol by symbol. It must end with its segment, and with zeros up to a whole byte. */
static int decode_rest(struct stream *s, const uint64_t table[TABLE_SIZE])
{
    while (s->out < s->end) {
        size_t byte = (size_t)(s->at >> 3);
        uint32_t bits = 0;
        uint64_t entry;
        for (size_t i = 0; i < 3 && byte + i < s->size; i++)
            bits |= (uint32_t)s->start[byte + i] << 8 * i;
        entry = table[bits >> (s->at & 7) & (TABLE_SIZE - 1)];
        *s->out++ = (uint8_t)entry;
        s->at += FIRST_BITS(entry);
    }
    if ((s->at + 7) / 8 != s->size)
        return 0;
    return !(s->at & 7) || !(s->start[s->size - 1] >> (s->at & 7));
}

int huffman_decode(uint8_t *dst, size_t n, const uint8_t *src, size_t size, int portable)
{
    uint64_t table[TABLE_SIZE];
    uint16_t codes[SYMBOLS] = {0};
    uint8_t lengths[SYMBOLS] = {0};
    struct stream streams[STREAMS];
    size_t at, segment = segment_size(n);
    if (n < 2 || size < FIXED_BYTES)
        return 0;
    /* Read once: in a mapped file they may be others the next time. */
    const int first = ((const volatile uint8_t *)src)[0], last = ((const volatile uint8_t *)src)[1];
    if (first > last)
        return 0;
    at = FIXED_BYTES + (size_t)(last - first + 2) / 2;
    if (at > size)
        return 0;
    for (int s = first; s <= last; s++)
        lengths[s] = src[FIXED_BYTES + (s - first) / 2] >> ((s - first) & 1) * 4 & 0xf;
    if ((last - first) % 2 == 0 && src[at - 1] >> 4)
        return 0; /* half a byte that stands for nothing */
    for (int s = first; s <= last; s++)
        if (lengths[s] > HUFFMAN_BITS)
            return 0;
    if (!assign_codes(codes, lengths))
        return 0;
    fill_table(table, lengths, codes);
    for (size_t k = 0; k < STREAMS; k++) {
        size_t start = k * segment < n ? k * segment : n;
        size_t length = k + 1 < STREAMS ? load32(src + 2 + 4 * k) : size - at;
        if (length > size - at)
            return 0;
        streams[k] = (struct stream){src + at, length, 0, dst + start, n - start < segment ? dst + n : dst + start + segment};
        at += length;
    }
    (HAS_BMI2() && !portable ? decode_bmi2 : decode_plain)(streams, table);
    for (size_t k = 0; k < STREAMS; k++)
        if (!decode_rest(&streams[k], table))
            return 0;
    return 1;
}
