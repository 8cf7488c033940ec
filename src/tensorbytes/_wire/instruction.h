/* Instructions beyond the least that a machine has, where the compiler can reach them.
 *
 * CRC-32C: wire_has_instruction tells whether the machine has it as well. BMI2, shifts that wait for nothing:
 * WITH_BMI2 marks a function, HAS_BMI2() asks the machine. AVX2, wider vectors: the same. */
#ifndef TENSORBYTES_INSTRUCTION_H
#define TENSORBYTES_INSTRUCTION_H

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#define WIRE_X86 1
#include <nmmintrin.h>
#define WITH_INSTRUCTION __attribute__((target("sse4.2")))
#define CRC_U64(crc, value) ((uint32_t)_mm_crc32_u64((crc), (value)))
#define CRC_U8(crc, value) _mm_crc32_u8((crc), (value))
#define WITH_BMI2 __attribute__((target("bmi2")))
#define HAS_BMI2() __builtin_cpu_supports("bmi2")
#define WITH_AVX2 __attribute__((target("avx2")))
#define HAS_AVX2() __builtin_cpu_supports("avx2")
#elif defined(__aarch64__) && defined(__ARM_FEATURE_CRC32)
#define WIRE_ARM 1
#include <arm_acle.h>
#define WITH_INSTRUCTION
#define CRC_U64(crc, value) __crc32cd((crc), (value))
#define CRC_U8(crc, value) __crc32cb((crc), (value))
#endif

#ifndef WITH_BMI2
#define WITH_BMI2
#define HAS_BMI2() 0
#endif
#ifndef WITH_AVX2
#define WITH_AVX2
#define HAS_AVX2() 0
#endif

/* Into callers of several kinds, each compiled for what it knows. */
#if defined(__GNUC__) || defined(__clang__)
#define ALWAYS_INLINE inline __attribute__((always_inline))
#elif defined(_MSC_VER)
#define ALWAYS_INLINE __forceinline
#else
#define ALWAYS_INLINE inline
#endif

#endif
