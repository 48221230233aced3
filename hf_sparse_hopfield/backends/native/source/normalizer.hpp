// Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
// alpha-entmax of one row. With z' = z - max and e = alpha - 1 the weights are p = [1 + e (z' - t)]_+^(1/e), and t is
// the root of G(t) = (S^e - 1) / e with S = sum of p. G is convex and falls, so Newton's method from the left never
// passes the root, t = 0 is left of it, and so is the root of any subset of the row.

// Below `alpha = 1.1` the general kind needs a more careful logarithm.
enum Kind { softmax_kind, two_kind, three_halves_kind, integer_kind, general_kind, small_kind };

struct Family {
  Kind kind;
  int power;          // 1 / e where that is an integer
  Real e, inverse;    // alpha - 1 and 1 / (alpha - 1)
  // Newton's method converges quadratically, so that after a step this small what remains is below rounding. Towards
  // alpha = 2 the weights have a steep edge: entries near it enter or leave the support, and steps must be smaller.
  Real last_step;
};

static Family family_of(double alpha) {
  Family family;
  double e = alpha - 1.0;
  family.e = static_cast<Real>(e);
  family.inverse = e > 0.0 ? static_cast<Real>(1.0 / e) : infinity;
  family.power = 0;
  family.last_step = static_cast<Real>(is_double ? (e <= 0.5 ? 1e-9 : 1e-13) : (e <= 0.5 ? 3e-4 : 1e-6));
  // Closer to one the difference from softmax is below float32; in double every difference counts.
  if (!(e > (is_double ? 0.0 : 1e-6))) {
    family.kind = softmax_kind;
    family.e = 0.0f;
    family.inverse = infinity;
    return family;
  }
  double nearest = std::nearbyint(1.0 / e);
  family.kind = e < 0.1 ? small_kind : general_kind;
  if (nearest <= 10.0 && std::fabs(e * nearest - 1.0) < (is_double ? 1e-15 : 1e-7)) {
    family.power = static_cast<int>(nearest);
    family.kind = family.power == 1 ? two_kind : (family.power == 2 ? three_halves_kind : integer_kind);
  }
  return family;
}

// p and w = p^(2 - alpha) for x = z' - t; both are zero outside the support.
template <Kind kind>
static inline void evaluate(const Family &family, Vector x, Vector &p, Vector &w) {
  if (kind == softmax_kind) {
    p = w = exponential(x);
  } else if (kind == two_kind) {
    Vector y = x + 1.0f;
    Integers inside = y > 0.0f;
    p = (Vector)((Integers)y & inside);
    w = (Vector)((Integers)spread(1.0f) & inside);
  } else if (kind == three_halves_kind) {
    w = larger(x * 0.5f + 1.0f, Vector{});
    p = w * w;
  } else if (kind == integer_kind) {
    Vector y = larger(x * family.e + 1.0f, Vector{});
    w = y;
    for (int i = 2; i < family.power; ++i) w *= y;
    p = w * y;
  } else if (kind == general_kind) {
    Vector y = larger(x * family.e + 1.0f, spread(1e-30f));
    w = (Vector)((Integers)power_of(y, family.inverse - 1.0f) & (y > 1e-30f));
    p = w * y;
  } else {
    Vector u = x * family.e;
    Vector y = u + 1.0f;
    Integers inside = y > 1e-30f;
    Vector safe = choose(inside, y, spread(1.0f));
    // The rounding of adding one matters once it is divided by a small e.
    Vector log_y = logarithm(safe) + choose(inside, u - (y - 1.0f), Vector{}) / safe;
    w = (Vector)((Integers)exponential(log_y * (family.inverse - 1.0f)) & inside);
    p = w * safe;
  }
}

static inline Real newton_step(const Family &family, Real sum, Real slope) {
  switch (family.kind) {
    case softmax_kind: return std::log(sum);
    case two_kind: return (sum - 1.0f) / slope;
    case three_halves_kind: {
      Real root = std::sqrt(sum);
      return 2.0f * (root - 1.0f) * root / slope;
    }
    default: {
      Real exponent = family.e * std::log(sum);
      Real excess = family.kind == small_kind ? std::expm1(exponent) : std::exp(exponent) - 1.0f;
      return excess * family.inverse * (sum / (1.0f + excess)) / slope;
    }
  }
}

// One pass over `count` vectors: S and W at t.
template <Kind kind>
static inline void sums_at(const Family &family, const Real *scores, int64_t count, int64_t stride, Real maximum,
                           Real t, Real &sum, Real &slope) {
  Vector p, w, sums{}, slopes{};
  Vector top = spread(maximum), shift = spread(t);
  for (int64_t i = 0; i < count; ++i) {
    evaluate<kind>(family, (load(scores + i * stride) - top) - shift, p, w);
    sums += p;
    slopes += w;
  }
  sum = sum_of(sums);
  slope = sum_of(slopes);
}

