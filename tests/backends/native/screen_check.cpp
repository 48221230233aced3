// Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
// Compares, without Python, screened retrieval with unscreened retrieval, and the products of this processor with the
// generic ones: for processors that only an emulator has here. Prints what differs; exits with 0 if nothing does.
#include <cmath>
#include <cstdio>
#include <cstring>
#include <random>
#include <vector>

#include "problem.hpp"

using namespace hopfield;

extern "C" {
int hopfield_forward(const ProblemOf<float> *);
int hopfield_screen(const ScreenedKeys *);
int hopfield_level(int);
void hopfield_screen_always(int);
}
namespace hopfield {
const Products *generic_products();
const Products *neon_dot_products();
const Products *avx2_products();
}  // namespace hopfield

static std::mt19937 random_bits(7);
static float normal() { return std::normal_distribution<float>()(random_bits); }

static int compare_products(const Products *own) {
  int wrong = 0;
  for (int64_t quads : {1, 3, 16}) {
    for (int64_t rows : {1, 2, 3, 4, 7, 32}) {
      for (int64_t tiles : {1, 5, 16}) {
        std::vector<uint8_t> codes(static_cast<size_t>(tiles * quads * 64));
        std::vector<uint16_t> scales(static_cast<size_t>(tiles * 16));
        std::vector<int32_t> words(static_cast<size_t>(quads * 2 * 32)), offsets(32);
        for (auto &code : codes) code = static_cast<uint8_t>(1 + random_bits() % 255);
        for (auto &scale : scales) scale = static_cast<uint16_t>(0x3c00 + random_bits() % 0x300);
        for (int64_t row = 0; row < 32; ++row) {
          int32_t sum = 0;
          for (int64_t quad = 0; quad < quads; ++quad) {
            int8_t entries[4];
            for (auto &entry : entries) sum += entry = static_cast<int8_t>(static_cast<int>(random_bits() % 129) - 64);
            std::memcpy(&words[static_cast<size_t>(quad * 32 + row)], entries, 4);
          }
          offsets[static_cast<size_t>(row)] = 128 * sum;
        }
        std::vector<float> results[2], maxima[2];
        for (int n = 0; n < 2; ++n) {
          results[n].assign(32 * 272, 0.0f);
          maxima[n].assign(32 * 16, 0.0f);
          Scan scan{codes.data(), scales.data(), quads, tiles, words.data(), 32, offsets.data(), rows,
                    results[n].data(), 272, maxima[n].data(), 16, n == 0};
          (n ? generic_products() : own)->narrow(scan);
        }
        wrong += results[0] != results[1] || maxima[0] != maxima[1];
      }
    }
  }
  if (wrong) std::printf("products differ in %d cases\n", wrong);
  return wrong;
}

static int compare_retrieval(int64_t heads, int64_t group, int64_t queries, int64_t keys, int64_t depth, double alpha,
                             float sharpness, bool is_causal) {
  std::vector<float> query(static_cast<size_t>(heads * group * queries * depth)), output[3];
  std::vector<float> key(static_cast<size_t>(heads * keys * depth)), value(key.size());
  for (auto &x : query) x = normal() * sharpness;
  for (auto &x : key) x = normal();
  for (auto &x : value) x = normal();
  const int64_t quads = (depth + 3) / 4, groups = (keys + group_keys - 1) / group_keys, places = groups * group_keys;
  std::vector<uint8_t> codes(static_cast<size_t>(heads * places * quads * 4));
  std::vector<uint16_t> scales(static_cast<size_t>(heads * places));
  std::vector<float> bounds(static_cast<size_t>(heads * groups * group_bounds));
  ScreenedKeys made{};
  made.batch = 1;
  made.heads = heads;
  made.head_dim = depth;
  made.last = keys;
  made.threads = 2;
  made.key = key.data();
  made.screen = {codes.data(), {0, places * quads * 4}, scales.data(), {0, places}, bounds.data(), {0, groups * group_bounds}};
  const int64_t stored[3] = {heads * keys * depth, keys * depth, depth};
  std::memcpy(made.key_stride, stored, sizeof(stored));
  hopfield_screen(&made);
  int64_t counts[count_kinds] = {};
  for (int screening = 0; screening < 3; ++screening) {
    output[screening].assign(query.size(), 0.0f);
    ProblemOf<float> problem{};
    problem.batch = 1;
    problem.heads = heads * group;
    problem.kv_heads = heads;
    problem.queries = queries;
    problem.keys = keys;
    problem.head_dim = problem.value_dim = depth;
    problem.is_causal = is_causal;
    problem.threads = 2;
    problem.support_per_row = 64;
    problem.query = query.data();
    problem.key = key.data();
    problem.value = value.data();
    problem.output = output[screening].data();
    const int64_t own[3] = {heads * group * queries * depth, queries * depth, depth};
    std::memcpy(problem.query_stride, own, sizeof(own));
    std::memcpy(problem.output_stride, own, sizeof(own));
    std::memcpy(problem.key_stride, stored, sizeof(stored));
    std::memcpy(problem.value_stride, stored, sizeof(stored));
    problem.scaling = 1.0 / std::sqrt(static_cast<double>(depth));
    problem.beta_scalar = 1.0;
    problem.alpha_scalar = alpha;
    problem.screening = screening;
    std::memcpy(&problem.screen, &made.screen, sizeof(made.screen));
    problem.counts = counts;
    if (int failure = hopfield_forward(&problem)) {
      std::printf("failure %d\n", failure);
      return 1;
    }
  }
  float worst = 0.0f;
  for (size_t n = 0; n < query.size(); ++n) {
    for (int way = 1; way < 3; ++way) worst = std::fmax(worst, std::fabs(output[way][n] - output[0][n]));
  }
  const bool wrong = !(worst < 1e-4f) || counts[screened_keys] == 0;
  if (wrong) std::printf("off by %g, %lld keys screened\n", worst, static_cast<long long>(counts[screened_keys]));
  return wrong;
}

int main() {
  hopfield_screen_always(1);
  const int level = hopfield_level(-1);
  std::printf("instruction set %d\n", level);
  int wrong = 0;
  const Products *own = level == 5 ? neon_dot_products() : level > 0 ? avx2_products() : nullptr;
  if (own) wrong += compare_products(own);
  for (double alpha : {2.0, 1.5, 1.3}) {
    for (bool causal : {false, true}) {
      wrong += compare_retrieval(2, 4, 1, 3000, 64, alpha, 3.0f, causal);
      wrong += compare_retrieval(1, 1, 40, 1200, 24, alpha, 3.0f, causal);
      wrong += compare_retrieval(2, 2, 33, 650, 17, alpha, 1.0f, causal);
    }
  }
  std::printf(wrong ? "%d cases differ\n" : "all alike\n", wrong);
  return wrong != 0;
}
