// Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
// Backward: dz = w (g - mean of g under w) on the support, with w = p^(2 - alpha) and g = dO V^T. Rows whose support
// was kept touch nothing else; the others compute their scores again, and go through matrix products if they are
// dense.

// Where a task adds its gradients; null pointers are not wanted.
struct Targets {
  Real *key, *value;
  int64_t key_stride, value_stride;
  bool query, bias;
};

// w = p^(2 - alpha) for p > 0.
static inline Vector slopes_of(const Family &family, Vector p) {
  switch (family.kind) {
    case softmax_kind: return p;
    case two_kind: return spread(1.0f);
    case three_halves_kind: {
      for (int lane = 0; lane < lanes; ++lane) p[lane] = std::sqrt(p[lane]);
      return p;
    }
    default: return exponential(logarithm(p) * (1.0f - family.e));
  }
}

// p times the derivative of log p by alpha at fixed t: (w y - p log p) / e with y = (p^e - 1) / e.
static inline Vector alpha_slopes(const Family &family, Vector p, Vector w) {
  Vector log_p = logarithm(larger(p, spread(least_weight)));
  Vector u = log_p * family.e;
  // Near e log p = 0 the difference cancels; its series (1 - u - exp(-u)) / u^2 = -1/2 + u/6 - ... does not.
  Vector small = p * log_p * log_p * -exponential_tail<2, is_double ? 13 : 6>(-u);
  if (family.kind == softmax_kind) return small;
  Vector large = ((p - w) * family.inverse - p * log_p) * family.inverse;
  return choose(u > -0.3f, small, large);
}

// z' - t of an entry with weight p: (p^e - 1) / e.
static inline Vector scores_of(const Family &family, Vector p, Vector w) {
  if (family.kind == two_kind) return p - 1.0f;
  if (family.kind == three_halves_kind) return (w - 1.0f) * 2.0f;
  if (family.kind == integer_kind || family.kind == general_kind) return (p / w - 1.0f) * family.inverse;
  Vector log_p = logarithm(larger(p, spread(least_weight)));
  if (family.kind == softmax_kind) return log_p;
  Vector u = log_p * family.e;
  return choose(u > -0.3f, log_p * exponential_tail<1, is_double ? 14 : 5>(u), (p / w - 1.0f) * family.inverse);
}

static void add_bias_gradient(const Problem &problem, int64_t b, int64_t h, int64_t i, int64_t column, Real value) {
  const int64_t *stride = problem.bias_gradient_stride;
  *(problem.bias_gradient + b * stride[0] + h * stride[1] + i * stride[2] + column * stride[3]) += value;
}

static inline Real bias_at(const Problem &problem, int64_t b, int64_t h, int64_t i, int64_t column) {
  const int64_t *stride = problem.bias_stride;
  return problem.bias[b * stride[0] + h * stride[1] + i * stride[2] + column * stride[3]];
}

