// Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
// Registers of 512 bits for x86.hpp; the including file adds `add_bytes` and `add_words`.
typedef __m512i Register;
typedef __m512 Numbers;
constexpr int64_t register_keys = 16;
constexpr int most_rows = 8;

static inline Register spread_word(int32_t word) { return _mm512_set1_epi32(word); }
static inline Register load_bytes(const uint8_t *source) { return _mm512_loadu_si512(source); }
static inline Register even_bytes(Register bytes) { return _mm512_and_si512(bytes, _mm512_set1_epi16(255)); }
static inline Register odd_bytes(Register bytes) { return _mm512_srli_epi16(bytes, 8); }
// Without this, the compiler copies sums from register to register and to memory.
static inline void keep_in_register(Register &value) { __asm__("" : "+v"(value)); }
static inline Numbers lowest() { return _mm512_set1_ps(-__builtin_inff()); }
static inline Numbers larger_of(Numbers a, Numbers b) { return _mm512_max_ps(a, b); }
static inline Numbers times(Numbers a, Numbers b) { return _mm512_mul_ps(a, b); }
static inline void store_numbers(float *target, Numbers value) { _mm512_storeu_ps(target, value); }
static inline Numbers load_numbers(const float *source) { return _mm512_loadu_ps(source); }
static inline Numbers to_numbers(Register sums) { return _mm512_cvtepi32_ps(sums); }
static inline Numbers load_scales(const uint16_t *source) {
  const __m256i halves = _mm256_loadu_si256(reinterpret_cast<const __m256i *>(source));
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
}
