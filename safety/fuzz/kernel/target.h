/* What every fuzz target of the kernel shares: reading choices off the input, messages grown from it, and memory
 * of exactly the size that is asked for, so that the sanitizer notices the first byte beyond it. */
#ifndef FUZZ_TARGET_H
#define FUZZ_TARGET_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "wire.h"

/* A promise of the kernel's that does not hold. */
#define PROMISE(condition)                                                        \
    do {                                                                          \
        if (!(condition)) {                                                       \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
            abort();                                                              \
        }                                                                         \
    } while (0)

struct input {
    const uint8_t *data;
    size_t size;
};

static inline uint8_t take_byte(struct input *in)
{
    if (!in->size)
        return 0;
    in->size--;
    return *in->data++;
}

static inline uint64_t take_number(struct input *in, int bytes)
{
    uint64_t number = 0;
    while (bytes--)
        number = number << 8 | take_byte(in);
    return number;
}

/* Memory that nobody else uses, also of size 0. */
static inline void *memory(size_t size)
{
    void *block = malloc(size ? size : 1);
    PROMISE(block != NULL);
    memset(block, 0xa5, size);
    return block;
}

/* The rest of the input, in memory of its own size. */
static inline uint8_t *rest(struct input *in)
{
    uint8_t *copy = memory(in->size);
    if (in->size)
        memcpy(copy, in->data, in->size);
    return copy;
}

/* A protobuf message grown from the input, whose lengths are right at every level: random bytes rarely get
 * past the first of them. Each byte of the input says what comes next; some of it is noise on purpose. */
static inline uint8_t *grow(struct input *in, uint8_t *out, const uint8_t *end, int depth)
{
    static const uint8_t tags[] = {0x0a, 0x12, 0x1a, 0x22, 0x2a, 0x08, 0x10, 0x0d, 0x15, 0x42};
    static const char keys[][3] = {"a", "bc", "d", "x"};
    while (in->size && end - out > 16) {
        uint8_t choice = take_byte(in), tag = tags[(choice >> 3) % sizeof tags];
        uint8_t *start;
        size_t size;
        switch (choice & 7) {
        case 0: /* the end of this message */
            return out;
        case 1: /* a varint, or a run of raw bytes after a tag of its kind */
            *out++ = tag;
            for (size = choice >> 6; size; size--)
                *out++ = take_byte(in) | 0x80;
            *out++ = take_byte(in) & 0x7f;
            break;
        case 2: /* a key of the map */
            size = strlen(keys[choice >> 6]);
            *out++ = 0x0a;
            *out++ = (uint8_t)size;
            memcpy(out, keys[choice >> 6], size);
            out += size;
            break;
        case 3: /* numbers: packed, all of them */
            size = take_byte(in) % 8 * 4;
            if ((size_t)(end - out) < size + 16)
                return out;
            *out++ = tag;
            *out++ = (uint8_t)size;
            while (size--)
                *out++ = take_byte(in);
            break;
        case 4: /* noise */
            *out++ = take_byte(in);
            break;
        default: /* a message inside, its length in two bytes as often as in one */
            *out++ = tag;
            start = out;
            out = depth ? grow(in, out + 2, end, depth - 1) : out + 2;
            size = (size_t)(out - start - 2);
            if (size < 128 && choice & 64) {
                memmove(start + 1, start + 2, size);
                start[0] = (uint8_t)size;
                out--;
            } else {
                start[0] = (uint8_t)(size | 0x80);
                start[1] = (uint8_t)(size >> 7 & 0x7f);
            }
        }
    }
    return out;
}

/* The rest of the input, as it is or as the recipe of a message; its size is the input's from then on. */
static inline uint8_t *message(struct input *in, int recipe)
{
    if (!recipe)
        return rest(in);
    uint8_t room[4096], *end = grow(in, room, room + sizeof room, 6);
    in->data = room;
    in->size = (size_t)(end - room);
    return rest(in);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#endif
