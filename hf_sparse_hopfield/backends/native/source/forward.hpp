// Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
// The ordinary way of the forward pass: blocks of queries against all keys of a head. Scores of a block stay in cache, a
// bound from group maxima filters them, the exact solution is found on what is left, and only the support is read out.

template <class Number>
static inline Number *at_row(Number *pointer, const int64_t *stride, int64_t b, int64_t h, int64_t i) {
  return pointer + b * stride[0] + h * stride[1] + i * stride[2];
}

// The factor on query . key.
static inline Real scale_at(const Problem &problem, int64_t b, int64_t h, int64_t i) {
  double beta = problem.beta ? *at_row(problem.beta, problem.beta_stride, b, h, i) : problem.beta_scalar;
  return static_cast<Real>(problem.scaling * beta);
}

static inline Family family_at(const Problem &problem, int64_t b, int64_t h, int64_t i) {
  return family_of(problem.alpha ? *at_row(problem.alpha, problem.alpha_stride, b, h, i) : problem.alpha_scalar);
}

// Vectors of a group: its lane-wise maximum is one value in sixteen (eight for short rows) of the row.
static inline int64_t group_vectors(int64_t keys) { return keys > 2048 ? 16 : 8; }

static int64_t padded_keys(int64_t keys) { return round_up(keys, group_vectors(keys) * lanes); }

// The keys [first, last) that query i may see by position.
struct Range {
  int64_t first, last;
};

static inline Range range_of(const Problem &problem, int64_t i) {
  Range range{0, problem.keys};
  if (problem.is_causal) {
    range.last = maximum(0, minimum(problem.keys, i + problem.keys - problem.queries + 1));
    if (problem.sliding_window > 0) range.first = maximum(0, range.last - problem.sliding_window);
  }
  return range;
}

enum Mode { forward_mode, backward_mode, decode_mode };

constexpr int64_t gathered_rows = 96;  // rows of keys or values that are brought together, or to `Real`, at a time

// Sizes that follow from a problem, and the pieces of a thread's memory.
struct Workspace {
  int64_t stride, group, segment, segments, list_limit;
  Real *panels, *value_panels, *rows, *scores, *gradients, *maxima, *survivors, *list_weights, *gathered;
  int32_t *survivor_indices, *list_indices;

  size_t carve(char *base, const Problem &problem, Mode mode) {
    group = group_vectors(problem.keys);
    segment = group * lanes;
    segments = (problem.keys + segment - 1) / segment;
    // One more vector has room for the sink, and keeps the rows of a tile in different cache sets.
    stride = segments * segment + lanes;
    list_limit = problem.keys / 4;
    const int64_t depth = maximum(problem.head_dim, problem.value_dim), margin = 4 * lanes;
    const int64_t panel_rows = round_up(problem.keys, panel), listed = mode == forward_mode ? block_rows : 1;
    const bool many = mode != decode_mode, back = mode == backward_mode;
    size_t used = 0;
    auto take = [&](int64_t count) {
      char *start = base + used;
      used += static_cast<size_t>(round_up(count * static_cast<int64_t>(sizeof(Real)), 64));
      return reinterpret_cast<Real *>(start);
    };
    rows = take(block_rows * round_up(depth, lanes));
    maxima = take((many ? block_rows : 1) * (segments + 1) * lanes);
    survivors = take(stride + margin);
    survivor_indices = reinterpret_cast<int32_t *>(take(stride + margin));
    list_weights = take(back ? stride + margin : listed * list_limit + margin);
    list_indices = reinterpret_cast<int32_t *>(take(back ? stride + margin : listed * list_limit + margin));
    scores = take(many ? block_rows * stride : 0);
    panels = take(many ? panel_rows * problem.head_dim : 0);
    value_panels = take(back ? panel_rows * problem.value_dim : 0);
    gradients = take(back ? block_rows * stride : 0);
    const bool apart = problem.places || problem.key_kind != stored_real || problem.value_kind != stored_real;
    gathered = take(apart ? gathered_rows * depth : 0);
    return used;
  }

  bool prepare(Shared *shared, Mode mode) {
    char *base = scratch(carve(nullptr, *shared->problem, mode), ordinary_slot);
    if (!base) {
      __atomic_store_n(&shared->failed, 1, __ATOMIC_RELAXED);
      return false;
    }
    carve(base, *shared->problem, mode);
    return true;
  }
};

