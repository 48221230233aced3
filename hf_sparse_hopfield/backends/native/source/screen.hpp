// Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
// Screening: the int8 copy of the keys bounds every score, and only keys that may have weight are scored exactly. Why
// nothing is lost, and why the bounds hold in floating point, is proved in backends/key_screen.py.
//
// A row goes through the keys in passes. The first pass gives a limit: a score at or below it has no weight. Keys whose
// upper bound is above the limit are listed; a list that grows gives a better limit and is filtered by it. What is left
// at the end is scored exactly and solved.

constexpr int64_t pass_groups = 4;
constexpr int64_t pass_keys = pass_groups * group_keys;
constexpr int pass_rows = lanes == 16 ? 8 : 4;  // rows that go through a pass together: their products stay in L1
constexpr int64_t product_stride = pass_keys + tile_keys;  // rows start in different cache sets
constexpr int64_t maxima_stride = pass_groups * tile_keys;
constexpr int64_t lows_stride = maxima_stride + tile_keys;  // one more for the sink
constexpr int64_t short_list = 32;  // not worth filtering

// The int8 copy of the keys of one head.
struct HeadScreen {
  const uint8_t *codes;
  const uint16_t *scales;
  const float *bounds;
  int64_t quads;
  int64_t first;  // place of the first key of the problem
};

static HeadScreen screen_of(const Shared *shared, int64_t b, int64_t kv_head) {
  const Problem &problem = *shared->problem;
  HeadScreen head;
  head.quads = (problem.head_dim + 3) / 4;
  auto place = [&](const auto &screen) {
    head.codes = screen.codes + b * screen.code_stride[0] + kv_head * screen.code_stride[1];
    head.scales = screen.scales + b * screen.scale_stride[0] + kv_head * screen.scale_stride[1];
    head.bounds = screen.bounds + b * screen.bound_stride[0] + kv_head * screen.bound_stride[1];
  };
  if (problem.screening == screen_given) {
    place(problem.screen);
    head.first = problem.screen_first;
  } else {
    place(shared->made);
    head.first = 0;
  }
  return head;
}

static inline Real scale_of(const HeadScreen &screen, int64_t place) {
  const uint32_t bits = static_cast<uint32_t>(screen.scales[place]) << 16;
  Real scale;
  std::memcpy(&scale, &bits, sizeof(scale));
  return scale;
}

// A query on its way through the keys.
struct ScreenedRow {
  int64_t b, h, i;
  Family family;
  Range range;        // of places
  RowLimits limits;
  const Real *query;  // scaled
  Real unit, inverse;  // the score of a product of 1, and one over it
  Real length, rest;  // a key's score is off by at most its scale times (length * residual + rest * norm) of its group
  Real rounding;      // of the rest: what the roundings of an exact score amount to
  Real limit;         // scores at or below this have no weight; -inf until a key has been seen
  Real *values, *errors;  // the list: scores from the products, what they may be off by, and keys
  int32_t *indices;
  int64_t count, filtered;
  bool ordinary;      // screening does not pay for this row, or cannot bound it
};

constexpr Real wild_from = 1e34f;  // scales of keys without bounds; see quantize.hpp

// What one key of a group may be off by, for a scale of 1.
static inline Real error_of(const ScreenedRow &row, const HeadScreen &screen, int64_t group) {
  const float *bounds = screen.bounds + group * group_bounds;
  return row.length * bounds[0] + row.rest * bounds[1];
}

// What any key of a group may be off by.
static inline Real largest_error(const ScreenedRow &row, const HeadScreen &screen, int64_t group) {
  return error_of(row, screen, group) * screen.bounds[group * group_bounds + 2];
}

// The memory of a thread that screens.
struct ScreenSpace {
  int64_t width, room;  // of a scaled query, and of a list
  Real *scaled, *products, *maxima, *lows, *values, *errors, *list_weights;
  int32_t *words, *offsets, *indices, *list_indices;
  Workspace solving;  // only what `solve_survivors` takes

  static int64_t list_room(int64_t keys) { return round_up(keys / 8, group_keys) + 2 * group_keys; }

