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

#endif
