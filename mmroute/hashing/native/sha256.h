/* SHA-256, with the instructions of the processor where it has them. */

#ifndef MMROUTE_SHA256_H
#define MMROUTE_SHA256_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(MMROUTE_PORTABLE_SHA256) /* to test what other processors run */
#elif (defined(__x86_64__) || defined(__i386__)) && (defined(__GNUC__) || defined(__clang__))
#define MMROUTE_SHA_X86 1
#include <cpuid.h>
#include <immintrin.h>
#elif defined(__aarch64__) && (defined(__GNUC__) || defined(__clang__))
#define MMROUTE_SHA_ARM 1
#include <arm_neon.h>
#if defined(__linux__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif
#endif

static const uint32_t sha256_start[8] = {
    0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19,
};

static const uint32_t sha256_round[64]
#if defined(MMROUTE_SHA_X86)
    __attribute__((aligned(16)))
#endif
    = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

static inline uint32_t sha256_turn(uint32_t word, int bits) {
    return word >> bits | word << (32 - bits);
}

/* FIPS 180-4, section 6.2.2. */
static void sha256_portable(uint32_t state[8], const unsigned char *data, size_t count) {
    uint32_t words[64];
    for (; count; count--, data += 64) {
        uint32_t a = state[0], b = state[1], c = state[2], d = state[3];
        uint32_t e = state[4], f = state[5], g = state[6], h = state[7];
        for (int i = 0; i < 16; i++)
            words[i] = (uint32_t)data[4 * i] << 24 | (uint32_t)data[4 * i + 1] << 16 |
                       (uint32_t)data[4 * i + 2] << 8 | data[4 * i + 3];
        for (int i = 16; i < 64; i++) {
            const uint32_t early = words[i - 15], late = words[i - 2];
            words[i] = words[i - 16] + words[i - 7] +
                       (sha256_turn(early, 7) ^ sha256_turn(early, 18) ^ early >> 3) +
                       (sha256_turn(late, 17) ^ sha256_turn(late, 19) ^ late >> 10);
        }
#if defined(__GNUC__) || defined(__clang__)
#pragma GCC unroll 8
#endif
        for (int i = 0; i < 64; i++) {
            const uint32_t one = h + sha256_round[i] + words[i] + (g ^ (e & (f ^ g))) +
                                 (sha256_turn(e, 6) ^ sha256_turn(e, 11) ^ sha256_turn(e, 25));
            const uint32_t two = ((a & b) | (c & (a | b))) +
                                 (sha256_turn(a, 2) ^ sha256_turn(a, 13) ^ sha256_turn(a, 22));
            h = g, g = f, f = e, e = d + one, d = c, c = b, b = a, a = one + two;
        }
        state[0] += a, state[1] += b, state[2] += c, state[3] += d;
        state[4] += e, state[5] += f, state[6] += g, state[7] += h;
    }
}

#if defined(MMROUTE_SHA_X86)

static int sha256_has_instructions(void) {
    unsigned a, b, c, d;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(b & (1u << 29))) return 0; /* SHA */
    return __get_cpuid(1, &a, &b, &c, &d) && (c & (1u << 19));                   /* SSE4.1 */
}

__attribute__((target("sha,sse4.1"))) static void sha256_by_instructions(
    uint32_t state[8], const unsigned char *data, size_t count) {
    const __m128i swap = _mm_set_epi64x(0x0c0d0e0f08090a0bLL, 0x0405060700010203LL);
    __m128i low = _mm_loadu_si128((const __m128i *)state);        /* d c b a */
    __m128i high = _mm_loadu_si128((const __m128i *)(state + 4)); /* h g f e */
    low = _mm_shuffle_epi32(low, 0xb1);
    high = _mm_shuffle_epi32(high, 0x1b);
    __m128i abef = _mm_alignr_epi8(low, high, 8);
    __m128i cdgh = _mm_blend_epi16(high, low, 0xf0);
    for (; count; count--, data += 64) {
        const __m128i abef_before = abef, cdgh_before = cdgh;
        __m128i words[4];
        for (int i = 0; i < 4; i++)
            words[i] = _mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)data + i), swap);
