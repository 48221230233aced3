// Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
// The products of products.hpp on x86. The including file defines the register type with its few operations, opens the
// target pragma, and includes this file in a namespace of its own.

// The products of `rows` queries with `parts` registers of keys. All loops over rows and parts are unrolled, and the
// maxima stay in memory, or the sums would not stay in registers.
template <int rows, int parts, bool wide>
static inline void scan_registers(const uint8_t *codes, int64_t apart, int64_t quads, const int32_t *query,
                                  int64_t query_stride, const int32_t *offsets, const uint16_t *scales, float *scores,
                                  int64_t stride, float *maxima, int64_t maxima_stride) {
  Register sums[rows][parts];
#pragma GCC unroll 8
  for (int row = 0; row < rows; ++row) {
#pragma GCC unroll 2
    for (int part = 0; part < parts; ++part) sums[row][part] = spread_word(-offsets[row]);
  }
  for (int64_t quad = 0; quad < quads; ++quad, codes += 64) {
    Register keys[parts];
#pragma GCC unroll 2
    for (int part = 0; part < parts; ++part) keys[part] = load_bytes(codes + part * apart);
    if (!wide) {
#pragma GCC unroll 8
      for (int row = 0; row < rows; ++row) {
        const Register word = spread_word(query[row]);
#pragma GCC unroll 2
        for (int part = 0; part < parts; ++part) {
          sums[row][part] = add_bytes(sums[row][part], keys[part], word);
          keep_in_register(sums[row][part]);
        }
      }
      query += query_stride;
      continue;
    }
#pragma GCC unroll 2
    for (int odd = 0; odd < 2; ++odd) {
      Register half[parts];
#pragma GCC unroll 2
      for (int part = 0; part < parts; ++part) half[part] = odd ? odd_bytes(keys[part]) : even_bytes(keys[part]);
#pragma GCC unroll 8
      for (int row = 0; row < rows; ++row) {
        const Register word = spread_word(query[row]);
#pragma GCC unroll 2
        for (int part = 0; part < parts; ++part) {
          sums[row][part] = add_words(sums[row][part], half[part], word);
          keep_in_register(sums[row][part]);
        }
      }
      query += query_stride;
    }
  }
#pragma GCC unroll 2
  for (int part = 0; part < parts; ++part) {
    const Numbers scale = load_scales(scales + part * register_keys);
#pragma GCC unroll 8
    for (int row = 0; row < rows; ++row) {
      const Numbers value = times(scale, to_numbers(sums[row][part]));
      store_numbers(scores + row * stride + part * register_keys, value);
      float *most = maxima + row * maxima_stride + part * register_keys % tile_keys;
      store_numbers(most, larger_of(load_numbers(most), value));
    }
  }
}

// All tiles of a group with a few rows. `ahead`: asks for the keys 4 KB on, because by itself the processor stops at the
// end of a page.
template <int rows, bool wide, bool ahead>
static void scan_rows(const Scan &scan, int64_t first) {
  const int32_t *queries = scan.queries + first, *offsets = scan.offsets + first;
  const int64_t quads = scan.quads, key_bytes = quads * 4, keys = scan.tiles * tile_keys;
  const int64_t stride = scan.stride, maxima_stride = scan.maxima_stride, query_stride = scan.query_stride;
  float *scores = scan.scores + first * stride, *maxima = scan.maxima + first * maxima_stride;
  const uint8_t *codes = scan.codes;
  const uint16_t *scales = scan.scales;
  // the registers of a tile take turns; those of different tiles are a tile apart
  const int64_t apart = register_keys == tile_keys ? tile_keys * key_bytes : register_keys * 4;
  for (int row = 0; row < rows; ++row) {
    for (int64_t key = 0; key < tile_keys; key += register_keys) store_numbers(maxima + row * maxima_stride + key, lowest());
  }
  // Two registers at a time are enough independent sums to hide the latency of a product.
  int64_t place = 0;
  for (; place + 2 * register_keys <= keys; place += 2 * register_keys) {
    const uint8_t *from = codes + place * key_bytes;
    if (ahead) {
      for (int64_t byte = 4096; byte < 4096 + 2 * register_keys * key_bytes; byte += 64) __builtin_prefetch(from + byte);
    }
    scan_registers<rows, 2, wide>(from, apart, quads, queries, query_stride, offsets, scales + place, scores + place,
                                  stride, maxima, maxima_stride);
  }
  if (place < keys) {
    scan_registers<rows, 1, wide>(codes + place * key_bytes, apart, quads, queries, query_stride, offsets,
                                  scales + place, scores + place, stride, maxima, maxima_stride);
  }
}

template <bool wide, bool ahead>
static int64_t scan_block(const Scan &scan, int64_t row) {
  const int64_t left = scan.rows - row;
  if (most_rows == 8 && left >= 8) return scan_rows<most_rows, wide, ahead>(scan, row), 8;
  if (left >= 4) return scan_rows<4, wide, ahead>(scan, row), 4;
  if (left >= 2) return scan_rows<2, wide, ahead>(scan, row), 2;
  return scan_rows<1, wide, ahead>(scan, row), 1;
}

// Only the first rows ask for keys ahead; the others find them in the cache.
template <bool wide>
static void scan_all(const Scan &scan) {
  int64_t row = scan.ahead ? scan_block<wide, true>(scan, 0) : 0;
  while (row < scan.rows) row += scan_block<wide, false>(scan, row);
}