static inline int64_t take_task(Shared *shared) { return __atomic_fetch_add(&shared->next, 1, __ATOMIC_RELAXED); }

// The bias and the mask of a row; null where there is none.
struct RowLimits {
  const Real *bias;
  const uint8_t *mask;
  int64_t bias_step, mask_step;
};

static inline RowLimits limits_of(const Problem &problem, int64_t b, int64_t h, int64_t i) {
  RowLimits limits{};
  if (problem.bias) {
    const int64_t *stride = problem.bias_stride;
    limits.bias = problem.bias + b * stride[0] + h * stride[1] + i * stride[2];
    limits.bias_step = stride[3];
  }
  if (problem.mask) {
    const int64_t *stride = problem.mask_stride;
    limits.mask = problem.mask + b * stride[0] + h * stride[1] + i * stride[2];
    limits.mask_step = stride[3];
  }
  return limits;
}

// Brings products to their final form: bias (times `unit`), mask and borders applied, from `column` on.
static inline Vector finished(const RowLimits &limits, Range range, Vector value, int64_t column, Real unit) {
  const Real *bias = limits.bias;
  const uint8_t *mask = limits.mask;
  if (column < range.first || column + lanes > range.last) {
    for (int lane = 0; lane < lanes; ++lane) {
      int64_t j = column + lane;
      if (j < range.first || j >= range.last || (mask && !mask[j * limits.mask_step])) {
        value[lane] = -infinity;
      } else if (bias) {
        value[lane] += bias[j * limits.bias_step] * unit;
      }
    }
    return value;
  }
  if (bias) {
    if (limits.bias_step == 1) {
      value += load(bias + column) * unit;
    } else {
      for (int lane = 0; lane < lanes; ++lane) value[lane] += bias[(column + lane) * limits.bias_step] * unit;
    }
  }
  if (mask) {
    if (limits.mask_step == 1) {
      typedef uint8_t Bytes __attribute__((vector_size(lanes)));
      Bytes bytes;
      std::memcpy(&bytes, mask + column, lanes);
      value = choose(__builtin_convertvector(bytes, Integers) != 0, value, spread(-infinity));
    } else {
      for (int lane = 0; lane < lanes; ++lane) {
        if (!mask[(column + lane) * limits.mask_step]) value[lane] = -infinity;
      }
    }
  }
  return value;
}

// Finishes one segment of a row and finds its group maximum. Returns whether a score is NaN.
static bool finish_segment(const Workspace &space, const RowLimits &limits, Real *scores, Vector *group_maximum,
                           int64_t start, Range range) {
  Integers poisoned{};
  Vector best = spread(-infinity);
  for (int64_t column = start; column < start + space.segment; column += lanes) {
    Real *at = scores + (column - start);
    Vector value = finished(limits, range, load(at), column, 1.0f);
    poisoned |= value != value;
    best = larger(best, value);
    store(at, value);
  }
  *group_maximum = best;
  return any(poisoned);
}

// Whether so many groups have a score above `limit` that going through the whole row is cheaper.
static bool looks_dense(const Real *maxima, int64_t segments, Real limit) {
  Vector bound = spread(limit);
  int64_t groups = 0;
  for (int64_t s = 0; s < segments; ++s) groups += __builtin_popcount(above(load(maxima + s * lanes), bound));
  return groups * 2 > segments * lanes && groups > lanes;
}

// Whether less than half of the scores of a row are above `limit`.
static bool is_half_empty(const Real *scores, int64_t vectors, Real limit) {
  Vector bound = spread(limit);
  int64_t found = 0;
  for (int64_t v = 0; v < vectors; ++v) found += __builtin_popcount(above(load(scores + v * lanes), bound));
  return found * 2 < vectors * lanes;
}