  size_t carve(char *base, const Problem &problem, int64_t keys, int64_t lists) {
    width = round_up(problem.head_dim, maximum(lanes, 4));
    room = list_room(keys);
    // One list for each row of a block, or those that several parts of the keys gave to one row.
    const int64_t margin = 4 * lanes, merged = round_up(room * lists, lanes), all = lists == 1 ? block_rows * room : merged;
    size_t used = 0;
    auto take = [&](int64_t count) {
      char *start = base + used;
      used += static_cast<size_t>(round_up(count * 4, 64));
      return start;
    };
    auto reals = [&](int64_t count) { return reinterpret_cast<Real *>(take(count)); };
    auto integers = [&](int64_t count) { return reinterpret_cast<int32_t *>(take(count)); };
    scaled = reals(block_rows * width);
    words = integers(block_rows * (width / 4) * 2);
    offsets = integers(block_rows);
    products = reals(pass_rows * product_stride);
    maxima = reals(pass_rows * maxima_stride);
    lows = reals(maximum(pass_rows, bound_rows) * lows_stride);
    values = reals(all + margin);
    errors = reals(all + margin);
    indices = integers(all + margin);
    solving.survivors = reals(merged + margin);
    solving.survivor_indices = integers(merged + margin);
    solving.list_limit = minimum(room, problem.keys / 4);
    const int64_t listed = lists == 1 ? block_rows * solving.list_limit : solving.list_limit;
    list_weights = reals(listed + margin);
    list_indices = integers(listed + margin);
    return used;
  }

  // `keys` that a row goes through, and how many lists of a row are brought together at the end.
  bool prepare(Shared *shared, int64_t keys, int64_t lists) {
    char *base = scratch(carve(nullptr, *shared->problem, keys, lists), screen_slot);
    if (!base) {
      __atomic_store_n(&shared->failed, 1, __ATOMIC_RELAXED);
      return false;
    }
    carve(base, *shared->problem, keys, lists);
    return true;
  }

  void give_list(ScreenedRow &row, int64_t list) const {
    row.values = values + list * room;
    row.errors = errors + list * room;
    row.indices = indices + list * room;
  }
};

// The largest 16-bit entry of a query whose sums stay within 32 bits.
static inline Real wide_limit(int64_t depth) {
  const int64_t most = INT32_MAX / (256 * round_up(depth, 4));
  return static_cast<Real>(minimum(most, 16383));
}

// Scales a query and rounds it to `words`. Returns false if a number is too large, too small or NaN.
static bool quantize_row(const Problem &problem, const Products &products, bool wide, ScreenedRow &row, Real *scaled,
                         int64_t width, int32_t *words, int32_t *offset) {
  const Real *query = at_row(problem.query, problem.query_stride, row.b, row.h, row.i);
  const int64_t depth = problem.head_dim;
  const Vector factor = spread(scale_at(problem, row.b, row.h, row.i));
  Vector most{}, squares{};
  for (int64_t d = 0; d < width; d += lanes) {
    const int64_t left = depth - d;
    Vector value = left >= lanes ? load(query + d) : load_some(query + d, static_cast<int>(maximum(0, left)));
    value *= factor;
    store(scaled + d, value);
    squares += value * value;
    Vector size = (Vector)((Integers)value & magnitude_bits);
    if (products.paired && !wide) size += swap_neighbours(size);
    most = larger(most, size);
  }
  const Real square = sum_of(squares), largest = largest_of(most);
  row.query = scaled;
  if (!(square < 1e30f) || !(largest > 1e-15f)) return false;
  // 127 and not 128 for pairs, because both may be rounded up
  const Real top = wide ? wide_limit(depth) : 127.0f, inverse = top / largest;
  row.unit = largest / top;
  row.inverse = inverse;
  Vector rests{};
  Integers sums{};
  int16_t shorts[4096 / 16];
  int8_t bytes[4096 / 16];
  for (int64_t start = 0; start < width; start += 256) {  // 256 entries at a time
    const int64_t count = minimum(256, width - start);
    for (int64_t d = 0; d < count; d += lanes) {
      const Vector value = load(scaled + start + d);
      const Vector shifted = value * inverse + 12582912.0f;  // rounds to the nearest integer
      const Integers entry = (Integers)shifted - 0x4b400000;
      const Vector rest = value - (shifted - 12582912.0f) * row.unit;
      rests += rest * rest;
      sums += entry;
      if (wide) {
        typedef int16_t Shorts __attribute__((vector_size(lanes * 2)));
        const Shorts narrowed = __builtin_convertvector(entry, Shorts);
        std::memcpy(shorts + d, &narrowed, sizeof(narrowed));
      } else {
        typedef int8_t Bytes __attribute__((vector_size(lanes)));
        const Bytes narrowed = __builtin_convertvector(entry, Bytes);
        std::memcpy(bytes + d, &narrowed, sizeof(narrowed));
      }
    }
    for (int64_t d = 0; d < count; d += 4, words += block_rows) {
      if (wide) {
        const uint32_t even = static_cast<uint16_t>(shorts[d]) | static_cast<uint32_t>(shorts[d + 2]) << 16;
        const uint32_t odd = static_cast<uint16_t>(shorts[d + 1]) | static_cast<uint32_t>(shorts[d + 3]) << 16;
        words[0] = static_cast<int32_t>(even);
        words += block_rows;
        words[0] = static_cast<int32_t>(odd);
      } else {
        std::memcpy(words, bytes + d, 4);
      }
    }
  }
  int32_t sum = 0;
  for (int lane = 0; lane < lanes; ++lane) sum += sums[lane];
  *offset = 128 * sum;
  // Relative to length times norm, the products and the exact scores are off by some roundings.
  row.length = std::sqrt(square) * 1.00001f;
  row.rounding = 6e-8f * static_cast<Real>(16 + depth / 8) * row.length;
  row.rest = std::sqrt(sum_of(rests)) * 1.00001f + row.rounding;
  return true;
}

