// Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
// Register-blocked matrix products: scores (Q K^T, also dO V^T), dense read-out (P V, also dS K) and dense
// accumulation over rows (P^T dO, dS^T Q).

// Rows of a register tile and vectors across it: accumulators, operands and one broadcast fit the register file.
#if defined(HOPFIELD_AVX512) || defined(__aarch64__)
constexpr int tile_rows = 8;
#else
constexpr int tile_rows = 6;
#endif
constexpr int panel_vectors = 2;
constexpr int panel = panel_vectors * lanes;

// Calls `Function<rows>::run(arguments...)` with the row count as a compile-time constant.
template <template <int> class Function, class... Arguments>
static inline void with_rows(int rows, Arguments... arguments) {
  switch (rows) {
    case 1: return Function<1>::run(arguments...);
    case 2: return Function<2>::run(arguments...);
    case 3: return Function<3>::run(arguments...);
    case 4: return Function<4>::run(arguments...);
    case 5: return Function<5>::run(arguments...);
    case 6: return Function<6>::run(arguments...);
#if defined(HOPFIELD_AVX512) || defined(__aarch64__)
    case 7: return Function<7>::run(arguments...);
    case 8: return Function<8>::run(arguments...);
#endif
    default: return;
  }
}

// Bits of 1e15 (of 1e150 in double): products of smaller numbers do not overflow.
constexpr Integer suspicious_bits = static_cast<Integer>(is_double ? 0x5f138d352e5096af : 0x58635fa9);
constexpr Integer magnitude_bits = static_cast<Integer>(is_double ? INT64_MAX : INT32_MAX);

// Copies rows `first .. last` of a row-major matrix to panels [depth][panel]; rows past `last` become zero. Returns
// whether a number was found that could overflow or poison a product, so that only then rows are searched for NaN.
static bool pack_panels(const Real *source, int64_t stride, int64_t rows, int64_t depth, Real *target) {
  Integers suspicious{};
  const Integers magnitude = spread(magnitude_bits);
  const Integers limit = spread(suspicious_bits);
  for (int64_t first = 0; first < rows; first += panel, target += panel * depth) {
    int64_t valid = minimum(panel, rows - first);
    for (int64_t part = 0; part < panel; part += lanes) {
      for (int64_t d = 0; d < depth; d += lanes) {
        int width = static_cast<int>(minimum(lanes, depth - d));
        Real square[lanes][lanes] __attribute__((aligned(64)));
        for (int row = 0; row < lanes; ++row) {
          Vector value{};
          if (part + row < valid) {
            const Real *from = source + (first + part + row) * stride + d;
            value = width == lanes ? load(from) : load_some(from, width);
          }
          suspicious |= ((Integers)value & magnitude) > limit;
          store(square[row], value);
        }
#if defined(HOPFIELD_AVX512)
        const __m512i step = _mm512_mullo_epi32((__m512i)count_lanes(), _mm512_set1_epi32(lanes));
        for (int column = 0; column < width; ++column) {
          __m512 turned = _mm512_i32gather_ps(step, &square[0][column], 4);
          _mm512_storeu_ps(target + (d + column) * panel + part, turned);
        }
#else
        for (int column = 0; column < width; ++column) {
          for (int row = 0; row < lanes; ++row) target[(d + column) * panel + part + row] = square[row][column];
        }
#endif
      }
    }
  }
  return any(suspicious);
}

// Copies rows, scaled, to rows of `depth` numbers for the broadcasts of `ScoreTile`. Same return value as
// `pack_panels`.
static bool pack_rows(const Real *const *source, int rows, int64_t depth, const Real *scale, Real *target) {
  Integers suspicious{};
  const Integers magnitude = spread(magnitude_bits), limit = spread(suspicious_bits);
  for (int row = 0; row < rows; ++row, target += depth) {
    Vector factor = spread(scale ? scale[row] : 1.0f);
    int64_t d = 0;
    for (; d + lanes <= depth; d += lanes) {
      Vector value = load(source[row] + d) * factor;
      suspicious |= ((Integers)value & magnitude) > limit;
      store(target + d, value);
    }
    if (d < depth) {
      int tail = static_cast<int>(depth - d);
      Vector value = load_some(source[row] + d, tail) * factor;
      suspicious |= ((Integers)value & magnitude) > limit;
      store_some(target + d, value, tail);
    }
  }
  return any(suspicious);
}

