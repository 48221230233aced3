// Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
// The few vector operations the kernels need, for the instruction set chosen by the file that includes this one.
// Compiler vector extensions carry most of it; intrinsics only for operations that the extensions lack.
#include <cmath>
#include <cstring>

#if defined(HOPFIELD_AVX512)
constexpr int lanes = 16;
#elif defined(HOPFIELD_AVX2)
constexpr int lanes = 8;
#else
constexpr int lanes = 4;
#endif

// `Integers` are as wide as numbers, as comparisons require; `Unsigned` and indices in memory have 32 bits.
typedef Real Vector __attribute__((vector_size(lanes * sizeof(Real))));
typedef Integer Integers __attribute__((vector_size(lanes * sizeof(Real))));
typedef uint32_t Unsigned __attribute__((vector_size(lanes * 4)));
typedef Real LooseVector __attribute__((vector_size(lanes * sizeof(Real)), aligned(sizeof(Real)), may_alias));
typedef int32_t LooseIndices __attribute__((vector_size(lanes * 4), aligned(4), may_alias));

constexpr bool is_double = sizeof(Real) == 8;
constexpr Real infinity = __builtin_inff();
// Below this a weight has no logarithm here.
constexpr Real least_weight = static_cast<Real>(is_double ? 1e-300 : 1e-37);

static inline Vector load(const Real *source) { return *reinterpret_cast<const LooseVector *>(source); }
static inline void store(Real *target, Vector value) { *reinterpret_cast<LooseVector *>(target) = value; }
static inline Integers load_indices(const int32_t *source) {
  return __builtin_convertvector(*reinterpret_cast<const LooseIndices *>(source), Integers);
}

static inline Vector spread(Real value) {
#if defined(HOPFIELD_AVX512)
  return (Vector)_mm512_set1_ps(value);
#elif defined(HOPFIELD_AVX2)
  return (Vector)_mm256_set1_ps(value);
#else
  return value - Vector{};
#endif
}

static inline Integers spread(Integer value) { return value - Integers{}; }

static inline Integers count_lanes() {
  Integers result{};
  for (int lane = 0; lane < lanes; ++lane) result[lane] = lane;
  return result;
}

static inline bool any(Integers condition) {
#if defined(HOPFIELD_AVX2)
  return !_mm256_testz_si256((__m256i)condition, (__m256i)condition);
#endif
  for (int lane = 0; lane < lanes; ++lane) {
    if (condition[lane]) return true;
  }
  return false;
}

static inline Vector choose(Integers condition, Vector yes, Vector no) {
  return (Vector)((condition & (Integers)yes) | (~condition & (Integers)no));
}

static inline Vector larger(Vector a, Vector b) {
#if defined(HOPFIELD_AVX512)
  return (Vector)_mm512_max_ps((__m512)a, (__m512)b);
#elif defined(HOPFIELD_AVX2)
  return (Vector)_mm256_max_ps((__m256)a, (__m256)b);
#else
  return choose(a > b, a, b);
#endif
}

static inline Real sum_of(Vector value) {
#if defined(HOPFIELD_AVX512)
  return _mm512_reduce_add_ps((__m512)value);
#elif defined(HOPFIELD_AVX2)
  __m128 four = _mm_add_ps(_mm256_castps256_ps128((__m256)value), _mm256_extractf128_ps((__m256)value, 1));
  four = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(four, _mm_movehdup_ps(four)));
#else
  Real pairs[lanes / 2];
  for (int lane = 0; lane < lanes / 2; ++lane) pairs[lane] = value[lane] + value[lane + lanes / 2];
  Real total = 0.0f;
  for (int lane = 0; lane < lanes / 2; ++lane) total += pairs[lane];
  return total;
#endif
}

static inline Real largest_of(Vector value) {
#if defined(HOPFIELD_AVX512)
  return _mm512_reduce_max_ps((__m512)value);
#elif defined(HOPFIELD_AVX2)
  __m128 four = _mm_max_ps(_mm256_castps256_ps128((__m256)value), _mm256_extractf128_ps((__m256)value, 1));
  four = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(four, _mm_movehdup_ps(four)));
#else
  Real result = value[0];
  for (int lane = 1; lane < lanes; ++lane) result = value[lane] > result ? value[lane] : result;
  return result;
#endif
}