// Limits and borders of one group of a row. The products become -inf where it does not see a key; the maxima are found
// again. Returns false if a score is NaN or infinite.
static bool finish_group(const ScreenedRow &row, const HeadScreen &screen, Real *products, Real *maxima,
                         int64_t place) {
  constexpr int vectors = static_cast<int>(tile_keys / lanes);
  const Range keys{row.range.first - screen.first, row.range.last - screen.first};
  Vector best[vectors], sum{};
  for (int n = 0; n < vectors; ++n) best[n] = spread(-infinity);
  for (int64_t tile = 0; tile < group_keys; tile += tile_keys) {
    for (int n = 0; n < vectors; ++n) {
      Real *at = products + tile + n * lanes;
      const int64_t key = place + tile + n * lanes - screen.first;
      const Vector value = finished(row.limits, keys, load(at), key, row.inverse);
      sum += larger(value, Vector{});  // not finite if one is NaN or infinity
      best[n] = larger(best[n], value);
      store(at, value);
    }
  }
  for (int n = 0; n < vectors; ++n) store(maxima + n * lanes, best[n]);
  return sum_of(sum) < infinity;
}

// A limit from lower bounds of some scores of a row, if there are any.
static inline Real limit_from(const Family &family, Real top, Real t) {
  return top > -infinity ? limit_of(family, top, t) : -infinity;
}

// Lower bounds of the group maxima of a pass, as scores, with the sink behind them; returns how many vectors.
static int64_t lower_bounds(const ScreenedRow &row, const HeadScreen &screen, const Real *maxima, int64_t first_group,
                            int64_t groups, const Real *sink, Real *lows) {
  const Vector unit = spread(row.unit);
  for (int64_t g = 0; g < groups; ++g) {
    const Vector error = spread(largest_error(row, screen, first_group + g));
    for (int64_t n = 0; n < tile_keys; n += lanes) {
      store(lows + g * tile_keys + n, load(maxima + g * tile_keys + n) * unit - error);
    }
  }
  return join_sink(lows, groups * tile_keys / lanes, sink);
}

template <Kind kind>
static Real bound_of(const Family &family, const Real *lows, int64_t vectors, Real &top) {
  Vector best = spread(-infinity);
  for (int64_t v = 0; v < vectors; ++v) best = larger(best, load(lows + v * lanes));
  top = largest_of(best);
  if (!(top > -infinity)) return 0.0f;
  return fine_bound<kind>(family, lows, vectors, top, coarse_bound<kind>(family, best, top), 4);
}

// Gives up to `pass_rows` rows their first limits. Where all rows are of one family, and of one that is cheap to evaluate,
// several are bounded at a time.
static void first_limits(ScreenedRow *rows, int count, const HeadScreen &screen, const ScreenSpace &space,
                         int64_t first_group, int64_t groups, const Real *sinks, bool uniform) {
  const Kind kind = rows[0].family.kind;
  const bool together = uniform && (kind == two_kind || kind == three_halves_kind);
  for (int first = 0; first < count; first += bound_rows) {
    int64_t vectors = 0;
    for (int n = 0; n < bound_rows; ++n) {
      const int r = first + n;
      Real *lows = space.lows + r * lows_stride;
      if (r >= count || rows[r].ordinary || rows[r].limit > -infinity) {
        if (together) fill(lows, -infinity, lows_stride);
        continue;
      }
      vectors = lower_bounds(rows[r], screen, space.maxima + r * maxima_stride, first_group, groups,
                             sinks ? sinks + rows[r].h : nullptr, lows);
    }
    if (!vectors) continue;
    Bounds bounds[bound_rows];
    if (together) {
      const Real *lows = space.lows + first * lows_stride;
      if (kind == two_kind) {
        bounds_of<two_kind>(rows[0].family, lows, lows_stride, vectors, bounds);
      } else {
        bounds_of<three_halves_kind>(rows[0].family, lows, lows_stride, vectors, bounds);
      }
    }
    for (int n = 0; n < bound_rows && first + n < count; ++n) {
      ScreenedRow &row = rows[first + n];
      if (row.ordinary || row.limit > -infinity) continue;
      Real top = bounds[n].top, t = bounds[n].fine;
      if (!together) t = HOPFIELD_BY_KIND(bound_of, row.family, space.lows + (first + n) * lows_stride, vectors, top);
      row.limit = limit_from(row.family, top, t);
      if (row.limit > -infinity) continue;
      // Keys that it sees, but whose scores have no lower bound, give no limit.
      for (int64_t k = 0; k < groups * tile_keys; ++k) {
        if (space.maxima[(first + n) * maxima_stride + k] > -infinity) row.ordinary = true;
      }
    }
  }
}

