/* The CRC-32C instruction, where the compiler can reach it; wire_has_instruction tells
 * whether the machine has it as well. */
#ifndef TENSORBYTES_INSTRUCTION_H
#define TENSORBYTES_INSTRUCTION_H

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#define WIRE_X86 1
#include <nmmintrin.h>
#define WITH_INSTRUCTION __attribute__((target("sse4.2")))
#define CRC_U64(crc, value) ((uint32_t)_mm_crc32_u64((crc), (value)))
#define CRC_U8(crc, value) _mm_crc32_u8((crc), (value))
#elif defined(__aarch64__) && defined(__ARM_FEATURE_CRC32)
#define WIRE_ARM 1
#include <arm_acle.h>
#define WITH_INSTRUCTION
#define CRC_U64(crc, value) __crc32cd((crc), (value))
#define CRC_U8(crc, value) __crc32cb((crc), (value))
#endif

#endif
