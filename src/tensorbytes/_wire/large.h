/* Large copies into fresh memory: two threads, and pages faulted in ahead of them.
 *
 * Its measurements stand in spec/decisions/0004-large-copies.md. On systems other
 * than Linux these are a plain copy and nothing at all.
 */
#ifndef TENSORBYTES_LARGE_H
#define TENSORBYTES_LARGE_H

#include <stddef.h>
#include <stdint.h>

/* Below this, none of it pays. */
#define LARGE_BYTES (4 * 1024 * 1024)

/* Faults fresh memory in, the cheapest way there is: with two threads, or with this one alone. */
void large_prefault(uint8_t *memory, size_t n);
void large_fault_in(uint8_t *memory, size_t n);

/* wire_copy_crc32c for any size; large memory at `to` should be fresh. */
uint32_t large_copy_crc32c(uint32_t crc, uint8_t *to, const uint8_t *from, size_t n);

/* work(one) and work(two), at the same time where a thread can be had. */
void large_both(void (*work)(void *), void *one, void *two);

/* The most threads that large_all takes. */
#define LARGE_MOST_THREADS 8

/* Work that several share: each call takes items by LARGE_NEXT until there are none. `number` tells the calls apart. */
typedef void large_work(void *argument, unsigned number);
#if defined(__GNUC__) || defined(__clang__)
#define LARGE_NEXT(count) __atomic_fetch_add((count), 1, __ATOMIC_RELAXED)
#define LARGE_END(count, end) __atomic_store_n((count), (end), __ATOMIC_RELAXED)
#else
#define LARGE_NEXT(count) ((*(count))++)
#define LARGE_END(count, end) (*(count) = (end))
#endif

/* work(argument, 0), and beside it up to threads - 1 others, numbered from 1 on: as many as can be had. */
void large_all(large_work *work, void *argument, unsigned threads);

#endif