// The number of the first bit that is set; 63 if there is none.
static inline int32_t first_bit(uint64_t bits) { return __builtin_ctzll(bits | uint64_t(1) << 63); }

// Lists the keys of a group whose upper bound is above the limit, at first with the largest error of the group.
static void collect_group(ScreenedRow &row, const HeadScreen &screen, const Real *products, const Real *maxima,
                          int64_t group) {
  const Real each = error_of(row, screen, group);
  const Real lowest = (row.limit - each * screen.bounds[group * group_bounds + 2]) * row.inverse;
  if (!(lowest < 1e37f)) {  // not in units of this row
    row.ordinary = true;
    return;
  }
  const Vector bound = spread(lowest);
  uint32_t columns = 0;
  for (int n = 0; n < tile_keys; n += lanes) columns |= above(load(maxima + n), bound) << n;
  if (!columns) return;
  int32_t *const begin = row.indices + row.count, *target = begin;
  if (__builtin_popcount(columns) <= 3) {  // every sixteenth key, from these on
    for (; columns; columns &= columns - 1) {
      for (int32_t key = __builtin_ctz(columns); key < group_keys; key += tile_keys) {
        *target = key;
        target += products[key] > lowest;
      }
    }
    columns = 0;
  }
  for (int32_t start = 0; columns && start < group_keys; start += 64) {
    uint64_t found = 0;
#pragma GCC unroll 16
    for (int n = 0; n < 64; n += lanes) {
      found |= static_cast<uint64_t>(above(load(products + start + n), bound)) << n;
    }
    // Most have none to two keys; these take no branch, which would be mispredicted.
    const int64_t count = __builtin_popcountll(found);
    target[0] = first_bit(found) + start;
    found &= found - 1;
    target[1] = first_bit(found) + start;
    found &= found - 1;
    for (int32_t *more = target + 2; found; found &= found - 1) *more++ = first_bit(found) + start;
    target += count;
  }
  const int64_t place = group * group_keys;
  const int32_t first = static_cast<int32_t>(place - screen.first);
  Real *values = row.values + row.count, *errors = row.errors + row.count;
  const int64_t listed = target - begin;
  for (int64_t n = 0; n < listed; ++n) {
    values[n] = products[begin[n]] * row.unit;
    const Real scale = scale_of(screen, place + begin[n]);
    errors[n] = scale < wild_from ? each * scale : infinity;
    begin[n] += first;
  }
  row.count += listed;
}

// Raises the limit of a row by its list, and drops keys whose own upper bound is not above it.
static void filter_list(const Workspace &space, ScreenedRow &row, const Real *sink) {
  Real *lows = space.survivors;
  int64_t vectors = (row.count + lanes - 1) / lanes;
  store(row.values + row.count, spread(-infinity));
  store(row.errors + row.count, Vector{});
  for (int64_t v = 0; v < vectors; ++v) {
    store(lows + v * lanes, load(row.values + v * lanes) - load(row.errors + v * lanes));
  }
  const int64_t bounded = join_sink(lows, vectors, sink);
  Real top;
  const Real t = HOPFIELD_BY_KIND(bound_of, row.family, lows, bounded, top);
  const Real limit = limit_from(row.family, top, t);
  if (limit > row.limit) row.limit = limit;
  int64_t kept = 0;
  for (int64_t n = 0; n < row.count; ++n) {  // without a branch
    const Real value = row.values[n], error = row.errors[n];
    const int32_t index = row.indices[n];
    row.values[kept] = value;
    row.errors[kept] = error;
    row.indices[kept] = index;
    kept += value + error > row.limit;
  }
  row.count = row.filtered = kept;
}