// One row whose support is a list. `dz` and `dropped` have room for it.
static void backward_list(const Problem &problem, const Targets &targets, int64_t b, int64_t h, int64_t i,
                          const int32_t *indices, const Real *weights, int count, Real *dz,
                          Real *dropped) {
  const int64_t kv_head = h / (problem.heads / problem.kv_heads);
  const int64_t row = (b * problem.heads + h) * problem.queries + i;
  const Real *value = at_row(problem.value, problem.value_stride, b, kv_head, 0);
  const Real *query = at_row(problem.query, problem.query_stride, b, h, i);
  const Real *upstream = at_row(problem.output_gradient, problem.output_gradient_stride, b, h, i);
  const Family family = family_at(problem, b, h, i);
  const Real scale = scale_at(problem, b, h, i);
  const Real *read = weights;
  for (int n = 0; n < count; ++n) {
    dz[n] = indices[n] < 0 ? 0.0f : dot(upstream, value + indices[n] * problem.value_stride[2], problem.value_dim);
  }
  if (problem.dropout > 0.0) {
    Dropout dropout(problem, row);
    for (int n = 0; n < count; ++n) {
      Real factor = dropout.factor(indices[n]);
      dz[n] *= factor;
      dropped[n] = weights[n] * factor;
    }
    read = dropped;
  }
  Vector products{}, slopes{};
  for (int n = 0; n < count; n += lanes) {
    int tail = static_cast<int>(minimum(lanes, count - n));
    Integers inside = count_lanes() < tail;
    Vector p = choose(inside, load_some(weights + n, tail), spread(1.0f));
    Vector w = (Vector)((Integers)slopes_of(family, p) & inside);
    products += (Vector)((Integers)(w * load_some(dz + n, tail)) & inside);
    slopes += w;
  }
  Real mean = sum_of(products) / sum_of(slopes);
  // The gradient of beta is the sum of dz times the scores without bias. As dz adds up to zero, these may be measured
  // from any origin: measured from maximum and threshold they are small, and nothing cancels.
  Vector by_alpha{}, by_score{};
  for (int n = 0; n < count; n += lanes) {
    int tail = static_cast<int>(minimum(lanes, count - n));
    Integers inside = count_lanes() < tail;
    Vector p = choose(inside, load_some(weights + n, tail), spread(1.0f));
    Vector w = slopes_of(family, p);
    Vector centered = (Vector)((Integers)(load_some(dz + n, tail) - mean) & inside);
    if (problem.alpha_gradient) by_alpha += alpha_slopes(family, p, w) * centered;
    if (problem.beta_gradient) by_score += scores_of(family, p, w) * (w * centered);
    store_some(dz + n, w * centered, tail);
  }
  Real by_beta = sum_of(by_score);
  for (int n = 0; n < count; ++n) {
    if (indices[n] < 0) {
      if (problem.sink_gradient && targets.query) problem.sink_gradient[row] = dz[n];
      // the sink's own score has no beta
      by_beta -= dz[n] * problem.sinks[h];
    } else {
      if (problem.bias && problem.beta_gradient) by_beta -= dz[n] * bias_at(problem, b, h, i, indices[n]);
      if (targets.bias) add_bias_gradient(problem, b, h, i, indices[n], dz[n]);
    }
    dz[n] *= scale;
  }
  if (targets.query) {
    if (problem.alpha_gradient) problem.alpha_gradient[row] = sum_of(by_alpha);
    if (problem.beta_gradient) problem.beta_gradient[row] = by_beta;
    read_sparse(at_row(problem.query_gradient, problem.query_gradient_stride, b, h, i), indices, dz, count,
                stored_rows(problem.key, problem.key_stride, stored_real, problem.head_dim, b, kv_head));
  }
  for (int n = 0; n < count; ++n) {
    if (indices[n] < 0) continue;
    if (targets.key) add_scaled(targets.key + indices[n] * targets.key_stride, dz[n], query, problem.head_dim);
    if (targets.value) {
      add_scaled(targets.value + indices[n] * targets.value_stride, read[n], upstream, problem.value_dim);
    }
  }
}

// The contribution of a dense row to the gradients of its alpha and of its scores as a whole.
struct RowSums {
  Real by_alpha, by_score;
};

// Scores and dO V^T of a dense row become its weights (after dropout) and its scaled dz.
template <Kind kind>
static RowSums backward_row(const Family &family, const Problem &problem, const RowState &state, Real *scores,
                            Real *gradient, int64_t vectors, int64_t first_column, const Real *sink, int64_t row,
                            Real scale) {
  const Vector top = spread(state.maximum), shift = spread(state.threshold);
  const Dropout dropout(problem, row);
  Vector p, w, products{}, slopes{};
  for (int64_t v = 0; v < vectors; ++v) {
    evaluate<kind>(family, (load(scores + v * lanes) - top) - shift, p, w);
    Vector g = load(gradient + v * lanes);
    if (problem.dropout > 0.0) {
      g *= dropout.factors(static_cast<int32_t>(first_column + v * lanes));
      store(gradient + v * lanes, g);
    }
    products += (Vector)((Integers)(w * g) & (w > 0.0f));
    slopes += w;
  }
  Real slope = sum_of(slopes);
  Vector sink_p{}, sink_w{};
  if (sink) {
    evaluate<kind>(family, (spread(*sink) - top) - shift, sink_p, sink_w);
    slope += sink_w[0];
  }
  Real mean = sum_of(products) / slope;
  if (sink && problem.sink_gradient) problem.sink_gradient[row] = -sink_w[0] * mean;
  Vector alpha_sum{}, score_sum{};
  for (int64_t v = 0; v < vectors; ++v) {
    Vector x = (load(scores + v * lanes) - top) - shift;
    evaluate<kind>(family, x, p, w);
    Integers inside = w > 0.0f;
    Vector centered = (Vector)((Integers)(load(gradient + v * lanes) - mean) & inside);
    if (problem.alpha_gradient) alpha_sum += (Vector)((Integers)(alpha_slopes(family, p, w) * centered) & inside);
    if (problem.beta_gradient) score_sum += (Vector)((Integers)(w * centered * x) & inside);
    store(gradient + v * lanes, w * centered * scale);
    if (problem.dropout > 0.0) p *= dropout.factors(static_cast<int32_t>(first_column + v * lanes));
    store(scores + v * lanes, p);
  }
  RowSums result{sum_of(alpha_sum), sum_of(score_sum)};
  if (sink && sink_p[0] > 0.0f) {
    if (problem.alpha_gradient) result.by_alpha -= alpha_slopes(family, sink_p, sink_w)[0] * mean;
    // its score is relative to the same origin, but does not depend on beta
    Real own = (*sink - state.maximum) - state.threshold;
    result.by_score += -sink_w[0] * mean * (own - *sink);
  }
  return result;
}

