// Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
// Few queries, many keys: the keys are read once, in place, for all queries that share them.

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

// The rows of a head that are computed; returns how many. A row is a head of its group and a query.
static int decode_picked(const Shared *shared, int64_t b, int64_t kv_head, int *picked) {
  const Problem &problem = *shared->problem;
  const int64_t group = problem.heads / problem.kv_heads, rows = group * problem.queries;
  const uint8_t *wanted = shared->ordinary;
  if (wanted) wanted += (b * problem.heads + kv_head * group) * problem.queries;
  int count = 0;
  for (int64_t row = 0; row < rows; ++row) {
    if (!wanted || wanted[row]) picked[count++] = static_cast<int>(row);
  }
  return count;
}

// The scores of some queries of a head with the keys [first, last), one row after the other.
static void decode_scores(const Problem &problem, const Workspace &space, int64_t b, int64_t kv_head, int64_t first,
                          int64_t last, const int *picked, int rows, Real *scores, int64_t stride) {
  const int64_t group = problem.heads / problem.kv_heads;
  const int64_t depth = problem.head_dim, width = round_up(depth, lanes);
  const StoredRows keys = stored_rows(problem.key, problem.key_stride, problem.key_kind, depth, b, kv_head);
  const bool converted = keys.kind != stored_real;
  const int64_t key_stride = converted ? depth : problem.key_stride[2];
  for (int row = 0; row < rows; ++row) {
    int64_t h = kv_head * group + picked[row] / problem.queries, i = picked[row] % problem.queries;
    const Real *query = at_row(problem.query, problem.query_stride, b, h, i);
    Real factor = scale_at(problem, b, h, i);
    Real *target = space.rows + row * width;
    for (int64_t d = 0; d < width; ++d) target[d] = d < depth ? query[d] * factor : 0.0f;
  }
  for (int64_t start = first; start < last; start += decode_inner) {
    int64_t count = minimum(decode_inner, last - start);
    const int64_t *places = places_of(problem, b);
    const Real *from = space.gathered;
    if (converted) {
      copy_rows(keys, places, start, count, space.gathered, depth);
      if (start + count < last) prefetch_rows(keys, places, start + count, minimum(decode_inner, last - start - count));
      places = nullptr;
    } else {
      from = at_row(problem.key, problem.key_stride, b, kv_head, places ? 0 : start);
      if (places) places += start;
    }
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

// Reads out one row that is not dense.
static void read_list(const Problem &problem, int64_t b, int64_t h, int64_t i, const RowResult &result) {
  Real *target = at_row(problem.output, problem.output_stride, b, h, i);
  if (result.state.count == row_is_nan) {
    fill(target, NAN, problem.value_dim);
    return;
  }
  if (problem.dropout > 0.0) drop_list(Dropout(problem, (b * problem.heads + h) * problem.queries + i), result);
  if (const int64_t *places = places_of(problem, b)) {
    for (int32_t n = 0; n < result.state.count; ++n) {
      if (result.indices[n] >= 0) result.indices[n] = static_cast<int32_t>(places[result.indices[n]]);
    }
  }
  const int64_t kv_head = h / (problem.heads / problem.kv_heads);
  read_sparse(target, result.indices, result.weights, result.state.count,
              stored_rows(problem.value, problem.value_stride, problem.value_kind, problem.value_dim, b, kv_head));
}

// Solves a row, keeps it for backward, and reads it out if it is sparse. Otherwise its weights stay in `scores`, and
// the factor on them is returned.
static Real decode_solve(const Problem &problem, const Workspace &space, int64_t b, int64_t h, int64_t i,
                         Real *scores) {
  const int64_t row = (b * problem.heads + h) * problem.queries + i;
  const Range range = range_of(problem, i);
  const RowLimits limits = limits_of(problem, b, h, i);
  bool poisoned = false;
  for (int64_t s = 0; s < space.segments; ++s) {
    poisoned |= finish_segment(space, limits, scores + s * space.segment, reinterpret_cast<Vector *>(space.maxima) + s,
                               s * space.segment, range);
  }
  RowResult result = solve_row(space, family_at(problem, b, h, i), scores, space.maxima, space.segments, 0,
                               problem.sinks ? problem.sinks + h : nullptr, poisoned, nullptr, space.list_weights,
                               space.list_indices);
  const int here = 0;
  if (problem.states) keep_rows(problem, b, h, i, &here, 1, true, &result);
  if (result.dense && result.state.count != row_is_nan) {
    if (problem.dropout > 0.0) drop_dense(Dropout(problem, row), scores, space.segments * space.segment, 0);
    fill(at_row(problem.output, problem.output_stride, b, h, i), 0.0f, problem.value_dim);
    return result.factor;
  }
  read_list(problem, b, h, i, result);
  return 0.0f;
}

// Reads some columns of the values of a head once for all dense rows that share them.
static void decode_read(Shared *shared, const Workspace &space, int64_t head, int64_t begin, int64_t end) {
  const Problem &problem = *shared->problem;
  const int64_t group = problem.heads / problem.kv_heads, rows = group * problem.queries;
  const int64_t b = head / problem.kv_heads, kv_head = head % problem.kv_heads;
  const Real *weights[decode_rows];
  Real *targets[decode_rows], factors[decode_rows];
  int picked[decode_rows], dense = 0;
  const int count = decode_picked(shared, b, kv_head, picked);
  for (int n = 0; n < count; ++n) {
    Real factor = shared->dense[head * rows + n];
    if (factor == 0.0f) continue;
    weights[dense] = shared->scores + (head * rows + n) * shared->score_stride;
    targets[dense] = at_row(problem.output, problem.output_stride, b, kv_head * group + picked[n] / problem.queries,
                            picked[n] % problem.queries);
    factors[dense++] = factor;
  }
  if (!dense) return;
  const StoredRows values =
      stored_rows(problem.value, problem.value_stride, problem.value_kind, problem.value_dim, b, kv_head);
  const int64_t *places = places_of(problem, b);
  if (places || values.kind != stored_real) {
    for (int64_t start = 0; start < problem.keys; start += gathered_rows) {
      const int64_t count = minimum(gathered_rows, problem.keys - start);
      copy_rows(values, places, start, count, space.gathered, problem.value_dim);
      read_dense(weights, targets, dense, space.gathered, problem.value_dim, 0, count, begin, end);
      for (int row = 0; row < dense; ++row) weights[row] += count;
    }
  } else {
    read_dense(weights, targets, dense, at_row(problem.value, problem.value_stride, b, kv_head, 0),
               problem.value_stride[2], 0, problem.keys, begin, end);
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
    int picked[decode_rows];
    const int count = decode_picked(shared, b, kv_head, picked);
    if (!count) continue;
    Real *scores = shared->scores + head * rows * shared->score_stride;
    decode_scores(problem, space, b, kv_head, first, minimum(problem.keys, first + decode_chunk), picked, count, scores,
                  shared->score_stride);
    if (__atomic_sub_fetch(&shared->pending[head], 1, __ATOMIC_ACQ_REL)) continue;
    for (int n = 0; n < count; ++n) {
      int64_t h = kv_head * group + picked[n] / problem.queries, i = picked[n] % problem.queries;
      shared->dense[head * rows + n] = decode_solve(problem, space, b, h, i, scores + n * shared->score_stride);
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