// scores[row][0 .. panel) = packed rows times one packed panel; `maxima[row]` is raised to the lane-wise maximum.
template <int rows>
struct ScoreTile {
  static void run(const Real *left, const Real *right, int64_t depth, Real *scores, int64_t stride, Vector *maxima,
                  int64_t maxima_stride) {
    Vector sums[rows][panel_vectors] = {};
    for (int64_t d = 0; d < depth; ++d, right += panel) {
      Vector columns[panel_vectors];
#pragma GCC unroll 2
      for (int v = 0; v < panel_vectors; ++v) columns[v] = load(right + v * lanes);
#pragma GCC unroll 16
      for (int row = 0; row < rows; ++row) {
        Vector factor = spread(left[row * depth + d]);
#pragma GCC unroll 2
        for (int v = 0; v < panel_vectors; ++v) sums[row][v] += factor * columns[v];
      }
    }
#pragma GCC unroll 16
    for (int row = 0; row < rows; ++row) {
#pragma GCC unroll 2
      for (int v = 0; v < panel_vectors; ++v) store(scores + row * stride + v * lanes, sums[row][v]);
      if (maxima) {
        Vector *target = maxima + row * maxima_stride;
        *target = larger(*target, larger(sums[row][0], sums[row][1]));
      }
    }
  }
};

// target[row] += sum over j of weights[row][j] * source[j], for two vectors of columns; the rows are given by pointers
// because dense rows may lie anywhere in a block.
template <int rows>
struct ReadTile {
  static void run(const Real *const *weights, int64_t count, const Real *source, int64_t stride,
                  Real *const *target, int64_t column, int tail) {
    Vector sums[rows][2];
    bool two = tail < 0;
    for (int row = 0; row < rows; ++row) {
      sums[row][0] = tail > 0 ? load_some(target[row] + column, tail) : load(target[row] + column);
      sums[row][1] = two ? load(target[row] + column + lanes) : Vector{};
    }
    const Real *pointers[rows];
    for (int row = 0; row < rows; ++row) pointers[row] = weights[row];
    source += column;
    if (two) {
      for (int64_t j = 0; j < count; ++j, source += stride) {
        Vector first = load(source), second = load(source + lanes);
#pragma GCC unroll 16
        for (int row = 0; row < rows; ++row) {
          Vector factor = spread(pointers[row][j]);
          sums[row][0] += factor * first;
          sums[row][1] += factor * second;
        }
      }
    } else {
      for (int64_t j = 0; j < count; ++j, source += stride) {
        Vector first = tail ? load_some(source, tail) : load(source);
#pragma GCC unroll 16
        for (int row = 0; row < rows; ++row) sums[row][0] += spread(pointers[row][j]) * first;
      }
    }
    for (int row = 0; row < rows; ++row) {
      if (two) {
        store(target[row] + column, sums[row][0]);
        store(target[row] + column + lanes, sums[row][1]);
      } else if (tail) {
        store_some(target[row] + column, sums[row][0], tail);
      } else {
        store(target[row] + column, sums[row][0]);
      }
    }
  }
};