// Newton's method on a sample of a row, each score of which stands for `weight` scores: not a bound, but close to the root.
template <Kind kind>
static Real guess_from_sample(const Family &family, const Real *sample, int64_t vectors, Real top, Real weight) {
  Real sum, slope, t = 0.0f;
  for (int step = 0; step < 20; ++step) {
    sums_at<kind>(family, sample, vectors, lanes, top, t, sum, slope);
    if (!(slope > 0.0f)) break;
    const Real move = newton_step(family, sum * weight, slope * weight);
    t += move;
    if (std::fabs(move) < 0.05f) break;
  }
  return t;
}

// The share of keys up to which it pays to score them one by one, instead of all. Measured; it decides on time, not on results.
static Real paying_share(const Problem &problem, const Products &products, bool few, int rows, int64_t keys) {
  if (!few) return products.worth_scoring(keys) / static_cast<Real>(keys);
  // Keys that lie apart are slow to read from memory, and each row reads its own.
  const int64_t bytes = problem.batch * problem.kv_heads * keys * problem.head_dim * bytes_of(problem.key_kind);
  if (bytes < int64_t(16) << 20) return 0.09f;
  return rows > 2 ? 0.055f : 0.08f;
}

// How many of some scores, each of which stands for `weight` scores of its row, have an upper bound that may count. The bounds are
// `error` above the scores, or errors[n].
static int count_above(const ScreenedRow &row, const Real *scores, const Real *errors, Real error, int64_t vectors,
                       Real weight) {
  Vector best = spread(-infinity);
  for (int64_t v = 0; v < vectors; ++v) best = larger(best, load(scores + v * lanes));
  const Real top = largest_of(best);
  if (!(top > -infinity)) return 0;
  const Real t = HOPFIELD_BY_KIND(guess_from_sample, row.family, scores, vectors, top, weight);
  const Vector bound = spread(limit_of(row.family, top, t) - error);
  int found = 0;
  for (int64_t v = 0; v < vectors; ++v) {
    Vector upper = load(scores + v * lanes);
    if (errors) upper += load(errors + v * lanes);
    found += __builtin_popcount(above(upper, bound));
  }
  return found;
}

// The share of the keys that may have weight, if all are like those of a group; 0 if the row sees too little of it.
static Real share_of_group(const ScreenedRow &row, const HeadScreen &screen, const Real *products, int64_t group,
                           Real *scores) {
  int seen = 0;
  for (int64_t n = 0; n < group_keys; n += lanes) {
    const Vector value = load(products + n) * row.unit;
    seen += __builtin_popcount(above(value, spread(-infinity)));
    store(scores + n, value);
  }
  if (seen * 2 < group_keys) return 0.0f;
  const Real weight = static_cast<Real>(row.range.last - row.range.first) / static_cast<Real>(seen);
  const int found = count_above(row, scores, nullptr, largest_error(row, screen, group), group_keys / lanes, weight);
  return static_cast<Real>(found) / static_cast<Real>(seen);
}

// The same, judged by the list of a row after a part of its keys.
static Real share_of_list(const ScreenedRow &row, int64_t passed) {
  store(row.values + row.count, spread(-infinity));
  store(row.errors + row.count, Vector{});
  const Real weight = static_cast<Real>(row.range.last - row.range.first) / static_cast<Real>(passed);
  const int found = count_above(row, row.values, row.errors, 0.0f, (row.count + lanes - 1) / lanes, weight);
  return static_cast<Real>(found) / static_cast<Real>(passed);
}

// One group against rows [from, to) of those that go together; `first_row` is the number of the first of them.
static void scan_group(const Problem &problem, const Products &products, bool wide, bool few, const HeadScreen &screen,
                       ScreenedRow *rows, int first_row, int from, int to, const ScreenSpace &space, int64_t group,
                       int64_t slot, int64_t last_place) {
  const int64_t place = group * group_keys;
  Scan scan;
  scan.codes = screen.codes + place * screen.quads * 4;
  scan.scales = screen.scales + place;
  scan.quads = screen.quads;
  scan.tiles = minimum(group_tiles, (last_place - place + tile_keys - 1) / tile_keys);
  scan.queries = space.words + first_row + from;
  scan.query_stride = block_rows;
  scan.offsets = space.offsets + first_row + from;
  scan.rows = to - from;
  scan.scores = space.products + from * product_stride + slot * group_keys;
  scan.stride = product_stride;
  scan.maxima = space.maxima + from * maxima_stride + slot * tile_keys;
  scan.maxima_stride = maxima_stride;
  scan.ahead = few && first_row == 0;
  (wide ? products.wide : products.narrow)(scan);
  for (int r = from; r < to; ++r) {
    ScreenedRow &row = rows[r];
    const bool inside = row.range.first <= place && row.range.last >= place + group_keys;
    if (inside && !problem.mask && !problem.bias) continue;
    if (!finish_group(row, screen, space.products + r * product_stride + slot * group_keys,
                      space.maxima + r * maxima_stride + slot * tile_keys, place)) {
      row.ordinary = true;
    }
  }
}

