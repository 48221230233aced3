// Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
// Keys and values as they are stored: in `Real`, or in half precision, which is read as it is and computed in float.

#if defined(HOPFIELD_DOUBLE)
constexpr int stored_kinds = 1;
#else
constexpr int stored_kinds = 3;

typedef uint16_t Halves __attribute__((vector_size(lanes * 2)));

static inline Vector from_bfloat16(Halves halves) { return (Vector)(__builtin_convertvector(halves, Unsigned) << 16); }

static inline Vector from_float16(Halves halves) {
#if defined(HOPFIELD_AVX512)
  return (Vector)_mm512_cvtph_ps((__m256i)halves);
#elif defined(HOPFIELD_AVX2)
  return (Vector)_mm256_cvtph_ps((__m128i)halves);
#else
  const Unsigned wide = __builtin_convertvector(halves, Unsigned);
  const Unsigned magnitude = wide & 0x7fff;
  const Unsigned infinite = (Unsigned)(magnitude >= 0x7c00) & 0x7f800000;  // or NaN
  return (Vector)((Unsigned)((Vector)(magnitude << 13) * 0x1p112f) | infinite | (wide & 0x8000) << 16);
#endif
}
#endif

// Numbers `column .. column + lanes` of a row.
template <int kind>
static inline Vector load_stored(const void *row, int64_t column) {
#if !defined(HOPFIELD_DOUBLE)
  if (kind != stored_real) {
    Halves halves;
    std::memcpy(&halves, static_cast<const uint16_t *>(row) + column, sizeof(halves));
    return kind == stored_bfloat16 ? from_bfloat16(halves) : from_float16(halves);
  }
#endif
  return load(static_cast<const Real *>(row) + column);
}

// The first `count` of them; the rest reads as zero.
template <int kind>
static inline Vector load_some_stored(const void *row, int64_t column, int count) {
#if !defined(HOPFIELD_DOUBLE)
  if (kind != stored_real) {
    uint16_t copy[lanes] = {};
    std::memcpy(copy, static_cast<const uint16_t *>(row) + column, sizeof(uint16_t) * static_cast<size_t>(count));
    return load_stored<kind>(copy, 0);
  }
#endif
  return load_some(static_cast<const Real *>(row) + column, count);
}

static inline int64_t bytes_of(int64_t kind) { return kind == stored_real ? sizeof(Real) : 2; }

// The rows of a head of keys or values.
struct StoredRows {
  const char *data;
  int64_t stride;  // bytes
  int64_t kind, width;

  const char *row(int64_t index) const { return data + index * stride; }
};

static inline StoredRows stored_rows(const void *data, const int64_t *stride, int64_t kind, int64_t width, int64_t b,
                                     int64_t head) {
  const int64_t size = bytes_of(kind);
  return {static_cast<const char *>(data) + (b * stride[0] + head * stride[1]) * size, stride[2] * size, kind, width};
}

// Calls a template over the kind of stored rows.
#if defined(HOPFIELD_DOUBLE)
#define HOPFIELD_BY_STORED(rows, function, ...) function<stored_real>(__VA_ARGS__)
#else
#define HOPFIELD_BY_STORED(rows, function, ...)                            \
  ((rows).kind == stored_bfloat16  ? function<stored_bfloat16>(__VA_ARGS__) \
   : (rows).kind == stored_float16 ? function<stored_float16>(__VA_ARGS__)  \
                                   : function<stored_real>(__VA_ARGS__))
#endif

// Copies rows `first .. first + count` (or those at `places`) to consecutive rows of `Real`.
template <int kind>
static void copy_rows(const StoredRows &rows, const int64_t *places, int64_t first, int64_t count, Real *target,
                      int64_t target_stride) {
  for (int64_t n = 0; n < count; ++n, target += target_stride) {
    const char *from = rows.row(places ? places[first + n] : first + n);
    int64_t column = 0;
    for (; column + lanes <= rows.width; column += lanes) store(target + column, load_stored<kind>(from, column));
    if (column < rows.width) {
      const int tail = static_cast<int>(rows.width - column);
      store_some(target + column, load_some_stored<kind>(from, column, tail), tail);
    }
  }
}

static void copy_rows(const StoredRows &rows, const int64_t *places, int64_t first, int64_t count, Real *target,
                      int64_t target_stride) {
  HOPFIELD_BY_STORED(rows, copy_rows, rows, places, first, count, target, target_stride);
}

static inline void prefetch_row(const StoredRows &rows, int64_t index) {
  const char *from = rows.row(index);
  for (int64_t byte = 0; byte < rows.width * bytes_of(rows.kind); byte += 64) __builtin_prefetch(from + byte);
}

static inline void prefetch_rows(const StoredRows &rows, const int64_t *places, int64_t first, int64_t count) {
  for (int64_t n = first; n < first + count; ++n) prefetch_row(rows, places ? places[n] : n);
}

// target = sum over the support of weight * row[index]; an index below zero (the sink) has no row.
template <int kind>
static inline void read_sparse_as(Real *target, const int32_t *indices, const Real *weights, int count,
                                  const StoredRows &rows) {
  int64_t column = 0;
  for (; column + 4 * lanes <= rows.width; column += 4 * lanes) {
    Vector a{}, b{}, c{}, d{};
    for (int i = 0; i < count; ++i) {
      if (indices[i] < 0) continue;
      const char *from = rows.row(indices[i]);
      Vector factor = spread(weights[i]);
      a += factor * load_stored<kind>(from, column);
      b += factor * load_stored<kind>(from, column + lanes);
      c += factor * load_stored<kind>(from, column + 2 * lanes);
      d += factor * load_stored<kind>(from, column + 3 * lanes);
    }
    store(target + column, a);
    store(target + column + lanes, b);
    store(target + column + 2 * lanes, c);
    store(target + column + 3 * lanes, d);
  }
  for (; column < rows.width; column += lanes) {
    int tail = static_cast<int>(minimum(lanes, rows.width - column));
    Vector a{};
    for (int i = 0; i < count; ++i) {
      if (indices[i] < 0) continue;
      const char *from = rows.row(indices[i]);
      a += spread(weights[i]) *
           (tail == lanes ? load_stored<kind>(from, column) : load_some_stored<kind>(from, column, tail));
    }
    if (tail == lanes) {
      store(target + column, a);
    } else {
      store_some(target + column, a, tail);
    }
  }
}

static inline void read_sparse(Real *target, const int32_t *indices, const Real *weights, int count,
                               const StoredRows &rows) {
  HOPFIELD_BY_STORED(rows, read_sparse_as, target, indices, weights, count, rows);
}