// target[row] += weights[row][first .. first + count) times source rows of the same numbers, all columns from `begin`
// to `end`. Keys are taken in chunks that stay in the first-level cache while all rows use them.
static void read_dense(const Real *const *weights, Real *const *target, int rows, const Real *source,
                       int64_t stride,
                       int64_t first, int64_t count, int64_t begin, int64_t end) {
  const int64_t chunk = 96;
  const Real *shifted[block_rows];
  for (int64_t start = first; start < first + count; start += chunk) {
    int64_t size = minimum(chunk, first + count - start);
    for (int row = 0; row < rows; ++row) shifted[row] = weights[row] + start;
    for (int row = 0; row < rows; row += tile_rows) {
      int part = static_cast<int>(minimum(tile_rows, rows - row));
      for (int64_t column = begin; column < end;) {
        int64_t left = end - column;
        int tail = left >= 2 * lanes ? -1 : (left >= lanes ? 0 : static_cast<int>(left));
        with_rows<ReadTile>(part, shifted + row, size, source + start * stride, stride, target + row, column, tail);
        column += tail < 0 ? 2 * lanes : (tail ? left : lanes);
      }
    }
  }
}

// target[j] += sum over rows of weights[row][j] * source[row], for `keys` consecutive j and two vectors of columns.
template <int keys>
struct SpreadTile {
  static void run(const Real *const *weights, const Real *const *source, int rows, int64_t first, Real *target,
                  int64_t stride, int64_t column, int tail) {
    Vector sums[keys][2];
    bool two = tail < 0;
    Real *at = target + first * stride + column;
    for (int key = 0; key < keys; ++key, at += stride) {
      sums[key][0] = tail > 0 ? load_some(at, tail) : load(at);
      sums[key][1] = two ? load(at + lanes) : Vector{};
    }
    if (two) {
      for (int row = 0; row < rows; ++row) {
        const Real *from = weights[row] + first;
        Vector one = load(source[row] + column), other = load(source[row] + column + lanes);
#pragma GCC unroll 16
        for (int key = 0; key < keys; ++key) {
          Vector factor = spread(from[key]);
          sums[key][0] += factor * one;
          sums[key][1] += factor * other;
        }
      }
    } else {
      for (int row = 0; row < rows; ++row) {
        const Real *from = weights[row] + first;
        Vector one = tail ? load_some(source[row] + column, tail) : load(source[row] + column);
#pragma GCC unroll 16
        for (int key = 0; key < keys; ++key) sums[key][0] += spread(from[key]) * one;
      }
    }
    at = target + first * stride + column;
    for (int key = 0; key < keys; ++key, at += stride) {
      if (tail > 0) {
        store_some(at, sums[key][0], tail);
      } else {
        store(at, sums[key][0]);
        if (two) store(at + lanes, sums[key][1]);
      }
    }
  }
};

static void spread_dense(const Real *const *weights, const Real *const *source, int rows, int64_t first,
                         int64_t last,
                         Real *target, int64_t stride, int64_t columns) {
  for (int64_t key = first; key < last; key += tile_rows) {
    int part = static_cast<int>(minimum(tile_rows, last - key));
    for (int64_t column = 0; column < columns;) {
      int64_t left = columns - column;
      int tail = left >= 2 * lanes ? -1 : (left >= lanes ? 0 : static_cast<int>(left));
      with_rows<SpreadTile>(part, weights, source, rows, key, target, stride, column, tail);
      column += tail < 0 ? 2 * lanes : (tail ? left : lanes);
    }
  }
}

static inline Real dot(const Real *left, const Real *right, int64_t count) {
  Vector sum{}, other{};
  int64_t d = 0;
  for (; d + 2 * lanes <= count; d += 2 * lanes) {
    sum += load(left + d) * load(right + d);
    other += load(left + d + lanes) * load(right + d + lanes);
  }
  for (; d + lanes <= count; d += lanes) sum += load(left + d) * load(right + d);
  if (d < count) {
    int tail = static_cast<int>(count - d);
    other += load_some(left + d, tail) * load_some(right + d, tail);
  }
  return sum_of(sum + other);
}

// target += factor * source
static inline void add_scaled(Real *target, Real factor, const Real *source, int64_t count) {
  Vector many = spread(factor);
  int64_t d = 0;
  for (; d + lanes <= count; d += lanes) store(target + d, load(target + d) + many * load(source + d));
  if (d < count) {
    int tail = static_cast<int>(count - d);
    store_some(target + d, load_some(target + d, tail) + many * load_some(source + d, tail), tail);
  }
}
