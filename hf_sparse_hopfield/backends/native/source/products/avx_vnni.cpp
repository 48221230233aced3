// Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
// The products for processors with AVX-VNNI; empty where the compiler cannot produce them.
#include "products.hpp"

#if defined(__x86_64__) && defined(__GNUC__) && (__GNUC__ >= 11 || __clang_major__ >= 12)
#include <cstring>
#include <immintrin.h>

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma,avxvnni"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma,avxvnni")
#endif
namespace hopfield {
namespace {

#include "registers_256.hpp"

static inline Register add_bytes(Register sums, Register keys, Register query) {
  return _mm256_dpbusd_avx_epi32(sums, keys, query);
}
static inline Register add_words(Register sums, Register keys, Register query) {
  return _mm256_dpwssd_avx_epi32(sums, keys, query);
}

#include "x86.hpp"

constexpr Products table = {scan_all<false>, scan_all<true>, false, 0.08f, -40.0f, 0};

}  // namespace
}  // namespace hopfield
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

namespace hopfield {
const Products *avx_vnni_products() { return &table; }
}  // namespace hopfield
#else
namespace hopfield {
const Products *avx_vnni_products() { return nullptr; }
}  // namespace hopfield
#endif
