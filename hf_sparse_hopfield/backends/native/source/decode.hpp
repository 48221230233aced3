// Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
// Few queries, many keys: the keys are read once, in place, for all queries that share them.

// Lane i of the result is the sum of the lanes of sums[i].
static inline Vector sum_each(const Vector *sums) {
#if defined(HOPFIELD_AVX512)
  __m512 quads[4];
  for (int i = 0; i < 4; ++i) {
    const Vector *s = sums + 4 * i;
    __m512 a = (__m512)s[0], b = (__m512)s[1], c = (__m512)s[2], d = (__m512)s[3];
    __m512d ab = _mm512_castps_pd(_mm512_add_ps(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b)));
    __m512d cd = _mm512_castps_pd(_mm512_add_ps(_mm512_unpacklo_ps(c, d), _mm512_unpackhi_ps(c, d)));
    __m512d even = _mm512_unpacklo_pd(ab, cd), odd = _mm512_unpackhi_pd(ab, cd);
    quads[i] = _mm512_add_ps(_mm512_castpd_ps(even), _mm512_castpd_ps(odd));
  }
  __m512 low = _mm512_add_ps(_mm512_shuffle_f32x4(quads[0], quads[1], 0x44),
                             _mm512_shuffle_f32x4(quads[0], quads[1], 0xee));
  __m512 high = _mm512_add_ps(_mm512_shuffle_f32x4(quads[2], quads[3], 0x44),
                              _mm512_shuffle_f32x4(quads[2], quads[3], 0xee));
  return (Vector)_mm512_add_ps(_mm512_shuffle_f32x4(low, high, 0x88), _mm512_shuffle_f32x4(low, high, 0xdd));
#elif defined(HOPFIELD_AVX2)
  __m256 quads[2];
  for (int i = 0; i < 2; ++i) {
    const Vector *s = sums + 4 * i;
    __m256 ab = _mm256_hadd_ps((__m256)s[0], (__m256)s[1]), cd = _mm256_hadd_ps((__m256)s[2], (__m256)s[3]);
    quads[i] = _mm256_hadd_ps(ab, cd);
  }
  return (Vector)_mm256_add_ps(_mm256_permute2f128_ps(quads[0], quads[1], 0x20),
                               _mm256_permute2f128_ps(quads[0], quads[1], 0x31));
#else
  Vector result;
  for (int lane = 0; lane < lanes; ++lane) result[lane] = sum_of(sums[lane]);
  return result;
#endif
}

constexpr int64_t decode_inner = 32;  // keys that stay in the first-level cache while all rows use them
constexpr int64_t decode_ahead = 32;  // keys asked for in advance: by itself, the processor stops at the end of a page

// Products of `rows` queries with `lanes / rows` keys at a time; queries are padded with zeros to whole vectors. `places`
// are the rows of the keys, or null if they are in order.
template <int rows>
static void dot_rows(const Real *queries, int64_t query_stride, const Real *keys, int64_t key_stride,
                     const int64_t *places, int64_t count, int64_t depth, Real *scores, int64_t stride) {
  constexpr int together = lanes / rows;
  const int64_t whole = depth / lanes * lanes;
  const int tail = static_cast<int>(depth - whole);
  for (int64_t first = 0; first < count; first += together) {
    const Real *from[together];
    int valid = static_cast<int>(minimum(together, count - first));
    for (int key = 0; key < together; ++key) {
      const int64_t row = first + (key < valid ? key : 0);
      from[key] = keys + (places ? places[row] : row) * key_stride;
    }
    for (int key = 0; key < together; ++key) {
      const Real *ahead = from[key] + decode_ahead * key_stride;
      if (places) ahead = keys + places[minimum(first + key + decode_ahead, count - 1)] * key_stride;
      for (int64_t d = 0; d < depth; d += line_numbers) __builtin_prefetch(ahead + d);
    }
    Vector sums[lanes];
#pragma GCC unroll 16
    for (int i = 0; i < lanes; ++i) sums[i] = Vector{};  // in registers; `= {}` is a slow call to clear memory
    for (int64_t d = 0; d < whole; d += lanes) {
#pragma GCC unroll 16
      for (int key = 0; key < together; ++key) {
        Vector column = load(from[key] + d);
#pragma GCC unroll 4
        for (int row = 0; row < rows; ++row) {
          sums[row * together + key] += load(queries + row * query_stride + d) * column;
        }
      }
    }
    if (tail) {
#pragma GCC unroll 16
      for (int key = 0; key < together; ++key) {
        Vector column = load_some(from[key] + whole, tail);
#pragma GCC unroll 4
        for (int row = 0; row < rows; ++row) {
          sums[row * together + key] += load(queries + row * query_stride + whole) * column;
        }
      }
    }
    Real products[lanes] __attribute__((aligned(64)));
    store(products, sum_each(sums));
    for (int row = 0; row < rows; ++row) {
      Real *target = scores + row * stride + first;
      if (valid == together) {
        std::memcpy(target, products + row * together, together * sizeof(Real));
      } else {
        std::memcpy(target, products + row * together, static_cast<size_t>(valid) * sizeof(Real));
      }
    }
  }
}