// Lane i of the result is the sum of the lanes of sums[i].
static inline Vector sum_each(const Vector *sums) {
#if defined(HOPFIELD_AVX512)
  __m512 quads[4];
  for (int i = 0; i < 4; ++i) {
    const Vector *s = sums + 4 * i;
    __m512 a = (__m512)s[0], b = (__m512)s[1], c = (__m512)s[2], d = (__m512)s[3];
    __m512d ab = _mm512_castps_pd(_mm512_add_ps(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b)));
    __m512d cd = _mm512_castps_pd(_mm512_add_ps(_mm512_unpacklo_ps(c, d), _mm512_unpackhi_ps(c, d)));
    __m512d even = _mm512_unpacklo_pd(ab, cd), odd = _mm512_unpackhi_pd(ab, cd);
    quads[i] = _mm512_add_ps(_mm512_castpd_ps(even), _mm512_castpd_ps(odd));
  }
  __m512 low = _mm512_add_ps(_mm512_shuffle_f32x4(quads[0], quads[1], 0x44),
                             _mm512_shuffle_f32x4(quads[0], quads[1], 0xee));
  __m512 high = _mm512_add_ps(_mm512_shuffle_f32x4(quads[2], quads[3], 0x44),
                              _mm512_shuffle_f32x4(quads[2], quads[3], 0xee));
  return (Vector)_mm512_add_ps(_mm512_shuffle_f32x4(low, high, 0x88), _mm512_shuffle_f32x4(low, high, 0xdd));
#elif defined(HOPFIELD_AVX2)
  __m256 quads[2];
  for (int i = 0; i < 2; ++i) {
    const Vector *s = sums + 4 * i;
    __m256 ab = _mm256_hadd_ps((__m256)s[0], (__m256)s[1]), cd = _mm256_hadd_ps((__m256)s[2], (__m256)s[3]);
    quads[i] = _mm256_hadd_ps(ab, cd);
  }
  return (Vector)_mm256_add_ps(_mm256_permute2f128_ps(quads[0], quads[1], 0x20),
                               _mm256_permute2f128_ps(quads[0], quads[1], 0x31));
#else
  Vector result;
  for (int lane = 0; lane < lanes; ++lane) result[lane] = sum_of(sums[lane]);
  return result;
#endif
}

// Lanes 2 n and 2 n + 1 exchanged.
static inline Vector swap_neighbours(Vector value) {
#if defined(HOPFIELD_AVX512)
  return (Vector)_mm512_permute_ps((__m512)value, 0xb1);
#elif defined(HOPFIELD_AVX2)
  return (Vector)_mm256_permute_ps((__m256)value, 0xb1);
#else
  Vector result;
  for (int lane = 0; lane < lanes; ++lane) result[lane] = value[lane ^ 1];
  return result;
#endif
}

// One bit per lane where `value > bound`.
static inline uint32_t above(Vector value, Vector bound) {
#if defined(HOPFIELD_AVX512)
  return _mm512_cmp_ps_mask((__m512)value, (__m512)bound, _CMP_GT_OQ);
#elif defined(HOPFIELD_AVX2)
  return static_cast<uint32_t>(_mm256_movemask_ps(_mm256_cmp_ps((__m256)value, (__m256)bound, _CMP_GT_OQ)));
#else
  Integers condition = value > bound;
  uint32_t bits = 0;
  for (int lane = 0; lane < lanes; ++lane) bits |= static_cast<uint32_t>(condition[lane] & 1) << lane;
  return bits;
#endif
}

// The first `count` (<= lanes) elements of a vector; the rest reads as zero and is not written.
static inline Vector load_some(const Real *source, int count) {
#if defined(HOPFIELD_AVX512)
  return (Vector)_mm512_maskz_loadu_ps(static_cast<__mmask16>((1u << count) - 1), source);
#else
  Real copy[lanes] = {};
  for (int lane = 0; lane < count; ++lane) copy[lane] = source[lane];
  return load(copy);
#endif
}

static inline void store_some(Real *target, Vector value, int count) {
#if defined(HOPFIELD_AVX512)
  _mm512_mask_storeu_ps(target, static_cast<__mmask16>((1u << count) - 1), (__m512)value);
#else
  for (int lane = 0; lane < count; ++lane) target[lane] = value[lane];
#endif
}

// Appends the lanes of `value` and `index` whose bit is set; writes a whole vector, so targets need that much room.
static inline int append(Real *values, int32_t *indices, Vector value, Integers index, uint32_t bits) {
#if defined(HOPFIELD_AVX512)
  _mm512_storeu_ps(values, _mm512_maskz_compress_ps(static_cast<__mmask16>(bits), (__m512)value));
  _mm512_storeu_si512(indices, _mm512_maskz_compress_epi32(static_cast<__mmask16>(bits), (__m512i)index));
  return __builtin_popcount(bits);
#elif defined(HOPFIELD_AVX2)
  const uint64_t wanted = _pdep_u64(bits, 0x0101010101010101ull) * 0xff;  // a byte for each lane
  const __m128i order = _mm_cvtsi64_si128(static_cast<int64_t>(_pext_u64(0x0706050403020100ull, wanted)));
  const __m256i lanes_in_order = _mm256_cvtepu8_epi32(order);
  _mm256_storeu_ps(values, _mm256_permutevar8x32_ps((__m256)value, lanes_in_order));
  _mm256_storeu_si256(reinterpret_cast<__m256i *>(indices), _mm256_permutevar8x32_epi32((__m256i)index, lanes_in_order));
  return __builtin_popcount(bits);
#else
  int count = 0;
  while (bits) {
    int lane = __builtin_ctz(bits);
    values[count] = value[lane];
    indices[count++] = index[lane];
    bits &= bits - 1;
  }
  return count;
#endif
}

