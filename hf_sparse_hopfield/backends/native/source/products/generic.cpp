// Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
// The products for every processor the compiler knows.
#include "products.hpp"

#include <cstring>

namespace hopfield {
namespace {

static inline float scale_of(uint16_t half) {
  const uint32_t bits = static_cast<uint32_t>(half) << 16;
  float scale;
  std::memcpy(&scale, &bits, sizeof(scale));
  return scale;
}

// The entries of a quad of a row.
template <class Entry>
static void read_quad(const int32_t *words, int64_t stride, int32_t *entries) {
  constexpr int each = 4 / sizeof(Entry);  // of a word
  for (int word = 0; word < 4 / each; ++word) {
    Entry some[each];
    std::memcpy(some, words + word * stride, sizeof(some));
    for (int n = 0; n < each; ++n) entries[n * 4 / each + word] = some[n];
  }
}

template <class Entry>
static void scan_all(const Scan &scan) {
  for (int64_t row = 0; row < scan.rows; ++row) {
    float *scores = scan.scores + row * scan.stride, *maxima = scan.maxima + row * scan.maxima_stride;
    for (int64_t key = 0; key < tile_keys; ++key) maxima[key] = -__builtin_inff();
    for (int64_t tile = 0; tile < scan.tiles; ++tile) {
      const uint8_t *codes = scan.codes + tile * scan.quads * 64;
      const int32_t *words = scan.queries + row;
      int32_t sums[tile_keys] = {};
      for (int64_t quad = 0; quad < scan.quads; ++quad, words += scan.query_stride * sizeof(Entry)) {
        int32_t entries[4];
        read_quad<Entry>(words, scan.query_stride, entries);
        for (int64_t key = 0; key < tile_keys; ++key) {
          const uint8_t *code = codes + quad * 64 + key * 4;
          sums[key] += code[0] * entries[0] + code[1] * entries[1] + code[2] * entries[2] + code[3] * entries[3];
        }
      }
      for (int64_t key = 0; key < tile_keys; ++key) {
        const int64_t place = tile * tile_keys + key;
        const float value = scale_of(scan.scales[place]) * static_cast<float>(sums[key] - scan.offsets[row]);
        scores[place] = value;
        maxima[key] = value > maxima[key] ? value : maxima[key];
      }
    }
  }
}

constexpr Products table = {scan_all<int8_t>, scan_all<int16_t>, false, 0.0f, 0.0f, 0};

}  // namespace

const Products *generic_products() { return &table; }

}  // namespace hopfield