// Collects the scores above `limit`, as z' = z - maximum, with their columns. Groups whose maximum is below are not
// read at all.
static int64_t collect(const Workspace &space, const Real *scores, const Real *maxima, int64_t segments,
                       int64_t first_column, Real limit, Real maximum) {
  Vector bound = spread(limit);
  Real *values = space.survivors;
  int32_t *indices = space.survivor_indices;
  int64_t count = 0;
  for (int64_t s = 0; s < segments; ++s) {
    uint32_t bits = above(load(maxima + s * lanes), bound);
    if (!bits) continue;
    const Real *from = scores + s * space.segment;
    int32_t column = static_cast<int32_t>(first_column + s * space.segment);
    if (__builtin_popcount(bits) > 5) {
      for (int64_t v = 0; v < space.group; ++v) {
        Vector value = load(from + v * lanes);
        uint32_t found = above(value, bound);
        if (found) {
          Integers index = count_lanes() + (column + static_cast<int32_t>(v * lanes));
          count += append(values + count, indices + count, value - maximum, index, found);
        }
      }
      continue;
    }
    for (; bits; bits &= bits - 1) {
      int lane = __builtin_ctz(bits);
#if defined(HOPFIELD_AVX512)
      const __m512i step = (__m512i)(count_lanes() * lanes);
      __mmask16 wanted = static_cast<__mmask16>((1u << space.group) - 1);
      Vector value = (Vector)_mm512_mask_i32gather_ps(_mm512_set1_ps(-infinity), wanted, step, from + lane, 4);
      Integers index = (Integers)step + (column + lane);
      count += append(values + count, indices + count, value - maximum, index, above(value, bound));
#else
      for (int64_t v = 0; v < space.group; ++v) {
        Real value = from[v * lanes + lane];
        values[count] = value - maximum;
        indices[count] = column + static_cast<int32_t>(v * lanes + lane);
        count += value > limit;
      }
#endif
    }
  }
  store(values + count, spread(-infinity));
  return count;
}

// Scores at or below this have no weight. The slack covers the rounding of the bound; the exact
// solution removes whatever it lets through.
static inline Real limit_of(const Family &family, Real top, Real t) {
  Real limit = top + (t - family.inverse);
  return limit - (1e-5f + 1e-6f * std::fabs(limit));
}

// The result of one row.
struct RowResult {
  RowState state;
  bool dense;             // weights, to be multiplied by `factor`, are in the score buffer; otherwise in a list
  Real factor;
  int32_t *indices;
  Real *weights;
};

// Takes the entries above zero of solved weights to a list; returns how many there are.
static int keep_positive(const Real *weights, const int32_t *indices, int64_t count, Real factor, Real *out_weights,
                         int32_t *out_indices) {
  int kept = 0;
  for (int64_t i = 0; i < count; i += lanes) {
    Vector value = load(weights + i);
    Integers index = load_indices(indices + i);
    uint32_t bits = above(value, Vector{});
    kept += append(out_weights + kept, out_indices + kept, value * factor, index, bits);
  }
  return kept;
}

// Puts the sink of a row behind its maxima, where it takes part in the bound; returns how many vectors there are then.
static inline int64_t join_sink(Real *maxima, int64_t segments, const Real *sink) {
  if (!sink) return segments;
  Vector one = spread(-infinity);
  one[0] = *sink;
  store(maxima + segments * lanes, one);
  return segments + 1;
}

// Solves the `survivors`, z' with their columns, from any `t`. Returns whether the support fits the list of `result`;
// otherwise the caller needs `sum`, of the weights.
static bool solve_survivors(const Workspace &space, const Family &family, int64_t survivors, Real top, Real &t,
                            Real &sum, RowResult &result) {
  const int64_t vectors = (survivors + lanes - 1) / lanes;
  int support = 0;
  t = HOPFIELD_BY_KIND(solve, family, space.survivors, vectors, 0.0f, t);
  sum = HOPFIELD_BY_KIND(write_weights, family, space.survivors, vectors, 0.0f, t, support);
  result.state = {top, t, support, -1};
  if (support > space.list_limit) return false;
  keep_positive(space.survivors, space.survivor_indices, survivors, 1.0f / sum, result.weights, result.indices);
  return true;
}

// Puts the sink of a row behind its survivors, if it is above `limit`.
static inline int64_t add_sink(const Workspace &space, const Real *sink, Real limit, Real top, int64_t survivors) {
  if (sink && *sink > limit) {
    space.survivors[survivors] = *sink - top;
    space.survivor_indices[survivors++] = -1;
    store(space.survivors + survivors, spread(-infinity));
  }
  return survivors;
}