#pragma GCC unroll 16
        for (int i = 0; i < 16; i++) {
            const __m128i now = words[i & 3];
            const __m128i sum =
                _mm_add_epi32(now, _mm_load_si128((const __m128i *)(sha256_round + 4 * i)));
            cdgh = _mm_sha256rnds2_epu32(cdgh, abef, sum);
            abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(sum, 0x0e));
            if (i < 12) { /* the words of four rounds, sixteen rounds on */
                const __m128i last = words[(i + 3) & 3];
                const __m128i middle = _mm_alignr_epi8(last, words[(i + 2) & 3], 4);
                const __m128i next = _mm_sha256msg1_epu32(now, words[(i + 1) & 3]);
                words[i & 3] = _mm_sha256msg2_epu32(_mm_add_epi32(next, middle), last);
            }
        }
        abef = _mm_add_epi32(abef, abef_before);
        cdgh = _mm_add_epi32(cdgh, cdgh_before);
    }
    low = _mm_shuffle_epi32(abef, 0x1b);
    high = _mm_shuffle_epi32(cdgh, 0xb1);
    _mm_storeu_si128((__m128i *)state, _mm_blend_epi16(low, high, 0xf0));
    _mm_storeu_si128((__m128i *)(state + 4), _mm_alignr_epi8(high, low, 8));
}

#elif defined(MMROUTE_SHA_ARM)

static int sha256_has_instructions(void) {
#if defined(__APPLE__)
    return 1; /* every 64-bit processor of Apple has them */
#elif defined(__linux__)
    return (getauxval(AT_HWCAP) & HWCAP_SHA2) != 0;
#else
    return 0;
#endif
}

#if defined(__clang__)
__attribute__((target("sha2")))
#else
__attribute__((target("+crypto")))
#endif
static void sha256_by_instructions(uint32_t state[8], const unsigned char *data, size_t count) {
    uint32x4_t abcd = vld1q_u32(state), efgh = vld1q_u32(state + 4);
    for (; count; count--, data += 64) {
        const uint32x4_t abcd_before = abcd, efgh_before = efgh;
        uint32x4_t words[4];
        for (int i = 0; i < 4; i++)
            words[i] = vreinterpretq_u32_u8(vrev32q_u8(vld1q_u8(data + 16 * i)));
#pragma GCC unroll 16
        for (int i = 0; i < 16; i++) {
            const uint32x4_t now = words[i & 3];
            const uint32x4_t sum = vaddq_u32(now, vld1q_u32(sha256_round + 4 * i));
            const uint32x4_t abcd_of_round = abcd;
            abcd = vsha256hq_u32(abcd, efgh, sum);
            efgh = vsha256h2q_u32(efgh, abcd_of_round, sum);
            if (i < 12)
                words[i & 3] = vsha256su1q_u32(vsha256su0q_u32(now, words[(i + 1) & 3]),
                                               words[(i + 2) & 3], words[(i + 3) & 3]);
        }
        abcd = vaddq_u32(abcd, abcd_before);
        efgh = vaddq_u32(efgh, efgh_before);
    }
    vst1q_u32(state, abcd);
    vst1q_u32(state + 4, efgh);
}

#endif

static void (*sha256_blocks)(uint32_t state[8], const unsigned char *data,
                             size_t count) = sha256_portable;

/* Once, before the first digest: asking the processor is slow on virtual machines. */
static void sha256_choose(void) {
#if defined(MMROUTE_SHA_X86) || defined(MMROUTE_SHA_ARM)
    if (sha256_has_instructions()) sha256_blocks = sha256_by_instructions;
#endif
}

static void sha256(const unsigned char *data, size_t size, unsigned char digest[32]) {
    uint32_t state[8];
    unsigned char tail[128] = {0};
    const size_t whole = size / 64, rest = size % 64, padded = rest < 56 ? 64 : 128;
    memcpy(state, sha256_start, sizeof state);
    memcpy(tail, data + 64 * whole, rest);
    tail[rest] = 0x80;
    for (int i = 0; i < 8; i++) tail[padded - 1 - i] = (unsigned char)((uint64_t)size * 8 >> 8 * i);
    sha256_blocks(state, data, whole);
    sha256_blocks(state, tail, padded / 64);
    for (int i = 0; i < 32; i++) digest[i] = (unsigned char)(state[i / 4] >> (24 - 8 * (i % 4)));
}

#endif