static inline const int64_t *places_of(const Problem &problem, int64_t b) {
  return problem.places ? problem.places + b * problem.places_stride : nullptr;
}

// The scores of all queries of a head with the keys [first, last).
static void decode_scores(const Problem &problem, const Workspace &space, int64_t b, int64_t kv_head, int64_t first,
                          int64_t last, Real *scores, int64_t stride) {
  const int64_t group = problem.heads / problem.kv_heads, rows = group * problem.queries;
  const int64_t depth = problem.head_dim, width = round_up(depth, lanes), key_stride = problem.key_stride[2];
  for (int64_t row = 0; row < rows; ++row) {
    int64_t h = kv_head * group + row / problem.queries, i = row % problem.queries;
    const Real *query = at_row(problem.query, problem.query_stride, b, h, i);
    Real factor = scale_at(problem, b, h, i);
    Real *target = space.rows + row * width;
    for (int64_t d = 0; d < width; ++d) target[d] = d < depth ? query[d] * factor : 0.0f;
  }
  for (int64_t start = first; start < last; start += decode_inner) {
    int64_t count = minimum(decode_inner, last - start);
    const int64_t *places = places_of(problem, b);
    const Real *from = at_row(problem.key, problem.key_stride, b, kv_head, places ? 0 : start);
    if (places) places += start;
    int64_t row = 0;
    for (; row + 4 <= rows; row += 4) {
      dot_rows<4>(space.rows + row * width, width, from, key_stride, places, count, depth, scores + row * stride + start,
                  stride);
    }
    for (; row + 2 <= rows; row += 2) {
      dot_rows<2>(space.rows + row * width, width, from, key_stride, places, count, depth, scores + row * stride + start,
                  stride);
    }
    if (row < rows) {
      dot_rows<1>(space.rows + row * width, width, from, key_stride, places, count, depth, scores + row * stride + start,
                  stride);
    }
  }
}

// Solves a row, keeps it for backward, and reads it out if it is sparse. Otherwise its weights stay in `scores`, and
// the factor on them is returned.
static Real decode_solve(const Problem &problem, const Workspace &space, int64_t b, int64_t h, int64_t i,
                         Real *scores) {
  const int64_t row = (b * problem.heads + h) * problem.queries + i;
  const Range range = range_of(problem, i);
  bool poisoned = false;
  for (int64_t s = 0; s < space.segments; ++s) {
    poisoned |= finish_segment(problem, space, scores + s * space.segment,
                               reinterpret_cast<Vector *>(space.maxima) + s, b,
                               h, i, s * space.segment, range);
  }
  RowResult result = solve_row(space, family_at(problem, b, h, i), scores, space.maxima, space.segments, 0,
                               problem.sinks ? problem.sinks + h : nullptr, poisoned, nullptr, space.list_weights,
                               space.list_indices);
  if (problem.states) {
    const int64_t blocks = (problem.queries + block_rows - 1) / block_rows;
    int64_t region = problem.support_per_row * 2, used = i % block_rows * region;
    keep_support(problem, result, (b * problem.heads + h) * blocks + i / block_rows, used, used + region);
    problem.states[row] = result.state;
  }
  Real *target = at_row(problem.output, problem.output_stride, b, h, i);
  if (result.state.count == row_is_nan) {
    fill(target, NAN, problem.value_dim);
  } else if (result.dense) {
    if (problem.dropout > 0.0) drop_dense(Dropout(problem, row), scores, space.segments * space.segment, 0);
    fill(target, 0.0f, problem.value_dim);
    return result.factor;
  } else {
    if (problem.dropout > 0.0) drop_list(Dropout(problem, row), result);
    const Real *value = at_row(problem.value, problem.value_stride, b, h / (problem.heads / problem.kv_heads), 0);
    if (const int64_t *places = places_of(problem, b)) {
      for (int32_t n = 0; n < result.state.count; ++n) {
        if (result.indices[n] >= 0) result.indices[n] = static_cast<int32_t>(places[result.indices[n]]);
      }
    }
    read_sparse(target, result.indices, result.weights, result.state.count, value, problem.value_stride[2],
                problem.value_dim);
  }
  return 0.0f;
}