// Whether a row still goes through a group.
static inline bool goes_through(const ScreenedRow &row, int64_t place) {
  return !row.ordinary && row.range.first < place + group_keys && row.range.last > place;
}

// The last group of a pass that the first row sees as a whole; -1 if there is none.
static int64_t whole_group(const ScreenedRow &row, int64_t first_group, int64_t last_group) {
  for (int64_t group = last_group - 1; group >= first_group; --group) {
    if (row.range.first <= group * group_keys && row.range.last >= (group + 1) * group_keys) return group - first_group;
  }
  return -1;
}

// Up to `pass_rows` rows through groups [first_group, last_group) of a pass. If `share` is not 0, one group tells whether
// screening pays, by all rows if there are `few`, otherwise by two of them; `share` becomes 0 then. The rows of a head take
// the ordinary way together: it reads all keys even for one of them. Returns how many keys were read.
static int64_t pass_through(const Problem &problem, const Products &products, bool wide, bool few, Real &share,
                            const HeadScreen &screen, ScreenedRow *rows, int first_row, int count,
                            const ScreenSpace &space, int64_t first_group, int64_t last_group, int64_t last_place,
                            bool uniform) {
  int64_t read = 0;
  // That group comes first; the others in the order of memory.
  const int64_t groups = last_group - first_group, whole = share > 0.0f ? whole_group(rows[0], first_group, last_group) : -1;
  bool look = whole >= 0;
  const int64_t turn = look ? whole : 0;
  for (int64_t n = 0; n < groups; ++n) {
    const int64_t slot = (n + turn) % groups, group = first_group + slot, place = group * group_keys;
    int from = count, to = 0;
    for (int r = 0; r < count; ++r) {
      if (!goes_through(rows[r], place)) continue;
      from = from < r ? from : r;
      to = r + 1;
    }
    if (from < to) {
      scan_group(problem, products, wide, few, screen, rows, first_row, from, to, space, group, slot, last_place);
      read += minimum(group_keys, last_place - place);
    }
    for (int r = 0; r < count; ++r) {
      if (goes_through(rows[r], place)) continue;
      fill(space.maxima + r * maxima_stride + slot * tile_keys, -infinity, tile_keys);
    }
    if (!look || from >= to) continue;
    look = false;
    Real total = 0.0f;
    int looked = 0;
    for (int r = from; r < to; r += few ? 1 : pass_rows / 2) {
      if (rows[r].ordinary) continue;
      total += share_of_group(rows[r], screen, space.products + r * product_stride + slot * group_keys, group, space.lows);
      ++looked;
    }
    const bool all_flat = total > share * static_cast<Real>(looked);
    share = 0.0f;
    if (all_flat) {
      for (int r = 0; r < count; ++r) rows[r].ordinary = true;
      return read;
    }
  }
  first_limits(rows, count, screen, space, first_group, last_group - first_group, problem.sinks, uniform);
  for (int r = 0; r < count; ++r) {
    ScreenedRow &row = rows[r];
    const Real *sink = problem.sinks ? problem.sinks + row.h : nullptr;
    for (int64_t group = first_group; group < last_group && !row.ordinary && row.limit > -infinity; ++group) {
      if (row.count + group_keys + 2 * lanes > space.room) {  // vectors are written whole
        filter_list(space.solving, row, sink);
        row.ordinary = row.count + group_keys + 2 * lanes > space.room;
        if (row.ordinary) break;
      }
      const int64_t slot = group - first_group;
      collect_group(row, screen, space.products + r * product_stride + slot * group_keys,
                    space.maxima + r * maxima_stride + slot * tile_keys, group);
    }
    if (!row.ordinary && row.count > 2 * row.filtered + 2 * short_list) filter_list(space.solving, row, sink);
  }
  return read;
}

