// Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
// The products for ARM processors with the dot product instructions; empty where the compiler cannot produce them.
#include "products.hpp"

#if defined(__aarch64__) && defined(__GNUC__)
#include <arm_neon.h>

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("dotprod"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("arch=armv8.2-a+dotprod")
#endif
namespace hopfield {

const Products *generic_products();

namespace {

constexpr int registers = 4;  // of a quad of a tile: four keys each

// Four rows, or fewer, with one tile. Queries of rows that are not there may be anything.
template <int rows>
static inline void scan_tile(const uint8_t *codes, int64_t quads, const int32_t *queries, int64_t query_stride,
                             const uint16_t *scales, float *scores, int64_t stride, float *maxima,
                             int64_t maxima_stride) {
  int32x4_t sums[rows][registers];
  for (int row = 0; row < rows; ++row) {
    for (int n = 0; n < registers; ++n) sums[row][n] = vdupq_n_s32(0);
  }
  const uint8x16_t sign = vdupq_n_u8(128);  // codes become signed, so that the sums need no offset
  for (int64_t quad = 0; quad < quads; ++quad, codes += 64, queries += query_stride) {
    int8x16_t words[rows];
#pragma GCC unroll 4
    for (int row = 0; row < rows; ++row) words[row] = vreinterpretq_s8_s32(vdupq_n_s32(queries[row]));
#pragma GCC unroll 4
    for (int n = 0; n < registers; ++n) {
      const int8x16_t keys = vreinterpretq_s8_u8(veorq_u8(vld1q_u8(codes + 16 * n), sign));
#pragma GCC unroll 4
      for (int row = 0; row < rows; ++row) sums[row][n] = vdotq_s32(sums[row][n], keys, words[row]);
    }
  }
  for (int n = 0; n < registers; ++n) {
    const float32x4_t scale = vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(scales + 4 * n), 16));
    for (int row = 0; row < rows; ++row) {
      const float32x4_t value = vmulq_f32(scale, vcvtq_f32_s32(sums[row][n]));
      vst1q_f32(scores + row * stride + 4 * n, value);
      float *most = maxima + row * maxima_stride + 4 * n;
      vst1q_f32(most, vmaxq_f32(vld1q_f32(most), value));
    }
  }
}

template <int rows>
static void scan_rows(const Scan &scan, int64_t first) {
  float *scores = scan.scores + first * scan.stride, *maxima = scan.maxima + first * scan.maxima_stride;
  for (int row = 0; row < rows; ++row) {
    for (int64_t key = 0; key < tile_keys; ++key) maxima[row * scan.maxima_stride + key] = -__builtin_inff();
  }
  for (int64_t tile = 0; tile < scan.tiles; ++tile) {
    const uint8_t *codes = scan.codes + tile * scan.quads * 64;
    if (scan.ahead && first == 0) {
      for (int64_t byte = 0; byte < scan.quads * 64; byte += 64) __builtin_prefetch(codes + 4096 + byte);
    }
    scan_tile<rows>(codes, scan.quads, scan.queries + first, scan.query_stride, scan.scales + tile * tile_keys,
                    scores + tile * tile_keys, scan.stride, maxima, scan.maxima_stride);
  }
}

static void narrow(const Scan &scan) {
  int64_t row = 0;
  for (; row + 4 <= scan.rows; row += 4) scan_rows<4>(scan, row);
  if (row + 2 <= scan.rows) {
    scan_rows<2>(scan, row);
    row += 2;
  }
  if (row < scan.rows) scan_rows<1>(scan, row);
}

// Never needed, because 8-bit queries are as exact as they can be.
static void wide(const Scan &scan) { generic_products()->wide(scan); }

constexpr Products table = {narrow, wide, false, 0.055f, -40.0f, 0};

}  // namespace
}  // namespace hopfield
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

namespace hopfield {
const Products *neon_dot_products() { return &table; }
}  // namespace hopfield
#else
namespace hopfield {
const Products *neon_dot_products() { return nullptr; }
}  // namespace hopfield
#endif