// Reads some columns of the values of a head once for all dense rows that share them.
static void decode_read(Shared *shared, const Workspace &space, int64_t head, int64_t begin, int64_t end) {
  const Problem &problem = *shared->problem;
  const int64_t group = problem.heads / problem.kv_heads, rows = group * problem.queries;
  const int64_t b = head / problem.kv_heads, kv_head = head % problem.kv_heads;
  const Real *weights[block_rows];
  Real *targets[block_rows], factors[block_rows];
  int dense = 0;
  for (int64_t row = 0; row < rows; ++row) {
    Real factor = shared->dense[head * rows + row];
    if (factor == 0.0f) continue;
    weights[dense] = shared->scores + (head * rows + row) * shared->score_stride;
    targets[dense] = at_row(problem.output, problem.output_stride, b, kv_head * group + row / problem.queries,
                            row % problem.queries);
    factors[dense++] = factor;
  }
  if (!dense) return;
  const Real *value = at_row(problem.value, problem.value_stride, b, kv_head, 0);
  if (const int64_t *places = places_of(problem, b)) {
    for (int64_t start = 0; start < problem.keys; start += gathered_rows) {
      const int64_t count = minimum(gathered_rows, problem.keys - start);
      for (int64_t n = 0; n < count; ++n) {
        std::memcpy(space.gathered + n * problem.value_dim, value + places[start + n] * problem.value_stride[2],
                    sizeof(Real) * static_cast<size_t>(problem.value_dim));
      }
      read_dense(weights, targets, dense, space.gathered, problem.value_dim, 0, count, begin, end);
      for (int row = 0; row < dense; ++row) weights[row] += count;
    }
  } else {
    read_dense(weights, targets, dense, value, problem.value_stride[2], 0, problem.keys, begin, end);
  }
  for (int row = 0; row < dense; ++row) scale(targets[row] + begin, factors[row], end - begin);
}

// A task is a chunk of the keys of a head. The thread that finishes the last chunk of a head solves its rows, so that
// no thread waits for another between the two.
static void decode_worker(Shared *shared) {
  const Problem &problem = *shared->problem;
  Workspace space;
  if (!space.prepare(shared, decode_mode)) return;
  const int64_t group = problem.heads / problem.kv_heads, rows = group * problem.queries;
  const int64_t chunks = (problem.keys + decode_chunk - 1) / decode_chunk;
  for (int64_t task; (task = take_task(shared)) < shared->tasks;) {
    int64_t head = task / chunks, first = task % chunks * decode_chunk;
    int64_t b = head / problem.kv_heads, kv_head = head % problem.kv_heads;
    Real *scores = shared->scores + head * rows * shared->score_stride;
    decode_scores(problem, space, b, kv_head, first, minimum(problem.keys, first + decode_chunk), scores,
                  shared->score_stride);
    if (__atomic_sub_fetch(&shared->pending[head], 1, __ATOMIC_ACQ_REL)) continue;
    for (int64_t row = 0; row < rows; ++row) {
      int64_t h = kv_head * group + row / problem.queries, i = row % problem.queries;
      shared->dense[head * rows + row] = decode_solve(problem, space, b, h, i, scores + row * shared->score_stride);
    }
    if (!shared->read_later) decode_read(shared, space, head, 0, problem.value_dim);
  }
}

// A task is some columns of the values of a head: for few heads, whose values all threads should read together.
static void decode_read_worker(Shared *shared) {
  const Problem &problem = *shared->problem;
  Workspace space;
  if (!space.prepare(shared, decode_mode)) return;
  const int64_t width = 2 * lanes, parts = (problem.value_dim + width - 1) / width;
  for (int64_t task; (task = take_task(shared)) < shared->tasks;) {
    int64_t column = task % parts * width;
    decode_read(shared, space, task / parts, column, minimum(problem.value_dim, column + width));
  }
}