// A value of t at or left of the root, from the lane-wise maximum of the maxima of groups of scores.
template <Kind kind>
static Real coarse_bound(const Family &family, Vector folded, Real maximum) {
  Real sum, slope, t = 0.0f, single[lanes] __attribute__((aligned(64)));
  store(single, folded);
  for (int step = 0; step < 3; ++step) {
    sums_at<kind>(family, single, 1, lanes, maximum, t, sum, slope);
    Real move = newton_step(family, sum, slope);
    t += move;
    if (move < 0.02f) break;
  }
  return t;
}

// A better one, from all maxima of groups.
template <Kind kind>
static Real fine_bound(const Family &family, const Real *maxima, int64_t count, Real maximum, Real t, int steps) {
  Real sum, slope;
  for (int step = 0; step < steps; ++step) {
    sums_at<kind>(family, maxima, count, lanes, maximum, t, sum, slope);
    if (!(sum > 1.0f)) break;
    Real move = newton_step(family, sum, slope);
    t += move;
    if (move < 0.01f) break;
  }
  return t;
}

// The bounds of a row, known before its scores are read: its maximum and two values of t at or left of the root.
struct Bounds {
  Real top, coarse, fine;
};

constexpr int bound_rows = 4;

// The bounds of several rows, their maxima of groups `apart` numbers from each other. A step waits for the one before
// it, so rows are taken together and take as long as one. There is no early exit, because it would cost a branch.
template <Kind kind>
static void bounds_of(const Family &family, const Real *maxima, int64_t apart, int64_t count, Bounds *bounds) {
  Vector best[bound_rows], p, w;
  Real t[bound_rows];
  for (int row = 0; row < bound_rows; ++row) {
    best[row] = spread(-infinity);
    for (int64_t s = 0; s < count; ++s) best[row] = larger(best[row], load(maxima + row * apart + s * lanes));
    bounds[row].top = largest_of(best[row]);
    t[row] = 0.0f;
  }
  for (int step = 0; step < 2; ++step) {
#pragma GCC unroll 4
    for (int row = 0; row < bound_rows; ++row) {
      evaluate<kind>(family, (best[row] - bounds[row].top) - t[row], p, w);
      Real move = newton_step(family, sum_of(p), sum_of(w));
      t[row] += move > 0.0f ? move : 0.0f;
    }
  }
  for (int row = 0; row < bound_rows; ++row) bounds[row].coarse = t[row];
  for (int step = 0; step < 3; ++step) {
    Vector sums[bound_rows], slopes[bound_rows];
#pragma GCC unroll 4
    for (int row = 0; row < bound_rows; ++row) {
      sums[row] = slopes[row] = Vector{};
      Vector top = spread(bounds[row].top), shift = spread(t[row]);
      for (int64_t s = 0; s < count; ++s) {
        evaluate<kind>(family, (load(maxima + row * apart + s * lanes) - top) - shift, p, w);
        sums[row] += p;
        slopes[row] += w;
      }
    }
#pragma GCC unroll 4
    for (int row = 0; row < bound_rows; ++row) {
      Real move = newton_step(family, sum_of(sums[row]), sum_of(slopes[row]));
      t[row] += move > 0.0f ? move : 0.0f;
    }
  }
  for (int row = 0; row < bound_rows; ++row) bounds[row].fine = t[row];
}

// Smaller steps of sparsemax are rounding.
constexpr Real least_step = static_cast<Real>(is_double ? 1e-15 : 1e-7);

// The root for `count` vectors of scores, from any starting point.
template <Kind kind>
static Real solve(const Family &family, const Real *scores, int64_t count, Real maximum, Real t) {
  Real sum, slope, previous = 0.0f;
  for (int step = 0; step < 50; ++step) {
    sums_at<kind>(family, scores, count, lanes, maximum, t, sum, slope);
    if (!(slope > 0.0f)) {  // the start was right of every score; zero never is
      t = 0.0f;
      continue;
    }
    Real move = newton_step(family, sum, slope);
    t += move;
    Real size = std::fabs(move);
    // Sparsemax is piecewise linear: the root is exact once the support stands still.
    if (kind == two_kind ? (slope == previous || size < least_step) : size < family.last_step) break;
    previous = slope;
  }
  return t;
}

// A start for a row that may be dense, from a sample of its vectors: not a bound, but close to the root.
template <Kind kind>
static Real guess_dense(const Family &family, const Real *scores, int64_t count, Real maximum, Real t) {
  Real sum, slope, guess = t;
  const int64_t apart = count >= 64 ? 16 : (count >= 16 ? 8 : 1);
  const int64_t sample = (count + apart - 1) / apart;
  const Real weight = static_cast<Real>(count) / static_cast<Real>(sample);
  for (int step = 0; step < 5; ++step) {
    sums_at<kind>(family, scores, sample, apart * lanes, maximum, guess, sum, slope);
    if (!(slope > 0.0f)) return t;
    Real move = newton_step(family, sum * weight, slope * weight);
    guess += move;
    if (std::fabs(move) < 0.02f) break;
  }
  return guess > t ? guess : t;
}

// Whether a pass over a row costs more than collecting those of its scores that matter.
static inline bool is_costly(const Family &family) {
  return family.kind == integer_kind || family.kind == general_kind || family.kind == small_kind;
}

