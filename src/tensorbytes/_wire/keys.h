/* The keys of features, found among those that are wanted: plain C11, no Python.h, no malloc. */
#ifndef TENSORBYTES_KEYS_H
#define TENSORBYTES_KEYS_H

#include <stddef.h>
#include <stdint.h>

/* Strings end to end: string i is data[offsets[i] .. offsets[i + 1]). They must rise, by their bytes; of those that
 * don't, some are not found. */
struct example_keys {
    const uint8_t *data;
    const int64_t *offsets;
    size_t count;
};

/* Where keys are by their hash, none more than a few cells from its place. A cell holds half of the hash and, from 1
 * on, the key's number; 0 is empty. */
struct key_table {
    uint64_t *cells; /* NULL: keys are found by halves */
    size_t mask;
    uint64_t seed;
};

/* Positions whose key is remembered from one record to the next. */
#define KEYS_PREDICTED 256

/* What stood at each position of the last record: features tend to come in the same order, so
 * that one comparison finds a key. Slot -1 is a key that is not wanted. */
struct key_prediction {
    const uint8_t *key;
    size_t size;
    ptrdiff_t slot;
};

struct key_search {
    const struct example_keys *keys;
    struct key_table table;
    size_t next; /* the slot after the one that was found last */
    struct key_prediction predicted[KEYS_PREDICTED];
};

/* Below, at or above 0 where key `slot` comes before, is, or comes after this one, by their bytes. */
int keys_compare(const struct example_keys *keys, size_t slot, const uint8_t *key, size_t size);

/* How many cells a table for so many keys has. */
size_t keys_table_size(size_t count);

/* Fills a table that has its cells. Where some keys crowd whatever the seed, it is left without them. */
void keys_fill_table(const struct example_keys *keys, struct key_table *table);

/* The slot of a key, -1 if it is not wanted. */
ptrdiff_t keys_find(struct key_search *s, const uint8_t *key, size_t size);

static inline uint64_t keys_load64(const uint8_t *p)
{
    uint64_t word = 0;
    for (int i = 0; i < 8; i++)
        word |= (uint64_t)p[i] << (8 * i);
    return word;
}

static inline int keys_same(const uint8_t *a, const uint8_t *b, size_t size)
{
    for (; size >= 8; size -= 8, a += 8, b += 8)
        if (keys_load64(a) != keys_load64(b))
            return 0;
    for (; size; size--)
        if (*a++ != *b++)
            return 0;
    return 1;
}

/* The slot of the key at a position of a record. */
static inline ptrdiff_t keys_predict(struct key_search *s, size_t position, const uint8_t *key, size_t size)
{
    if (position >= KEYS_PREDICTED)
        return keys_find(s, key, size);
    struct key_prediction *p = s->predicted + position;
    if (p->size != size || !p->key || !keys_same(p->key, key, size)) {
        p->slot = keys_find(s, key, size);
        p->key = key;
        p->size = size;
    }
    return p->slot;
}

#endif
