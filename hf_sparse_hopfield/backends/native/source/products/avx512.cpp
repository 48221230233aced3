// Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
// The products for processors with AVX-512; empty where the compiler cannot produce them.
#include "products.hpp"

#if defined(__x86_64__) && defined(__GNUC__)
#include <cstring>
#include <immintrin.h>

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")
#endif
namespace hopfield {
namespace {

#include "registers_512.hpp"

// Two products of bytes fit 16 bits because queries are `paired`.
static inline Register add_bytes(Register sums, Register keys, Register query) {
  const Register pairs = _mm512_maddubs_epi16(keys, query);
  return _mm512_add_epi32(sums, _mm512_madd_epi16(pairs, _mm512_set1_epi16(1)));
}
static inline Register add_words(Register sums, Register keys, Register query) {
  return _mm512_add_epi32(sums, _mm512_madd_epi16(keys, query));
}

#include "x86.hpp"

constexpr Products table = {scan_all<false>, scan_all<true>, true, 0.0026f, 14.0f, 2048};

}  // namespace
}  // namespace hopfield
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

namespace hopfield {
const Products *avx512_products() { return &table; }
}  // namespace hopfield
#else
namespace hopfield {
const Products *avx512_products() { return nullptr; }
}  // namespace hopfield
#endif
