// Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
// The AVX-512 and VNNI instructions that the core uses, lane by lane, as their manual defines them: so that the tests can
// run that code on any x86 processor. Included before everything else.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>
#include <immintrin.h>

namespace emulated {

template <class To, class From>
static inline To as(const From &from) {
  static_assert(sizeof(To) == sizeof(From), "");
  To to;
  std::memcpy(&to, &from, sizeof(to));
  return to;
}

template <class Number, int count>
struct Lanes {
  Number of[count];
};
typedef Lanes<float, 16> F;
typedef Lanes<double, 8> D;
typedef Lanes<int32_t, 16> I;
typedef Lanes<int16_t, 32> S;
typedef Lanes<uint8_t, 64> B;

#define EACH(n, count) for (int n = 0; n < count; ++n)

static inline float reduce(__m512 x, bool sum) {
  F a = as<F>(x);
  for (int half = 8; half; half /= 2) EACH(n, half) a.of[n] = sum ? a.of[n] + a.of[n + half] : std::fmax(a.of[n], a.of[n + half]);
  return a.of[0];
}

// Lanes of blocks of 128 bits, as unpacklo and unpackhi take them.
template <class L, class M>
static inline M unpack(M x, M y, int count, int high) {
  const int per = count / 4;
  L a = as<L>(x), b = as<L>(y), r;
  EACH(block, 4) EACH(n, per / 2) {
    r.of[block * per + 2 * n] = a.of[block * per + high * per / 2 + n];
    r.of[block * per + 2 * n + 1] = b.of[block * per + high * per / 2 + n];
  }
  return as<M>(r);
}

static inline __m512 shuffle(__m512 x, __m512 y, int control) {
  F a = as<F>(x), b = as<F>(y), r;
  EACH(block, 4) {
    const F &from = block < 2 ? a : b;
    EACH(n, 4) r.of[block * 4 + n] = from.of[(control >> 2 * block & 3) * 4 + n];
  }
  return as<__m512>(r);
}

template <class L, class M>
static inline M compress(unsigned mask, M x) {
  L a = as<L>(x), r{};
  int count = 0;
  EACH(n, 16) if (mask >> n & 1) r.of[count++] = a.of[n];
  return as<M>(r);
}

static inline __m512 gather(__m512 otherwise, unsigned mask, __m512i index, const void *base, int scale) {
  F r = as<F>(otherwise);
  I at = as<I>(index);
  EACH(n, 16) if (mask >> n & 1) std::memcpy(&r.of[n], static_cast<const char *>(base) + int64_t(at.of[n]) * scale, 4);
  return as<__m512>(r);
}

static inline __m512 load_masked(unsigned mask, const void *source) {
  F r{};
  EACH(n, 16) if (mask >> n & 1) std::memcpy(&r.of[n], static_cast<const float *>(source) + n, 4);
  return as<__m512>(r);
}

static inline void store_masked(void *target, unsigned mask, __m512 x) {
  F a = as<F>(x);
  EACH(n, 16) if (mask >> n & 1) std::memcpy(static_cast<float *>(target) + n, &a.of[n], 4);
}

static inline unsigned greater(__m512 x, __m512 y) {
  F a = as<F>(x), b = as<F>(y);
  unsigned r = 0;
  EACH(n, 16) r |= unsigned(a.of[n] > b.of[n]) << n;
  return r;
}

static inline __m512 from_half(__m256i x) {
  const Lanes<uint16_t, 16> a = as<Lanes<uint16_t, 16>>(x);
  F r;
  EACH(n, 16) r.of[n] = _cvtsh_ss(a.of[n]);
  return as<__m512>(r);
}

// Sums of four products of unsigned and signed bytes, or of two products of words; of 4 * count bytes.
template <int count, class M>
static inline M dot_bytes(M sums, M x, M y) {
  auto a = as<Lanes<uint8_t, 4 * count>>(x);
  auto b = as<Lanes<int8_t, 4 * count>>(y);
  auto r = as<Lanes<int32_t, count>>(sums);
  EACH(n, count) EACH(k, 4) r.of[n] += int(a.of[4 * n + k]) * int(b.of[4 * n + k]);
  return as<M>(r);
}

template <int count, class M>
static inline M dot_words(M sums, M x, M y) {
  auto a = as<Lanes<int16_t, 2 * count>>(x), b = as<Lanes<int16_t, 2 * count>>(y);
  auto r = as<Lanes<int32_t, count>>(sums);
  EACH(n, count) EACH(k, 2) r.of[n] += int(a.of[2 * n + k]) * int(b.of[2 * n + k]);
  return as<M>(r);
}

static inline __m512i multiply_bytes(__m512i x, __m512i y) {  // saturates, as the instruction does
  B a = as<B>(x);
  auto b = as<Lanes<int8_t, 64>>(y);
  S r;
  EACH(n, 32) {
    const int sum = int(a.of[2 * n]) * b.of[2 * n] + int(a.of[2 * n + 1]) * b.of[2 * n + 1];
    r.of[n] = int16_t(sum > 32767 ? 32767 : sum < -32768 ? -32768 : sum);
  }
  return as<__m512i>(r);
}

template <class L, class M, class Function>
static inline M each(M x, M y, int count, Function function) {
  L a = as<L>(x), b = as<L>(y), r;
  EACH(n, count) r.of[n] = function(a.of[n], b.of[n]);
  return as<M>(r);
}

static inline __m512 swap_pairs(__m512 x) {
  F a = as<F>(x), r;
  EACH(n, 16) r.of[n] = a.of[n ^ 1];
  return as<__m512>(r);
}

template <class L, class M, class Number>
static inline M all(Number value, int count) {
  L r;
  EACH(n, count) r.of[n] = value;
  return as<M>(r);
}

static inline __m512i widen(__m256i x) {
  auto a = as<Lanes<uint16_t, 16>>(x);
  I r;
  EACH(n, 16) r.of[n] = a.of[n];
  return as<__m512i>(r);
}

static inline __m512 to_float(__m512i x) {
  I a = as<I>(x);
  F r;
  EACH(n, 16) r.of[n] = float(a.of[n]);
  return as<__m512>(r);
}

template <class M>
static inline M load(const void *source) {
  M r;
  std::memcpy(&r, source, sizeof(r));
  return r;
}

}  // namespace emulated

