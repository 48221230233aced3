// Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
// Registers of 256 bits for x86.hpp; the including file adds `add_bytes` and `add_words`.
typedef __m256i Register;
typedef __m256 Numbers;
constexpr int64_t register_keys = 8;
constexpr int most_rows = 4;

static inline Register spread_word(int32_t word) { return _mm256_set1_epi32(word); }
static inline Register load_bytes(const uint8_t *source) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i *>(source));
}
static inline Register even_bytes(Register bytes) { return _mm256_and_si256(bytes, _mm256_set1_epi16(255)); }
static inline Register odd_bytes(Register bytes) { return _mm256_srli_epi16(bytes, 8); }
// Without this, the compiler reorders sums until they no longer fit the registers.
static inline void keep_in_register(Register &value) { __asm__("" : "+x"(value)); }
static inline Numbers lowest() { return _mm256_set1_ps(-__builtin_inff()); }
static inline Numbers larger_of(Numbers a, Numbers b) { return _mm256_max_ps(a, b); }
static inline Numbers times(Numbers a, Numbers b) { return _mm256_mul_ps(a, b); }
static inline void store_numbers(float *target, Numbers value) { _mm256_storeu_ps(target, value); }
static inline Numbers load_numbers(const float *source) { return _mm256_loadu_ps(source); }
static inline Numbers to_numbers(Register sums) { return _mm256_cvtepi32_ps(sums); }
static inline Numbers load_scales(const uint16_t *source) {
  const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i *>(source));
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16));
}