// Solves one row. `maxima` has room for one more vector, for the sink; `known` is null, or what `bounds_of` found. The
// list goes to `weights` / `indices`, which have room for `space.list_limit` entries and two vectors.
static RowResult solve_row(const Workspace &space, const Family &family, Real *scores, Real *maxima,
                           int64_t segments, int64_t first_column, const Real *sink, bool poisoned,
                           const Bounds *known, Real *weights, int32_t *indices) {
  RowResult result{{0.0f, 0.0f, 0, -1}, false, 1.0f, indices, weights};
  const int64_t count = known ? segments + (sink ? 1 : 0) : join_sink(maxima, segments, sink);
  if (sink) poisoned |= *sink != *sink;
  if (count == 0 && !poisoned) return result;
  Vector best = spread(-infinity);
  if (!known) {
    for (int64_t s = 0; s < count; ++s) best = larger(best, load(maxima + s * lanes));
  }
  Real top = known ? known->top : largest_of(best);
  if (poisoned || !(top < infinity)) {
    result.state.count = row_is_nan;
    return result;
  }
  if (top == -infinity) return result;
  Real t = known ? known->coarse : HOPFIELD_BY_KIND(coarse_bound, family, best, top);
  int64_t survivors = -1;
  Real limit = limit_of(family, top, t);
  bool dense = family.kind == softmax_kind || looks_dense(maxima, segments, limit);
  int steps = dense ? 1 : 4;
  if (dense && is_costly(family)) dense = !is_half_empty(scores, segments * space.group, limit);
  if (!dense) {
    t = known ? known->fine : HOPFIELD_BY_KIND(fine_bound, family, maxima, count, top, t, steps);
    survivors = collect(space, scores, maxima, segments, first_column, limit_of(family, top, t), top);
  }
  int64_t vectors = segments * space.group;
  int support = 0;
  if (survivors >= 0) {
    survivors = add_sink(space, sink, limit_of(family, top, t), top, survivors);
    Real sum;
    if (solve_survivors(space, family, survivors, top, t, sum, result)) return result;
    HOPFIELD_BY_KIND(write_weights, family, scores, vectors, top, t, support);
    result.dense = true;
    result.factor = 1.0f / sum;
    return result;
  }
  // The sink joins the row as one more vector right behind it; the buffer's stride leaves room for it.
  if (sink) {
    store(scores + vectors * lanes, load(maxima + segments * lanes));
  }
  int64_t all = vectors + (sink ? 1 : 0);
  Real sum = HOPFIELD_BY_KIND(solve_dense, family, scores, all, top, t, support, space.survivors,
                              reinterpret_cast<Real *>(space.survivor_indices));
  result.state = {top, t, support, -1};
  if (support > space.list_limit) {
    result.dense = true;
    result.factor = 1.0f / sum;
    return result;
  }
  int kept = 0;
  for (int64_t v = 0; v < all; ++v) {
    Vector value = load(scores + v * lanes);
    uint32_t bits = above(value, Vector{});
    if (!bits) continue;
    Integers index = v < vectors ? count_lanes() + static_cast<int32_t>(first_column + v * lanes)
                                 : spread(Integer(-1));
    kept += append(weights + kept, indices + kept, value * (1.0f / sum), index, bits);
  }
  return result;
}

// Stores the support of a row between `used` and `limit` of the region of its block, if there is room.
static void keep_support(const Problem &problem, RowResult &row, int64_t block, int64_t &used, int64_t limit) {
  const int64_t count = row.state.count;
  if (row.dense || count <= 0 || used + 2 * count > limit) return;
  Integer *target = problem.support + block * block_rows * problem.support_per_row * 2 + used;
  std::memcpy(target, row.indices, sizeof(int32_t) * count);
  std::memcpy(target + count, row.weights, sizeof(Real) * count);
  row.state.offset = static_cast<Integer>(used);
  used += 2 * count;
}

static inline void fill(Real *target, Real value, int64_t count) {
  for (int64_t i = 0; i < count; ++i) target[i] = value;
}

static inline void scale(Real *target, Real factor, int64_t count) {
  for (int64_t i = 0; i < count; ++i) target[i] *= factor;
}

static void drop_list(const Dropout &dropout, const RowResult &row) {
  for (int32_t i = 0; i < row.state.count; ++i) row.weights[i] *= dropout.factor(row.indices[i]);
}

static void drop_dense(const Dropout &dropout, Real *weights, int64_t count, int64_t first_column) {
  for (int64_t i = 0; i < count; i += lanes) {
    store(weights + i, load(weights + i) * dropout.factors(static_cast<int32_t>(first_column + i)));
  }
}

// The scores of some rows of a block of one head, final, for the segments [first, last) that any of them sees.
struct ScoredBlock {
  int64_t first, last;      // segments
  bool poisoned[block_rows];
};