static void backward_dense(const Problem &problem, const Workspace &space, const Targets &targets, Panels &panels,
                           int64_t b, int64_t h, int64_t start, const int *rows, int count, const ScoredBlock &block) {
  const int64_t kv_head = h / (problem.heads / problem.kv_heads), head = b * problem.kv_heads + kv_head;
  const Real *value = at_row(problem.value, problem.value_stride, b, kv_head, 0);
  if (panels.value_head != head) {
    pack_panels(value, problem.value_stride[2], problem.keys, problem.value_dim, space.value_panels);
    panels.value_head = head;
  }
  const int64_t first = block.first * space.segment;
  const int64_t last = minimum(problem.keys, block.last * space.segment);
  const Real *upstream[block_rows], *query[block_rows], *weights[block_rows], *slopes[block_rows];
  Real *query_target[block_rows];
  for (int n = 0; n < count; ++n) {
    upstream[n] = at_row(problem.output_gradient, problem.output_gradient_stride, b, h, start + rows[n]);
    query[n] = at_row(problem.query, problem.query_stride, b, h, start + rows[n]);
    weights[n] = space.scores + rows[n] * space.stride;
    slopes[n] = space.gradients + n * space.stride;
    if (targets.query) {
      query_target[n] = at_row(problem.query_gradient, problem.query_gradient_stride, b, h, start + rows[n]);
    }
  }
  pack_rows(upstream, count, problem.value_dim, nullptr, space.rows);
  for (int64_t column = first; column < last; column += panel) {
    for (int n = 0; n < count; n += tile_rows) {
      int part = static_cast<int>(minimum(tile_rows, count - n));
      with_rows<ScoreTile>(part, space.rows + n * problem.value_dim, space.value_panels + column * problem.value_dim,
                           problem.value_dim, space.gradients + n * space.stride + (column - first), space.stride,
                           static_cast<Vector *>(nullptr), int64_t(0));
    }
  }
  const int64_t vectors = (round_up(last, panel) - first) / lanes;
  const Real *sink = problem.sinks ? problem.sinks + h : nullptr;
  for (int n = 0; n < count; ++n) {
    const int64_t i = start + rows[n], row = (b * problem.heads + h) * problem.queries + i;
    const Family family = family_at(problem, b, h, i);
    const Real scale = scale_at(problem, b, h, i);
    Real *gradient = space.gradients + n * space.stride;
    // With a bias dz itself is wanted; the scale is then put on afterwards.
    const bool unscaled = targets.bias || (problem.bias && problem.beta_gradient);
    RowSums sums = HOPFIELD_BY_KIND(backward_row, family, problem, problem.states[row],
                                    space.scores + rows[n] * space.stride, gradient, vectors, first, sink, row,
                                    unscaled ? 1.0f : scale);
    if (unscaled) {
      for (int64_t j = first; j < last; ++j) {
        Real dz = gradient[j - first];
        if (dz == 0.0f) continue;  // for example, masked by a bias of -inf
        if (targets.bias) add_bias_gradient(problem, b, h, i, j, dz);
        if (problem.beta_gradient) sums.by_score -= dz * bias_at(problem, b, h, i, j);
      }
      scale_weights(gradient, vectors, scale);
    }
    if (problem.alpha_gradient && targets.query) problem.alpha_gradient[row] = sums.by_alpha;
    if (problem.beta_gradient && targets.query) problem.beta_gradient[row] = sums.by_score;
    if (targets.query) fill(query_target[n], 0.0f, problem.head_dim);
  }
  if (targets.query) {
    const Real *key = at_row(problem.key, problem.key_stride, b, kv_head, first);
    read_dense(slopes, query_target, count, key, problem.key_stride[2], 0, last - first, 0, problem.head_dim);
  }
  if (targets.key) {
    spread_dense(slopes, query, count, 0, last - first, targets.key + first * targets.key_stride, targets.key_stride,
                 problem.head_dim);
  }
  if (targets.value) {
    spread_dense(weights, upstream, count, 0, last - first, targets.value + first * targets.value_stride,
                 targets.value_stride, problem.value_dim);
  }
}

