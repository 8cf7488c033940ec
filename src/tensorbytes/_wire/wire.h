/* The hot loops of tensorbytes: plain C11, no Python.h, no malloc.
 *
 * Every function is total: it reads only [buf, buf + n), never fails by
 * crashing, and says where the input went wrong. The caller allocates.
 * reference.py defines what each one must compute.
 */
#ifndef TENSORBYTES_WIRE_H
#define TENSORBYTES_WIRE_H

#include <stddef.h>
#include <stdint.h>

/* Ranks above this are left to the general parser. */
#define WIRE_MAX_RANK 64

/* How a scan of TFRecord framing ended. The numbers are shared with reference.py. */
enum wire_status {
    WIRE_OK = 0,            /* the end of the buffer, or of the room for results */
    WIRE_CUT_HEADER = 1,    /* fewer than 12 bytes are left */
    WIRE_CUT_PAYLOAD = 2,   /* the payload or its checksum runs past the end */
    WIRE_BAD_LENGTH = 3,    /* the checksum of the length differs */
    WIRE_BAD_DATA = 4       /* the checksum of the payload differs */
};

/* A TensorProto that has dtype, shape and tensor_content, once each, in that order; before the
 * content may stand, each once and in this order, the frame's item, padding and header_crc. */
struct wire_tensor {
    uint64_t dtype;
    uint64_t rank;
    uint64_t dims[WIRE_MAX_RANK];
    uint64_t item;          /* 0 if there is none */
    int named;              /* whether it has a name, in ASCII */
    size_t content;         /* offset of the first content byte */
    size_t content_size;
};

/* Fills the checksum tables and picks the instructions to use. Call once, first. */
void wire_init(void);

/* Whether wire_init found the machine to have the CRC-32C instruction (see instruction.h). */
int wire_has_instruction(void);

/* CRC-32C (Castagnoli) of buf, continuing from crc (0 to start). */
uint32_t wire_crc32c(uint32_t crc, const uint8_t *buf, size_t n);

/* The same, by tables only: what machines without the instruction run. */
uint32_t wire_crc32c_portable(uint32_t crc, const uint8_t *buf, size_t n);

/* CRC-32C of three stretches at once, which takes little longer than one where they are short. */
void wire_crc32c_three(const uint8_t *const p[3], const size_t n[3], uint32_t crc[3]);

/* Copies src to dst and continues the checksum of what was copied, in one pass. */
uint32_t wire_copy_crc32c(uint32_t crc, uint8_t *dst, const uint8_t *src, size_t n);

/* The checksum of two stretches one after the other; the second has `length` bytes. */
uint32_t wire_crc32c_join(uint32_t first, uint32_t second, uint64_t length);

/* TFRecord's masking, so that checksums of checksums stay sound. */
uint32_t wire_mask(uint32_t crc);

/* Writes the 12 bytes that stand before a payload of the given length. */
void wire_frame_header(uint8_t *out, uint64_t length);

/* Little-endian, at any address. */
void wire_put_u32(uint8_t *out, uint32_t value);
uint32_t wire_get_u32(const uint8_t *p);

/* What a scan verifies beyond lengths. Large payloads may have checksums of their own inside. */
enum wire_verify { WIRE_LENGTHS = 0, WIRE_ALL = 1, WIRE_SMALL = 2 };
#define WIRE_LARGE_PAYLOAD (1u << 20)

/* Of the records out[first .. end), at most three: how many come before one with a wrong checksum. Those that
 * are not to be verified count as sound. */
size_t wire_count_sound(const uint8_t *buf, const int64_t *out, size_t first, size_t end, int verify);

/* Walks records from *next on. For record i, out[2*i] is the payload's offset and
 * out[2*i+1] its length. Returns how many were found; *next is where the scan
 * stopped, *status why. */
size_t wire_scan(const uint8_t *buf, size_t n, size_t *next, int verify,
                 int64_t *out, size_t room, int *status);

/* Parses the plain form of a TensorProto in [buf+start, buf+end), which may have a name in ASCII.
 * Returns 1, or 0 for anything else, sound or not: the general parser decides. */
int wire_plain_tensor(const uint8_t *buf, size_t start, size_t end, struct wire_tensor *out);

/* One field of a message: for a varint `start` is its value, else its bytes are [start, end). */
struct wire_field {
    uint64_t number, start, end, at;
    int wire;
};

/* Reads the field at *at and moves past it. Returns 0, and moves nothing, at the end, at the
 * tag byte `stop`, and at groups, overlong tags and anything malformed: the general parser's work. */
int wire_next_field(const uint8_t *buf, size_t *at, size_t end, uint8_t stop, struct wire_field *out);

/* How many bytes wire_strings_pack writes for these offsets (count + 1 of them). */
size_t wire_strings_size(const int64_t *offsets, size_t count);

/* Writes tag, varint length and bytes for each string. */
void wire_strings_pack(uint8_t *out, uint8_t tag, const int64_t *offsets, size_t count,
                       const uint8_t *data);

/* Counts consecutive "tag, varint length, bytes" entries from start on; *total is
 * the sum of lengths, *stop where the run ends (end, another tag, or a bad entry). */
size_t wire_strings_count(const uint8_t *buf, size_t start, size_t end, uint8_t tag,
                          uint64_t *total, size_t *stop);

/* Copies the run that wire_strings_count found in the same bytes: count + 1 offsets, then `total` bytes.
 * Returns 0 if it is another run by now: a mapped file may be written to at any time. */
int wire_strings_fill(const uint8_t *buf, size_t start, size_t end, uint8_t tag, size_t count, uint64_t total,
                      int64_t *offsets, uint8_t *data);

#endif