// The packed keys and values of the head a thread works on, made only when a row needs them.
struct Panels {
  int64_t key_head = -1, value_head = -1;
  bool suspicious = false;

  void pack_keys(const Problem &problem, const Workspace &space, int64_t b, int64_t kv_head) {
    const int64_t head = b * problem.kv_heads + kv_head;
    if (key_head == head) return;
    const Real *key = at_row(problem.key, problem.key_stride, b, kv_head, 0);
    suspicious = pack_panels(key, problem.key_stride[2], problem.keys, problem.head_dim, space.panels);
    key_head = head;
  }
};

static const int every_row[block_rows] = {0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15,
                                          16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31};

// Row n of the result is the query `start + picked[n]`.
static ScoredBlock score_block(const Problem &problem, const Workspace &space, int64_t b, int64_t h, int64_t start,
                               const int *picked, int rows, bool suspicious_keys) {
  Real scale[block_rows];
  Range ranges[block_rows];
  const Real *query[block_rows];
  ScoredBlock block{};
  for (int row = 0; row < rows; ++row) {
    const int64_t i = start + picked[row];
    scale[row] = scale_at(problem, b, h, i);
    ranges[row] = range_of(problem, i);
    query[row] = at_row(problem.query, problem.query_stride, b, h, i);
  }
  if (ranges[rows - 1].last <= ranges[0].first) return block;
  block.first = ranges[0].first / space.segment;
  block.last = (ranges[rows - 1].last + space.segment - 1) / space.segment;
  bool suspicious = pack_rows(query, rows, problem.head_dim, scale, space.rows) || suspicious_keys;
  const bool finish_all = suspicious || problem.mask || problem.bias;
  const int64_t maxima_stride = space.segments + 1;
  Vector *maxima = reinterpret_cast<Vector *>(space.maxima);
  for (int64_t s = block.first; s < block.last; ++s) {
    int64_t begin = s * space.segment, end = begin + space.segment;
    int64_t place = s - block.first;
    for (int row = 0; row < rows; ++row) maxima[row * maxima_stride + place] = spread(-infinity);
    for (int64_t column = begin; column < end; column += panel) {
      const Real *right = space.panels + column * problem.head_dim;
      Real *target = space.scores + (column - block.first * space.segment);
      for (int row = 0; row < rows; row += tile_rows) {
        int part = static_cast<int>(minimum(tile_rows, rows - row));
        if (column >= ranges[row + part - 1].last || column + panel <= ranges[row].first) continue;
        with_rows<ScoreTile>(part, space.rows + row * problem.head_dim, right, problem.head_dim,
                             target + row * space.stride, space.stride, maxima + row * maxima_stride + place,
                             maxima_stride);
      }
    }
    for (int row = 0; row < rows; ++row) {
      if (!finish_all && ranges[row].first <= begin && ranges[row].last >= end) continue;
      Real *target = space.scores + row * space.stride + place * space.segment;
      block.poisoned[row] |= finish_segment(space, limits_of(problem, b, h, start + picked[row]), target,
                                            maxima + row * maxima_stride + place, begin, ranges[row]);
    }
  }
  return block;
}

constexpr int64_t line_numbers = 64 / sizeof(Real);  // of a cache line

