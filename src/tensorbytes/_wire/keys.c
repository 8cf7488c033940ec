#include "keys.h"

#include <string.h>

/* How far from its place a key may be; how many seeds are tried for that. */
#define MOST_STEPS 8
#define MOST_SEEDS 16
#define FACTOR 0x9e3779b97f4a7c15u

int keys_compare(const struct example_keys *keys, size_t slot, const uint8_t *key, size_t size)
{
    size_t other = (size_t)(keys->offsets[slot + 1] - keys->offsets[slot]), shorter = other < size ? other : size;
    int order = shorter ? memcmp(keys->data + keys->offsets[slot], key, shorter) : 0;
    return order ? order : (other > size) - (other < size);
}

static uint64_t mix(uint64_t hash, uint64_t word)
{
    hash = (hash ^ word) * FACTOR;
    return hash ^ hash >> 29;
}

static uint64_t hash_key(uint64_t seed, const uint8_t *key, size_t size)
{
    uint64_t hash = mix(seed, size), last = 0;
    for (; size >= 8; size -= 8, key += 8)
        hash = mix(hash, keys_load64(key));
    for (size_t i = 0; i < size; i++)
        last |= (uint64_t)key[i] << (8 * i);
    hash = mix(hash, last);
    return hash ^ hash >> 32;
}

size_t keys_table_size(size_t count)
{
    size_t size = 16;
    while (size < 4 * count)
        size *= 2;
    return size;
}

static int fill(const struct example_keys *keys, struct key_table *table)
{
    memset(table->cells, 0, (table->mask + 1) * sizeof *table->cells);
    for (size_t slot = 0; slot < keys->count; slot++) {
        const uint8_t *key = keys->data + keys->offsets[slot];
        uint64_t hash = hash_key(table->seed, key, (size_t)(keys->offsets[slot + 1] - keys->offsets[slot]));
        size_t step = 0;
        while (table->cells[(hash + step) & table->mask])
            if (++step == MOST_STEPS)
                return 0;
        table->cells[(hash + step) & table->mask] = (hash >> 32) << 32 | (slot + 1);
    }
    return 1;
}

void keys_fill_table(const struct example_keys *keys, struct key_table *table)
{
    table->mask = keys_table_size(keys->count) - 1;
    for (table->seed = 1; table->seed <= MOST_SEEDS; table->seed++)
        if (keys->count < UINT32_MAX && fill(keys, table))
            return;
    table->cells = NULL;
}

static ptrdiff_t find_hashed(struct key_search *s, const uint8_t *key, size_t size)
{
    uint64_t hash = hash_key(s->table.seed, key, size);
    for (size_t step = 0; step < MOST_STEPS; step++) {
        uint64_t cell = s->table.cells[(hash + step) & s->table.mask];
        if (!cell)
            return -1;
        size_t slot = (size_t)(cell & UINT32_MAX) - 1;
        if (cell >> 32 == hash >> 32 && keys_compare(s->keys, slot, key, size) == 0)
            return (ptrdiff_t)slot;
    }
    return -1;
}

/* Keys rise, and many writers sort them too: the next one is tried before all others are searched by halves. No choice
 * of keys makes that slow. */
ptrdiff_t keys_find(struct key_search *s, const uint8_t *key, size_t size)
{
    size_t low = 0, high = s->keys->count;
    if (s->table.cells)
        return find_hashed(s, key, size);
    for (size_t slot = s->next < high ? s->next : high / 2; low < high; slot = low + (high - low) / 2) {
        int order = keys_compare(s->keys, slot, key, size);
        if (order == 0) {
            s->next = slot + 1;
            return (ptrdiff_t)slot;
        }
        if (order < 0)
            low = slot + 1;
        else
            high = slot;
    }
    return -1;
}