// Lists the keys in places [begin, end) that rows may have to read; `begin` is a multiple of `pass_keys`. `look` and `few`
// as in `pass_through`.
static void screen_keys(const Problem &problem, const Products &products, bool wide, bool few, bool look,
                        const HeadScreen &screen, ScreenedRow *rows, int count, const ScreenSpace &space,
                        int64_t begin, int64_t end, bool uniform, int64_t &screened) {
  int64_t first = end, last = begin;
  for (int r = 0; r < count; ++r) {
    if (rows[r].range.first >= rows[r].range.last) continue;
    first = minimum(first, rows[r].range.first);
    last = maximum(last, rows[r].range.last);
  }
  first = maximum(begin, first);
  last = minimum(end, last);
  if (first >= last) return;
  const int64_t first_pass = first / pass_keys, passes = (last + pass_keys - 1) / pass_keys - first_pass;
  const Real pays = look ? paying_share(problem, products, few, count, last - first) : 0.0f;
  // One group is a small sample, so that only what clearly does not pay is left out by it.
  const Real clearly = pays > 0.0f ? (pays > 0.03f ? 1.6f * pays : 0.05f) : 0.0f;
  Real shares[block_rows];
  for (int r = 0; r < count; r += pass_rows) shares[r] = clearly;
  int64_t passed = 0;
  for (int64_t n = 0; n < passes; ++n) {
    // The last keys come first: a causal model looks at them most, and they give the best limit.
    const int64_t pass = first_pass + (n == 0 ? passes - 1 : n - 1);
    const int64_t first_group = maximum(pass * pass_groups, first / group_keys);
    const int64_t last_group = minimum((pass + 1) * pass_groups, (last + group_keys - 1) / group_keys);
    int64_t read = 0;  // once for all rows
    for (int r = 0; r < count; r += pass_rows) {
      const int together = static_cast<int>(minimum(pass_rows, count - r));
      read = maximum(read, pass_through(problem, products, wide, few, shares[r], screen, rows + r, r, together, space,
                                        first_group, last_group, last, uniform));
    }
    screened += read;
    // After some of the keys, their list tells more.
    const int64_t some = maximum(4 * pass_keys, (last - first) / 8);
    const bool now = few && pays > 0.0f && passed < some && passed + read >= some;
    passed += read;
    if (!now || passed * 2 > last - first) continue;
    Real total = 0.0f;
    int looked = 0;
    for (int r = 0; r < count; ++r) {
      if (rows[r].ordinary) continue;
      total += share_of_list(rows[r], passed);
      ++looked;
    }
    if (total <= pays * static_cast<Real>(looked)) continue;
    for (int r = 0; r < count; ++r) rows[r].ordinary = true;
  }
}

// scores[n] = query . key[indices[n]] for listed keys, several at a time.
template <int kind>
static void score_listed(const Real *query, const StoredRows &keys, const int32_t *indices, int64_t count,
                         Real *scores) {
  const int64_t depth = keys.width, whole = depth / lanes * lanes;
  const int tail = static_cast<int>(depth - whole);
  for (int64_t start = 0; start < count; start += lanes) {
    const int valid = static_cast<int>(minimum(lanes, count - start));
    Vector sums[lanes];
#pragma GCC unroll 16
    for (int n = 0; n < lanes; ++n) {
      const char *row = keys.row(indices[start + (n < valid ? n : 0)]);
      Vector sum{}, other{};
      int64_t d = 0;
      for (; d + 2 * lanes <= whole; d += 2 * lanes) {
        sum += load(query + d) * load_stored<kind>(row, d);
        other += load(query + d + lanes) * load_stored<kind>(row, d + lanes);
      }
      if (d < whole) sum += load(query + d) * load_stored<kind>(row, d);
      if (tail) other += load_some(query + whole, tail) * load_some_stored<kind>(row, whole, tail);
      sums[n] = sum + other;
    }
    const Vector products = sum_each(sums);
    if (valid == lanes) {
      store(scores + start, products);
    } else {
      store_some(scores + start, products, valid);
    }
  }
}

// Exact scores of listed keys [from, to), bias included. If the screen is the caller's, returns whether all scores lie
// within their bounds.
static bool score_list(const Problem &problem, const ScreenedRow &row, const StoredRows &keys, int64_t from, int64_t to,
                       Real *scores) {
  const int64_t count = to - from;
  HOPFIELD_BY_STORED(keys, score_listed, row.query, keys, row.indices + from, count, scores);
  if (row.limits.bias) {
    for (int64_t n = 0; n < count; ++n) scores[n] += row.limits.bias[row.indices[from + n] * row.limits.bias_step];
  }
  if (problem.screening != screen_given) return true;
  bool fits = true;
  for (int64_t n = 0; n < count; ++n) {
    const Real value = row.values[from + n], distance = std::fabs(scores[n] - value);
    // a score that is NaN or infinite is not for this check
    fits &= !(distance > row.errors[from + n] * 1.001f + 1e-5f * (1.0f + std::fabs(value)) && distance < infinity);
  }
  return fits;
}