// Solves some rows of a block from all of their scores.
static ScoredBlock solve_block(const Problem &problem, const Workspace &space, Panels &panels, int64_t b, int64_t h,
                               int64_t start, const int *picked, int rows, RowResult *results) {
  const int64_t kv_head = h / (problem.heads / problem.kv_heads);
  const StoredRows values = stored_rows(problem.value, problem.value_stride, stored_real, problem.value_dim, b, kv_head);
  panels.pack_keys(problem, space, b, kv_head);
  ScoredBlock block = score_block(problem, space, b, h, start, picked, rows, panels.suspicious);
  const Real *sink = problem.sinks ? problem.sinks + h : nullptr;
  // Where all rows are of one family, and of one that is cheap to evaluate, several are bounded at a time.
  const int64_t segments = block.last - block.first, apart = (space.segments + 1) * lanes;
  Family family = family_at(problem, b, h, start);
  const bool uniform = !problem.alpha || problem.alpha_stride[2] == 0;
  const bool together = uniform && (family.kind == two_kind || family.kind == three_halves_kind) && segments > 0;
  Bounds bounds[bound_rows];
  int64_t listed = 0;
  for (int row = 0; row < rows; ++row) {
    Real *maxima = space.maxima + row * apart;
    if (!uniform) family = family_at(problem, b, h, start + picked[row]);
    if (together && row % bound_rows == 0) {
      const int64_t count = segments + (sink ? 1 : 0);
      for (int n = 0; n < bound_rows; ++n) {
        if (row + n < rows) {
          join_sink(maxima + n * apart, segments, sink);
        } else {  // the rest of a group, so that a row comes out the same whatever rows are beside it
          fill(maxima + n * apart, -infinity, count * lanes);
        }
      }
      if (family.kind == two_kind) {
        bounds_of<two_kind>(family, maxima, apart, count, bounds);
      } else {
        bounds_of<three_halves_kind>(family, maxima, apart, count, bounds);
      }
    }
    RowResult &result = results[picked[row]];
    Real *scores = space.scores + row * space.stride;
    result = solve_row(space, family, scores, maxima, segments, block.first * space.segment, sink,
                       block.poisoned[row], together ? bounds + row % bound_rows : nullptr,
                       space.list_weights + listed, space.list_indices + listed);
    if (result.dense) {
      result.weights = scores;
    } else if (result.state.count > 0) {
      listed += result.state.count;
      for (int32_t n = 0; n < result.state.count; ++n) {
        if (result.indices[n] >= 0) prefetch_row(values, result.indices[n]);
      }
    }
  }
  return block;
}

// Keeps what the backward pass needs of some rows of a block. Rows of a block share their room, unless they come `alone`.
static void keep_rows(const Problem &problem, int64_t b, int64_t h, int64_t start, const int *picked, int rows,
                      bool alone, RowResult *results) {
  const int64_t blocks = (problem.queries + block_rows - 1) / block_rows;
  const int64_t block = (b * problem.heads + h) * blocks + start / block_rows;
  const int64_t room = problem.support_per_row * 2, first = start % block_rows;
  RowState *states = problem.states + (b * problem.heads + h) * problem.queries + start;
  int64_t used = 0;
  for (int n = 0; n < rows; ++n) {
    const int row = picked[n];
    if (alone) used = (first + row) * room;
    keep_support(problem, results[row], block, used, alone ? used + room : block_rows * room);
    states[row] = results[row].state;
  }
}

// Reads out some rows of a block.
static void read_block(const Problem &problem, const Workspace &space, int64_t b, int64_t h, int64_t start,
                       const int *picked, int rows, const RowResult *results, const ScoredBlock &block) {
  const int64_t row_base = (b * problem.heads + h) * problem.queries + start;
  const int64_t kv_head = h / (problem.heads / problem.kv_heads), first_column = block.first * space.segment;
  const StoredRows values = stored_rows(problem.value, problem.value_stride, stored_real, problem.value_dim, b, kv_head);
  const Real *dense_weights[block_rows];
  Real *dense_targets[block_rows], dense_factors[block_rows];
  int dense = 0;
  for (int n = 0; n < rows; ++n) {
    const int row = picked[n];
    const RowResult &result = results[row];
    Real *target = at_row(problem.output, problem.output_stride, b, h, start + row);
    if (result.state.count == row_is_nan) {
      fill(target, NAN, problem.value_dim);
      continue;
    }
    if (result.dense) {
      if (problem.dropout > 0.0) {
        drop_dense(Dropout(problem, row_base + row), result.weights, (block.last - block.first) * space.segment,
                   first_column);
      }
      fill(target, 0.0f, problem.value_dim);
      dense_weights[dense] = result.weights;
      dense_factors[dense] = result.factor;
      dense_targets[dense++] = target;
      continue;
    }
    if (problem.dropout > 0.0) drop_list(Dropout(problem, row_base + row), result);
    read_sparse(target, result.indices, result.weights, result.state.count, values);
  }
  if (dense) {
    const Real *value = at_row(problem.value, problem.value_stride, b, kv_head, 0);
    // The rows that were scored, which may be some of these only, see no keys behind.
    const int64_t last = minimum(problem.keys, block.last * space.segment);
    read_dense(dense_weights, dense_targets, dense, value + first_column * problem.value_stride[2],
               problem.value_stride[2], 0, last - first_column, 0, problem.value_dim);
    for (int row = 0; row < dense; ++row) scale(dense_targets[row], dense_factors[row], problem.value_dim);
  }
}
