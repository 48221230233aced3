// Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
// The problem that Python passes: plain pointers, sizes and strides (in elements). No torch headers, no ownership.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "products/products.hpp"

namespace hopfield {

// Everything is compiled for float and for double: `Real`. Integers stored among them have the same width.
template <class Real>
using IntegerOf = std::conditional_t<sizeof(Real) == 8, int64_t, int32_t>;

// Rows are solved in blocks of this many queries. The support is stored per block, so Python knows this number too.
constexpr int64_t block_rows = 32;

// The state of a row, kept for the backward pass. `count` is the size of its support; `offset` is where the support
// starts in the region of its block, or -1 if it did not fit and has to be computed again from `maximum` and
// `threshold`.
template <class Real>
struct RowStateOf {
  Real maximum;
  Real threshold;
  IntegerOf<Real> count;
  IntegerOf<Real> offset;
};

constexpr int64_t decode_rows = 16;     // up to this many queries that share keys, no packing pays
constexpr int64_t decode_chunk = 1024;  // keys of a task then

constexpr int32_t row_is_nan = -2;  // in RowStateOf::count

// How a number of a key or value is stored.
enum StoredKind { stored_real, stored_bfloat16, stored_float16 };

// No screening; with the screen of the caller; with a screen that is made for this call, if that pays.
enum Screening { never_screen, screen_given, screen_made };

// What `counts` counts.
enum Count { screened_keys, scored_keys, read_values, ordinary_rows, count_kinds };

// An int8 copy of keys, as products/products.hpp describes it. Strides are over (batch, heads).
template <class Code, class Scale, class Bound>
struct ScreenOf {
  Code *codes;
  int64_t code_stride[2];
  Scale *scales;  // bfloat16, of each key
  int64_t scale_stride[2];
  Bound *bounds;  // of each group of keys, `group_bounds` numbers
  int64_t bound_stride[2];
};

// Of a group of keys: the largest norm of what rounding to codes left, in units of the scale; the largest norm of codes;
// the largest scale.
constexpr int64_t group_bounds = 3;

// All fields have eight bytes; library.py packs them in this order.
template <class Real>
struct ProblemOf {
  int64_t batch, heads, kv_heads, queries, keys, head_dim, value_dim;
  int64_t is_causal, sliding_window;  // a window of 0 is none
  int64_t seed, threads, support_per_row;
  // Strides of tensors of vectors are over (batch, heads, rows); the vectors themselves are contiguous.
  const Real *query;
  int64_t query_stride[3];
  const Real *key;
  int64_t key_stride[3];
  const Real *value;
  int64_t value_stride[3];
  // Settings of a row; a null pointer means that the scalar below holds for every row.
  const Real *beta;
  int64_t beta_stride[3];
  const Real *alpha;
  int64_t alpha_stride[3];
  const uint8_t *mask;
  int64_t mask_stride[4];
  const Real *bias;
  int64_t bias_stride[4];
  const Real *sinks;
  // Forward. `states` and `support` are null when no gradient will be asked for.
  Real *output;
  int64_t output_stride[3];
  RowStateOf<Real> *states;
  IntegerOf<Real> *support;
  // Backward. The gradients of alpha, sinks and log(beta) have one entry per row; they and that of the bias may be
  // null.
  const Real *output_gradient;
  int64_t output_gradient_stride[3];
  Real *query_gradient;
  int64_t query_gradient_stride[3];
  Real *key_gradient;
  int64_t key_gradient_stride[3];
  Real *value_gradient;
  int64_t value_gradient_stride[3];
  Real *bias_gradient;
  int64_t bias_gradient_stride[4];
  Real *alpha_gradient;
  Real *sink_gradient;
  Real *beta_gradient;
  double scaling, beta_scalar, alpha_scalar, dropout;
  // Decode without a backward pass: the row of the keys and values at which each key is, or null if they are in order.
  const int64_t *places;
  int64_t places_stride;  // over the batch
  // How the numbers of keys and values are stored; other than as `Real` only for decode without a backward pass.
  int64_t key_kind, value_kind;
  // The int8 copy of the keys, in float only. `screening` says whether to use it.
  int64_t screening;
  ScreenOf<const uint8_t, const uint16_t, const float> screen;
  int64_t screen_first;  // place of the first key in it
  int64_t *counts;       // null, or where to add up what was read: see Count
};

static_assert(sizeof(void *) == 8, "pointers are passed as 64-bit integers");
static_assert(sizeof(ProblemOf<float>) == sizeof(ProblemOf<double>), "library.py packs both alike");

// The state that the threads of one call share.
template <class Real>
struct SharedOf {
  const ProblemOf<Real> *problem;
  int64_t splits;          // query blocks of one head are dealt to this many tasks
  int64_t tasks;
  int64_t next;            // taken with an atomic increment
  int32_t failed;          // set when memory ran out
  Real *scores;            // decode: the scores of all rows
  int64_t score_stride;
  Real *dense;             // decode: the factor on weights that were left in `scores`, 0 for a row that is done
  int32_t *pending;        // decode: chunks of a head that are not scored yet
  int32_t read_later;      // decode: dense rows are read in a phase of their own
  Real *partial;           // backward: gradients of key and value of the splits after the first
  const Products *products;  // screening
  int always;                // whether it pays or not
  ScreenOf<uint8_t, uint16_t, float> made;  // the screen that is made for this call
  const uint8_t *ordinary;   // decode: rows to compute, or null for all
  // Screened decode: parts of the keys of a head, and the list that each row has after each part.
  int64_t parts, part_keys;
  bool wide;
  Real *list_values, *list_errors;
  int32_t *list_indices;
  int32_t *list_counts;      // below zero: the row takes the ordinary way
  uint8_t *took_ordinary;
};

// The keys to add to a screen. All fields have eight bytes; library.py packs them in this order.
struct ScreenedKeys {
  int64_t batch, heads, head_dim, first, last;  // places in the screen; those before `first` are there already
  int64_t threads, kind;
  const void *key;  // of place `first`
  int64_t key_stride[3];
  ScreenOf<uint8_t, uint16_t, float> screen;
};

// One table for every instruction set; the worker functions are run by all threads at once.
template <class Real>
struct KernelsOf {
  void (*forward)(SharedOf<Real> *);
  void (*decode)(SharedOf<Real> *);
  void (*decode_read)(SharedOf<Real> *);
  void (*backward)(SharedOf<Real> *);
  void (*reduce)(SharedOf<Real> *);
  void (*bias)(SharedOf<Real> *);
  void (*screened_decode)(SharedOf<Real> *);
  void (*make_screen)(SharedOf<Real> *);
  void (*add_to_screen)(const ScreenedKeys &keys, int64_t b, int64_t h);
  int64_t (*padded_keys)(int64_t keys);
  int64_t vector_lanes;
};

// Grow-only memory of the calling thread, given back when the thread ends; null when memory ran out. What screens and
// what takes the ordinary way have memory of their own, because many calls need only one.
enum Slot { ordinary_slot, screen_slot, slots };
char *scratch(size_t bytes, Slot slot);
void release_large_scratch();

static inline int64_t round_up(int64_t value,
                               int64_t multiple) { return (value + multiple - 1) / multiple * multiple; }

static inline int64_t minimum(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t maximum(int64_t a, int64_t b) { return a > b ? a : b; }

}  // namespace hopfield