// Replaces scores by weights; returns the sum, and the size of the support.
template <Kind kind>
static Real write_weights(const Family &family, Real *scores, int64_t count, Real maximum, Real t, int &support) {
  Vector p, w, sums{};
  Integers inside{};
  Vector top = spread(maximum), shift = spread(t);
  for (int64_t i = 0; i < count; ++i) {
    evaluate<kind>(family, (load(scores + i * lanes) - top) - shift, p, w);
    store(scores + i * lanes, p);
    sums += p;
    inside -= p > 0.0f;
  }
  support = 0;
  for (int lane = 0; lane < lanes; ++lane) support += inside[lane];
  return sum_of(sums);
}

// Solves a whole row and replaces its scores by weights; returns their sum, the root and the size of the support.
// Where p is costly, p and w of the last pass are kept in two rows of memory and moved to the root by the first-order
// term, which is exact but for rounding for the last, small step.
template <Kind kind>
static Real solve_dense(const Family &family, Real *scores, int64_t count, Real maximum, Real &t, int &support,
                        Real *weights, Real *slopes) {
  t = guess_dense<kind>(family, scores, count, maximum, t);
  if (kind == two_kind || kind == three_halves_kind) {
    t = solve<kind>(family, scores, count, maximum, t);
    return write_weights<kind>(family, scores, count, maximum, t, support);
  }
  Vector p, w, top = spread(maximum);
  Real move = 0.0f;
  for (int step = 0; step < 50; ++step) {
    Vector sums{}, totals{}, shift = spread(t);
    for (int64_t i = 0; i < count; ++i) {
      evaluate<kind>(family, (load(scores + i * lanes) - top) - shift, p, w);
      store(weights + i * lanes, p);
      store(slopes + i * lanes, w);
      sums += p;
      totals += w;
    }
    Real slope = sum_of(totals);
    if (!(slope > 0.0f)) {  // the start was right of every score; zero never is
      t = 0.0f;
      continue;
    }
    move = newton_step(family, sum_of(sums), slope);
    t += move;
    if (std::fabs(move) < family.last_step) break;
  }
  Vector sums{};
  Integers inside{};
  for (int64_t i = 0; i < count; ++i) {
    p = larger(load(weights + i * lanes) - load(slopes + i * lanes) * move, Vector{});
    store(scores + i * lanes, p);
    sums += p;
    inside -= p > 0.0f;
  }
  support = 0;
  for (int lane = 0; lane < lanes; ++lane) support += inside[lane];
  return sum_of(sums);
}

static inline void scale_weights(Real *weights, int64_t count, Real factor) {
  for (int64_t i = 0; i < count; ++i) store(weights + i * lanes, load(weights + i * lanes) * factor);
}

// Calls a template of this file with the kind of a family.
#define HOPFIELD_BY_KIND(function, family, ...)                                          \
  ((family).kind == two_kind            ? function<two_kind>(family, __VA_ARGS__)          \
   : (family).kind == three_halves_kind ? function<three_halves_kind>(family, __VA_ARGS__) \
   : (family).kind == integer_kind      ? function<integer_kind>(family, __VA_ARGS__)      \
   : (family).kind == general_kind      ? function<general_kind>(family, __VA_ARGS__)      \
   : (family).kind == small_kind        ? function<small_kind>(family, __VA_ARGS__)        \
                                        : function<softmax_kind>(family, __VA_ARGS__))

// The random numbers of dropout: a function of seed, row and column, so that backward finds the same ones again.
struct Dropout {
  uint32_t row_key, threshold;
  Real kept;  // the factor on a kept weight

  Dropout(const Problem &problem, int64_t row) {
    threshold = static_cast<uint32_t>(problem.dropout * 4294967296.0);
    kept = problem.dropout < 1.0 ? static_cast<Real>(1.0 / (1.0 - problem.dropout)) : 0.0f;
    uint64_t key = static_cast<uint64_t>(problem.seed) + 0x9e3779b97f4a7c15ull * static_cast<uint64_t>(row + 1);
    key = (key ^ (key >> 30)) * 0xbf58476d1ce4e5b9ull;
    key = (key ^ (key >> 27)) * 0x94d049bb133111ebull;
    row_key = static_cast<uint32_t>(key ^ (key >> 31));
  }

  template <class Number>
  static Number mix(Number value) {
    value ^= value >> 16;
    value *= 0x85ebca6bu;
    value ^= value >> 13;
    value *= 0xc2b2ae35u;
    return value ^ (value >> 16);
  }

  Real factor(int32_t column) const {
    return mix(static_cast<uint32_t>(column) * 0x9e3779b9u + row_key) < threshold ? 0.0f : kept;
  }

  Vector factors(int32_t first_column) const {
    Unsigned columns = __builtin_convertvector(count_lanes() + first_column, Unsigned);
    Unsigned random = mix(columns * 0x9e3779b9u + row_key);
    return choose(__builtin_convertvector(random >= threshold, Integers), spread(kept), Vector{});
  }
};
