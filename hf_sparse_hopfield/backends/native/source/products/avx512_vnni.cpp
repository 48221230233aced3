// Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
// The products for processors with AVX-512 VNNI; empty where the compiler cannot produce them.
#include "products.hpp"

#if defined(__x86_64__) && defined(__GNUC__)
#include <cstring>
#include <immintrin.h>

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,avx512vnni"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,avx512vnni")
#endif
namespace hopfield {
namespace {

#include "registers_512.hpp"

static inline Register add_bytes(Register sums, Register keys, Register query) {
  return _mm512_dpbusd_epi32(sums, keys, query);
}
static inline Register add_words(Register sums, Register keys, Register query) {
  return _mm512_dpwssd_epi32(sums, keys, query);
}

#include "x86.hpp"

constexpr Products table = {scan_all<false>, scan_all<true>, false, 0.0066f, 22.0f, 768};

}  // namespace
}  // namespace hopfield
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

namespace hopfield {
const Products *avx512_vnni_products() { return &table; }
}  // namespace hopfield
#else
namespace hopfield {
const Products *avx512_vnni_products() { return nullptr; }
}  // namespace hopfield
#endif