static void backward_block(const Problem &problem, const Workspace &space, const Targets &targets, Panels &panels,
                           int64_t b, int64_t h, int64_t start) {
  const int rows = static_cast<int>(minimum(block_rows, problem.queries - start));
  const int64_t kv_head = h / (problem.heads / problem.kv_heads);
  const int64_t blocks = (problem.queries + block_rows - 1) / block_rows;
  const RowState *states = problem.states + (b * problem.heads + h) * problem.queries + start;
  const Integer *region = problem.support + ((b * problem.heads + h) * blocks + start / block_rows) * block_rows *
                                                problem.support_per_row * 2;
  bool again = false;
  for (int row = 0; row < rows; ++row) {
    const RowState &state = states[row];
    if (state.count <= 0) {
      if (targets.query) {
        fill(at_row(problem.query_gradient, problem.query_gradient_stride, b, h, start + row),
             state.count == row_is_nan ? NAN : 0.0f, problem.head_dim);
      }
    } else if (state.offset >= 0) {
      const int32_t *indices = reinterpret_cast<const int32_t *>(region + state.offset);
      const Real *weights = reinterpret_cast<const Real *>(region + state.offset + state.count);
      backward_list(problem, targets, b, h, start + row, indices, weights, static_cast<int>(state.count),
                    space.survivors, reinterpret_cast<Real *>(space.survivor_indices));
    } else {
      again = true;
    }
  }
  if (!again) return;
  panels.pack_keys(problem, space, b, kv_head);
  ScoredBlock block = score_block(problem, space, b, h, start, every_row, rows, panels.suspicious);
  const Real *sink = problem.sinks ? problem.sinks + h : nullptr;
  int dense_rows[block_rows], dense = 0;
  for (int row = 0; row < rows; ++row) {
    const RowState &state = states[row];
    if (state.count <= 0 || state.offset >= 0) continue;
    if (state.count > problem.keys / 6) {
      dense_rows[dense++] = row;
      continue;
    }
    const Family family = family_at(problem, b, h, start + row);
    Real *scores = space.scores + row * space.stride;
    int64_t vectors = (block.last - block.first) * space.group;
    int support = 0, kept = 0;
    if (sink) {
      Vector one = spread(-infinity);
      one[0] = *sink;
      store(scores + vectors * lanes, one);
      ++vectors;
    }
    Real sum = HOPFIELD_BY_KIND(write_weights, family, scores, vectors, state.maximum, state.threshold, support);
    for (int64_t v = 0; v < vectors; ++v) {
      Vector value = load(scores + v * lanes);
      uint32_t bits = above(value, Vector{});
      if (!bits) continue;
      bool is_sink = sink && v == vectors - 1;
      Integers index = is_sink ? spread(Integer(-1))
                               : count_lanes() + static_cast<int32_t>(block.first * space.segment + v * lanes);
      kept += append(space.list_weights + kept, space.list_indices + kept, value * (1.0f / sum), index, bits);
    }
    backward_list(problem, targets, b, h, start + row, space.list_indices, space.list_weights, kept,
                  space.survivors, reinterpret_cast<Real *>(space.survivor_indices));
  }
  if (dense) backward_dense(problem, space, targets, panels, b, h, start, dense_rows, dense, block);
}

static void clear_rows(Real *target, int64_t stride, int64_t rows, int64_t columns) {
  for (int64_t row = 0; row < rows; ++row) {
    std::memset(target + row * stride, 0, sizeof(Real) * static_cast<size_t>(columns));
  }
}

