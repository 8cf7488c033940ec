/* Finding records again after damage: plain C11, no Python.h, no malloc.
 *
 * A sound header is 12 bytes of which the last four are the masked checksum of the first
 * eight. salvage_reference.py defines what each function must compute.
 */
#ifndef TENSORBYTES_SALVAGE_H
#define TENSORBYTES_SALVAGE_H

#include <stddef.h>
#include <stdint.h>

/* The first sound header in [buf + start, buf + end): its position, which is at most end - 12.
 * If there is none: where to go on once more bytes follow, a position beyond end - 12. */
size_t salvage_resync(const uint8_t *buf, size_t start, size_t end);

/* Where a payload ends whose length is lost: the first x from start on such that the masked
 * checksum of the payload up to x stands at x, and a sound header at x + 4. *crc is the
 * checksum of the payload up to start, and becomes that up to the position returned. If the
 * payload ends nowhere before end: where to go on once more bytes follow, beyond end - 16. */
size_t salvage_closing(const uint8_t *buf, size_t start, size_t end, uint32_t *crc);

#endif