#define _mm512_add_epi32(x, y) emulated::each<emulated::I>(x, y, 16, [](int32_t a, int32_t b) { return int32_t(uint32_t(a) + uint32_t(b)); })
#define _mm512_add_ps(x, y) emulated::each<emulated::F>(x, y, 16, [](float a, float b) { return a + b; })
#define _mm512_and_si512(x, y) emulated::each<emulated::I>(x, y, 16, [](int32_t a, int32_t b) { return a & b; })
#define _mm512_castpd_ps(x) emulated::as<__m512>(x)
#define _mm512_castps_pd(x) emulated::as<__m512d>(x)
#define _mm512_castsi512_ps(x) emulated::as<__m512>(x)
#define _mm512_cmp_ps_mask(x, y, how) emulated::greater(x, y)
#define _mm512_cvtepi32_ps emulated::to_float
#define _mm512_cvtepu16_epi32 emulated::widen
#define _mm512_cvtph_ps emulated::from_half
#define _mm512_dpbusd_epi32(s, x, y) emulated::dot_bytes<16>(s, x, y)
#define _mm512_dpwssd_epi32(s, x, y) emulated::dot_words<16>(s, x, y)
#define _mm256_dpbusd_avx_epi32(s, x, y) emulated::dot_bytes<8>(s, x, y)
#define _mm256_dpwssd_avx_epi32(s, x, y) emulated::dot_words<8>(s, x, y)
#define _mm512_i32gather_ps(index, base, scale) emulated::gather(__m512{}, 0xffff, index, base, scale)
#define _mm512_mask_i32gather_ps emulated::gather
#define _mm512_loadu_ps(source) emulated::load<__m512>(source)
#define _mm512_loadu_si512(source) emulated::load<__m512i>(source)
#define _mm512_madd_epi16(x, y) emulated::dot_words<16>(__m512i{}, x, y)
#define _mm512_maddubs_epi16 emulated::multiply_bytes
#define _mm512_mask_storeu_ps emulated::store_masked
#define _mm512_maskz_compress_epi32(mask, x) emulated::compress<emulated::I>(mask, x)
#define _mm512_maskz_compress_ps(mask, x) emulated::compress<emulated::F>(mask, x)
#define _mm512_maskz_loadu_ps emulated::load_masked
#define _mm512_max_ps(x, y) emulated::each<emulated::F>(x, y, 16, [](float a, float b) { return a > b ? a : b; })
#define _mm512_mul_ps(x, y) emulated::each<emulated::F>(x, y, 16, [](float a, float b) { return a * b; })
#define _mm512_mullo_epi32(x, y) emulated::each<emulated::I>(x, y, 16, [](int32_t a, int32_t b) { return int32_t(uint32_t(a) * uint32_t(b)); })
#define _mm512_permute_ps(x, control) emulated::swap_pairs(x)
#define _mm512_reduce_add_ps(x) emulated::reduce(x, true)
#define _mm512_reduce_max_ps(x) emulated::reduce(x, false)
#define _mm512_set1_epi16(value) emulated::all<emulated::S, __m512i>(int16_t(value), 32)
#define _mm512_set1_epi32(value) emulated::all<emulated::I, __m512i>(int32_t(value), 16)
#define _mm512_set1_ps(value) emulated::all<emulated::F, __m512>(float(value), 16)
#define _mm512_shuffle_f32x4 emulated::shuffle
#define _mm512_slli_epi32(x, bits) emulated::each<emulated::I>(x, x, 16, [](int32_t a, int32_t) { return int32_t(uint32_t(a) << (bits)); })
#define _mm512_srli_epi16(x, bits) emulated::each<emulated::S>(x, x, 32, [](int16_t a, int16_t) { return int16_t(uint16_t(a) >> (bits)); })
#define _mm512_storeu_ps(target, x) std::memcpy(target, &static_cast<const __m512 &>(x), 64)
#define _mm512_storeu_si512(target, x) std::memcpy(target, &static_cast<const __m512i &>(x), 64)
#define _mm512_unpackhi_pd(x, y) emulated::unpack<emulated::D>(x, y, 8, 1)
#define _mm512_unpackhi_ps(x, y) emulated::unpack<emulated::F>(x, y, 16, 1)
#define _mm512_unpacklo_pd(x, y) emulated::unpack<emulated::D>(x, y, 8, 0)
#define _mm512_unpacklo_ps(x, y) emulated::unpack<emulated::F>(x, y, 16, 0)