// A task is a head of keys and a share of the query blocks that use it; no other task writes to its gradients.
static void backward_worker(Shared *shared) {
  const Problem &problem = *shared->problem;
  Workspace space;
  if (!space.prepare(shared, backward_mode)) return;
  const int64_t group = problem.heads / problem.kv_heads, heads = problem.batch * problem.kv_heads;
  const int64_t width = problem.head_dim + problem.value_dim;
  Panels panels;
  for (int64_t task; (task = take_task(shared)) < shared->tasks;) {
    int64_t head = task / shared->splits, split = task % shared->splits;
    int64_t b = head / problem.kv_heads, kv_head = head % problem.kv_heads;
    Targets targets;
    targets.query = true;
    targets.bias = false;
    if (split == 0) {
      targets.key = at_row(problem.key_gradient, problem.key_gradient_stride, b, kv_head, 0);
      targets.value = at_row(problem.value_gradient, problem.value_gradient_stride, b, kv_head, 0);
      targets.key_stride = problem.key_gradient_stride[2];
      targets.value_stride = problem.value_gradient_stride[2];
    } else {
      Real *partial = shared->partial + ((split - 1) * heads + head) * problem.keys * width;
      targets.key = partial;
      targets.value = partial + problem.keys * problem.head_dim;
      targets.key_stride = problem.head_dim;
      targets.value_stride = problem.value_dim;
    }
    clear_rows(targets.key, targets.key_stride, problem.keys, problem.head_dim);
    clear_rows(targets.value, targets.value_stride, problem.keys, problem.value_dim);
    for (int64_t h = kv_head * group; h < (kv_head + 1) * group; ++h) {
      for (int64_t start = split * block_rows; start < problem.queries; start += shared->splits * block_rows) {
        backward_block(problem, space, targets, panels, b, h, start);
      }
    }
  }
}

// Adds the gradients of the other splits to those of the first, in their order.
static void reduce_worker(Shared *shared) {
  const Problem &problem = *shared->problem;
  const int64_t heads = problem.batch * problem.kv_heads, width = problem.head_dim + problem.value_dim;
  for (int64_t head; (head = take_task(shared)) < shared->tasks;) {
    int64_t b = head / problem.kv_heads, kv_head = head % problem.kv_heads;
    for (int64_t split = 1; split < shared->splits; ++split) {
      const Real *partial = shared->partial + ((split - 1) * heads + head) * problem.keys * width;
      for (int64_t j = 0; j < problem.keys; ++j) {
        add_scaled(at_row(problem.key_gradient, problem.key_gradient_stride, b, kv_head, j), 1.0f,
                   partial + j * problem.head_dim, problem.head_dim);
        add_scaled(at_row(problem.value_gradient, problem.value_gradient_stride, b, kv_head, j), 1.0f,
                   partial + problem.keys * problem.head_dim + j * problem.value_dim, problem.value_dim);
      }
    }
  }
}

// The gradient of a bias that is shared by batch entries, heads or queries: a task owns one entry of the bias along
// each of these dimensions and goes through everything that shares it, in order.
static void bias_worker(Shared *shared) {
  const Problem &problem = *shared->problem;
  Workspace space;
  if (!space.prepare(shared, backward_mode)) return;
  const int64_t *stride = problem.bias_gradient_stride;
  const int64_t blocks = (problem.queries + block_rows - 1) / block_rows;
  const int64_t own_blocks = stride[2] ? blocks : 1, own_heads = stride[1] ? problem.heads : 1;
  const int64_t own_batch = stride[0] ? problem.batch : 1;
  Targets targets{nullptr, nullptr, 0, 0, false, true};
  Panels panels;
  for (int64_t task; (task = take_task(shared)) < shared->tasks;) {
    int64_t own_b = task / (own_blocks * own_heads), own_h = task / own_blocks % own_heads, own_k = task % own_blocks;
    for (int64_t b = own_b; b < problem.batch; b += own_batch) {
      for (int64_t h = own_h; h < problem.heads; h += own_heads) {
        for (int64_t block = own_k; block < blocks; block += own_blocks) {
          backward_block(problem, space, targets, panels, b, h, block * block_rows);
        }
      }
    }
  }
}