// Scores a long list in two steps: the keys that surely count come first, and their exact scores raise the limit for the
// others. Returns what `score_list` does.
static bool score_long_list(const Problem &problem, ScreenedRow &row, const HeadScreen &screen, const StoredRows &keys,
                            Real *scores) {
  int64_t sure = 0;
  Real rounding = 0.0f;  // what it may have added to a score
  for (int64_t n = 0; n < row.count; ++n) {
    const Real value = row.values[n], error = row.errors[n];
    if (!(value - error > row.limit)) continue;
    const int32_t index = row.indices[n];
    const int64_t place = index + screen.first;
    const Real own = scale_of(screen, place) * screen.bounds[place / group_keys * group_bounds + 1];
    rounding = own > rounding ? own : rounding;
    row.values[n] = row.values[sure];
    row.errors[n] = row.errors[sure];
    row.indices[n] = row.indices[sure];
    row.values[sure] = value;
    row.errors[sure] = error;
    row.indices[sure++] = index;
  }
  bool fits = score_list(problem, row, keys, 0, sure, scores);
  store(scores + sure, spread(-infinity));
  Vector best = spread(-infinity);
  for (int64_t n = 0; n < sure; n += lanes) best = larger(best, load(scores + n));
  const Real top = largest_of(best);
  if (top < infinity && top > -infinity) {
    const Real t = HOPFIELD_BY_KIND(fine_bound, row.family, scores, (sure + lanes - 1) / lanes, top, 0.0f, 8);
    const Real limit = limit_of(row.family, top, t) - rounding * row.rounding;
    if (limit > row.limit) row.limit = limit;
  }
  int64_t kept = sure;
  for (int64_t n = sure; n < row.count; ++n) {
    const Real value = row.values[n], error = row.errors[n];
    row.values[kept] = value;
    row.errors[kept] = error;
    row.indices[kept] = row.indices[n];
    kept += value + error > row.limit;
  }
  row.count = kept;
  return score_list(problem, row, keys, sure, kept, scores + sure) && fits;
}

// Drops what a long list need not have.
static void shorten_list(const Problem &problem, const Workspace &space, ScreenedRow &row) {
  if (row.count > short_list) filter_list(space, row, problem.sinks ? problem.sinks + row.h : nullptr);
}

// Scores the list of a row and solves it. Returns false if the row has to take the ordinary way after all.
static bool solve_list(Shared *shared, const Workspace &space, ScreenedRow &row, const HeadScreen &screen,
                       const StoredRows &keys, RowResult &result, int64_t &scored) {
  const Problem &problem = *shared->problem;
  const Real *sink = problem.sinks ? problem.sinks + row.h : nullptr;
  result.state = {0.0f, 0.0f, 0, -1};
  result.dense = false;
  if (sink && *sink != *sink) return false;
  if (row.count == 0 && !(sink && *sink > -infinity)) return true;
  Real *scores = space.survivors;
  const bool fits = row.count > 2 * short_list ? score_long_list(problem, row, screen, keys, scores)
                                               : score_list(problem, row, keys, 0, row.count, scores);
  if (!fits) __atomic_store_n(&shared->failed, 2, __ATOMIC_RELAXED);
  scored += row.count;
  store(scores + row.count, spread(-infinity));
  Vector best = spread(-infinity);
  Integers poisoned{};
  for (int64_t n = 0; n < row.count; n += lanes) {
    const Vector value = load(scores + n);
    poisoned |= value != value;
    best = larger(best, value);
  }
  Real top = largest_of(best);
  if (sink && *sink > top) top = *sink;
  if (any(poisoned) || !(top < infinity)) {
    result.state.count = row_is_nan;
    return true;
  }
  if (top == -infinity) return true;
  for (int64_t n = 0; n < row.count; n += lanes) store(scores + n, load(scores + n) - top);
  std::memcpy(space.survivor_indices, row.indices, sizeof(int32_t) * static_cast<size_t>(row.count));
  const int64_t survivors = add_sink(space, sink, -infinity, top, row.count);
  // From the limit, which is at or left of the root; from anywhere else Newton's method would do, too.
  Real t = row.limit > -infinity ? row.limit - top + row.family.inverse : 0.0f, sum;
  if (!(t > 0.0f)) t = 0.0f;
  return solve_survivors(space, row.family, survivors, top, t, sum, result);
}
