// Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
// Products of quantized queries with the int8 copy of the keys: what `screen.hpp` bounds scores with. The copy lies in
// tiles of 16 keys, [tile][quad of entries][16 keys][4 entries], each entry as an unsigned byte with 128 for zero.
#pragma once

#include <cstdint>

namespace hopfield {

constexpr int64_t tile_keys = 16;
constexpr int64_t group_keys = 256;  // keys that share their bounds
constexpr int64_t group_tiles = group_keys / tile_keys;

// scores[row][key] = scale[key] * (query[row] . code[key]) for the first `tiles` tiles of a group, and in
// maxima[row][0 .. 16) the maximum of every sixteenth of them.
struct Scan {
  const uint8_t *codes;
  const uint16_t *scales;  // bfloat16
  int64_t quads, tiles;
  // Words of 32 bits, [quad][row]: the four 8-bit entries of a quad. Or [quad][2][row]: its 16-bit entries 0 and 2, then
  // 1 and 3.
  const int32_t *queries;
  int64_t query_stride;  // from a word of a row to its next
  const int32_t *offsets;  // 128 times the sum of the entries of a row
  int64_t rows;
  float *scores;
  int64_t stride;
  float *maxima;
  int64_t maxima_stride;
  bool ahead;  // whether to ask for the keys behind these, which are not in the cache
};

// One table for every instruction set.
struct Products {
  void (*narrow)(const Scan &scan);  // queries of 8 bits
  void (*wide)(const Scan &scan);    // queries of 16 bits: more exact, at about half the speed
  // Whether the magnitudes of the 8-bit entries 2 n and 2 n + 1 may sum up to 128 only, because their products with bytes
  // are added in 16 bits.
  bool paired;
  // With many queries, screening pays for rows of `least` keys and more, if at most `share * keys + fixed` of them have to be
  // scored. Measured where a processor was at hand (AVX2 and AVX-512 VNNI on different ones), otherwise estimated: this
  // decides on time, not on results.
  float share, fixed;
  int64_t least;

  float worth_scoring(int64_t keys) const {
    return keys < least ? 0.0f : share * static_cast<float>(keys) + fixed;
  }
};

}  // namespace hopfield