#if defined(HOPFIELD_DOUBLE)
// Exact to the last bits, at the price of one call per lane.
static inline Vector exponential(Vector x) {
  for (int lane = 0; lane < lanes; ++lane) x[lane] = std::exp(x[lane]);
  return x;
}

static inline Vector logarithm(Vector x) {
  for (int lane = 0; lane < lanes; ++lane) x[lane] = std::log(x[lane]);
  return x;
}

static inline Vector power_of(Vector x, Real c) {
  for (int lane = 0; lane < lanes; ++lane) x[lane] = std::pow(x[lane], c);
  return x;
}
#else
// exp for arguments up to 88; below -87 the result is zero. The polynomials of this and the next function are our own
// fits, to about 1e-9 and 6e-9.
static inline Vector exponential(Vector x) {
  Vector clamped = larger(x, spread(-87.0f));
  // Adding and subtracting 1.5 * 2^23 rounds to the nearest integer without a rounding instruction.
  Vector shifted = clamped * 1.44269504f + 12582912.0f;
  Vector whole = shifted - 12582912.0f;
  Vector r = clamped * 1.44269504f - whole;
  r = clamped * 1.92596299e-8f + r;
  Vector series = r * 1.53533605e-4f + 1.33988750e-3f;
  series = series * r + 9.61843692e-3f;
  series = series * r + 5.55033237e-2f;
  series = series * r + 2.40226477e-1f;
  series = series * r + 6.93147182e-1f;
  series = series * r + 1.0f;
  Integers power = ((Integers)shifted + (127 - 0x4b400000)) << 23;
  return (Vector)((Integers)(series * (Vector)power) & (x >= -87.0f));
}

// log for positive normal numbers; accurate to the last bits even close to one.
static inline Vector logarithm(Vector x) {
  Integers bits = (Integers)x;
  Integers exponent = (bits - 0x3f3504f3) >> 23;
  Vector f = (Vector)(bits - (exponent << 23)) - 1.0f;
  Vector e = __builtin_convertvector(exponent, Vector);
  Vector series = f * -7.63443783e-2f + 1.27615631e-1f;
  series = series * f - 1.31601974e-1f;
  series = series * f + 1.42017603e-1f;
  series = series * f - 1.66233554e-1f;
  series = series * f + 2.00012267e-1f;
  series = series * f - 2.50008225e-1f;
  series = series * f + 3.33333313e-1f;
  Vector square = f * f;
  Vector low = series * f * square + e * -2.12194440e-4f - 0.5f * square;
  return f + low + e * 0.693359375f;
}

// x^c for normal x > 0 and results above 2^-126, to about 1e-7: half the work of the two functions above.
static inline Vector power_of(Vector x, Real c) {
  Integers bits = (Integers)x;
  Integers exponent = (bits - 0x3f3504f3) >> 23;
  Vector f = (Vector)(bits - (exponent << 23)) - 1.0f;
  Vector series = f * 0.125836208f - 0.207269475f;
  series = series * f + 0.215715781f;
  series = series * f - 0.238944873f;
  series = series * f + 0.287916243f;
  series = series * f - 0.360703677f;
  series = series * f + 0.480910629f;
  series = series * f - 0.721347332f;
  series = series * f + 1.44269502f;
  Vector binary = series * f + __builtin_convertvector(exponent, Vector);
  Vector wanted = larger(binary * c, spread(-126.0f));
  Vector shifted = wanted + 12582912.0f;
  Vector r = wanted - (shifted - 12582912.0f);
  series = r * 0.00132764073f + 0.00967554003f;
  series = series * r + 0.0555071346f;
  series = series * r + 0.240221202f;
  series = series * r + 0.693146944f;
  series = series * r + 1.00000012f;
  return (Vector)((Integers)series + ((Integers)shifted << 23));
}
#endif

// 1 / k!
struct InverseFactorials {
  Real of[16];
  constexpr InverseFactorials() : of() {
    double factorial = 1.0;
    for (int k = 0; k < 16; factorial *= ++k) of[k] = Real(1) / static_cast<Real>(factorial);
  }
};

// The sum of x^k / (k + skip)! over `terms` terms: exp(x) without its first terms, divided by x^skip, for |x| < 0.3.
template <int skip, int terms>
static inline Vector exponential_tail(Vector x) {
  constexpr InverseFactorials inverse;
  Vector series = x * inverse.of[terms - 1 + skip] + inverse.of[terms - 2 + skip];
#pragma GCC unroll 16
  for (int k = terms - 3; k >= 0; --k) series = series * x + inverse.of[k + skip];
  return series;
}
