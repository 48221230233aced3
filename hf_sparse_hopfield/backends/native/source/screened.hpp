// Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
// The forward pass: blocks of queries of a head, screened where that pays; and few queries against parts of the keys.

#if defined(HOPFIELD_DOUBLE)
// In double, nothing is screened.
struct ScreenSpace {
  bool prepare(Shared *, int64_t, int64_t) { return true; }
};
static int screen_block(Shared *, const ScreenSpace &, int64_t, int64_t, int64_t, int, RowResult *, int *, int64_t &) {
  return 0;
}
static void screened_decode_worker(Shared *) {}
static void make_screen_worker(Shared *) {}
static void add_to_screen(const ScreenedKeys &, int64_t, int64_t) {}
#else

static void add_count(const Problem &problem, Count kind, int64_t number) {
  if (problem.counts) __atomic_fetch_add(problem.counts + kind, number, __ATOMIC_RELAXED);
}

// Begins row `r` of a block.
static ScreenedRow start_row(const Problem &problem, const Products &products, bool wide, const HeadScreen &screen,
                             const ScreenSpace &space, int r, int64_t b, int64_t h, int64_t i) {
  const Range keys = range_of(problem, i);
  ScreenedRow row{};
  row.b = b;
  row.h = h;
  row.i = i;
  row.family = family_at(problem, b, h, i);
  row.range = {keys.first + screen.first, keys.last + screen.first};
  row.limits = limits_of(problem, b, h, i);
  row.limit = -infinity;
  row.ordinary = row.family.kind == softmax_kind ||
                 !quantize_row(problem, products, wide, row, space.scaled + r * space.width, space.width,
                               space.words + r, space.offsets + r);
  if (row.ordinary) space.offsets[r] = 0;
  return row;
}

static bool is_uniform(const Problem &problem) { return !problem.alpha || problem.alpha_stride[2] == 0; }

// Solves the rows of a block that screening pays for. The numbers of the others go to `left`; returns how many.
static int screen_block(Shared *shared, const ScreenSpace &space, int64_t b, int64_t h, int64_t start, int count,
                        RowResult *results, int *left, int64_t &scored) {
  const Problem &problem = *shared->problem;
  const int64_t kv_head = h / (problem.heads / problem.kv_heads);
  const HeadScreen screen = screen_of(shared, b, kv_head);
  const StoredRows keys = stored_rows(problem.key, problem.key_stride, stored_real, problem.head_dim, b, kv_head);
  const StoredRows values = stored_rows(problem.value, problem.value_stride, stored_real, problem.value_dim, b, kv_head);
  ScreenedRow rows[block_rows];
  for (int r = 0; r < count; ++r) {
    rows[r] = start_row(problem, *shared->products, false, screen, space, r, b, h, start + r);
    space.give_list(rows[r], r);
  }
  int64_t screened = 0, listed = 0;
  screen_keys(problem, *shared->products, false, false, !shared->always, screen, rows, count, space, 0,
              screen.first + problem.keys, is_uniform(problem), screened);
  int others = 0;
  for (int r = 0; r < count; ++r) {
    if (!rows[r].ordinary) shorten_list(problem, space.solving, rows[r]);
    if (r + 1 < count && !rows[r + 1].ordinary) {
      for (int64_t n = 0; n < minimum(rows[r + 1].count, short_list); ++n) prefetch_row(keys, rows[r + 1].indices[n]);
    }
    RowResult &result = results[r];
    result.weights = space.list_weights + listed;
    result.indices = space.list_indices + listed;
    if (rows[r].ordinary || !solve_list(shared, space.solving, rows[r], screen, keys, result, scored)) {
      left[others++] = r;
      continue;
    }
    for (int32_t n = 0; n < result.state.count; ++n) {
      if (result.indices[n] >= 0) prefetch_row(values, result.indices[n]);
    }
    listed += maximum(0, result.state.count);
  }
  add_count(problem, screened_keys, screened);
  add_count(problem, scored_keys, scored);
  add_count(problem, read_values, listed);
  add_count(problem, ordinary_rows, others);
  return others;
}

// The rows of a head, in blocks. Without a backward pass or with few queries, the keys of a head are dealt out in parts.
struct DecodeTask {
  int64_t b, kv_head, block, part;
};

static DecodeTask decode_task(const Shared *shared, int64_t task) {
  const Problem &problem = *shared->problem;
  const int64_t rows = problem.heads / problem.kv_heads * problem.queries;
  const int64_t blocks = (rows + block_rows - 1) / block_rows, head = task / shared->parts / blocks;
  // the last part of the keys first
  return {head / problem.kv_heads, head % problem.kv_heads, task / shared->parts % blocks,
          shared->parts - 1 - task % shared->parts};
}

// Solves and reads out rows of a head whose lists are complete; notes those that have to take the ordinary way. What a step
// reads, the step before it asks for: keys and values lie apart in memory.
static void end_rows(Shared *shared, const ScreenSpace &space, ScreenedRow *rows, int count, const HeadScreen &screen,
                     int64_t kv_head) {
  const Problem &problem = *shared->problem;
  const int64_t b = rows[0].b;
  const StoredRows keys = stored_rows(problem.key, problem.key_stride, problem.key_kind, problem.head_dim, b, kv_head);
  const StoredRows values =
      stored_rows(problem.value, problem.value_stride, problem.value_kind, problem.value_dim, b, kv_head);
  for (int r = 0; r < count; ++r) {
    if (rows[r].ordinary) continue;
    shorten_list(problem, space.solving, rows[r]);
    for (int64_t n = 0; n < minimum(rows[r].count, 2 * short_list); ++n) prefetch_row(keys, rows[r].indices[n]);
  }
  RowResult results[block_rows];
  int64_t listed = 0, scored = 0, ordinary = 0;
  for (int r = 0; r < count; ++r) {
    results[r].weights = space.list_weights + listed;
    results[r].indices = space.list_indices + listed;
    if (!rows[r].ordinary && solve_list(shared, space.solving, rows[r], screen, keys, results[r], scored)) {
      for (int32_t n = 0; n < results[r].state.count; ++n) {
        if (results[r].indices[n] >= 0) prefetch_row(values, results[r].indices[n]);
      }
      listed += maximum(0, results[r].state.count);
      continue;
    }
    rows[r].ordinary = true;
    shared->took_ordinary[(b * problem.heads + rows[r].h) * problem.queries + rows[r].i] = 1;
    ++ordinary;
  }
  for (int r = 0; r < count; ++r) {
    if (rows[r].ordinary) continue;
    const int here = 0;
    if (problem.states) keep_rows(problem, b, rows[r].h, rows[r].i, &here, 1, true, results + r);
    read_list(problem, b, rows[r].h, rows[r].i, results[r]);
  }
  add_count(problem, scored_keys, scored);
  add_count(problem, read_values, listed);
  add_count(problem, ordinary_rows, ordinary);
}

// A task is a block of rows and a part of the keys of their head. The thread that ends the last part of a block solves
// its rows.
static void screened_decode_worker(Shared *shared) {
  const Problem &problem = *shared->problem;
  const int64_t parts = shared->parts, group = problem.heads / problem.kv_heads, all = group * problem.queries;
  ScreenSpace space;
  if (!space.prepare(shared, parts == 1 ? problem.keys : shared->part_keys, parts)) return;
  ScreenedRow rows[block_rows];
  int64_t current = -1;
  for (int64_t task; (task = take_task(shared)) < shared->tasks;) {
    const DecodeTask at = decode_task(shared, task);
    const HeadScreen screen = screen_of(shared, at.b, at.kv_head);
    const int count = static_cast<int>(minimum(block_rows, all - at.block * block_rows));
    const int64_t number = task / parts;
    for (int r = 0; r < count; ++r) {
      const int64_t row = at.block * block_rows + r, list = (number * parts + at.part) * block_rows + r;
      if (number != current || parts == 1) {
        rows[r] = start_row(problem, *shared->products, shared->wide, screen, space, r, at.b,
                            at.kv_head * group + row / problem.queries, row % problem.queries);
      }
      rows[r].limit = -infinity;
      rows[r].count = rows[r].filtered = 0;
      if (parts == 1) {
        space.give_list(rows[r], r);
      } else {
        rows[r].values = shared->list_values + list * space.room;
        rows[r].errors = shared->list_errors + list * space.room;
        rows[r].indices = shared->list_indices + list * space.room;
      }
    }
    current = number;
    bool refused[block_rows];  // whatever the keys are
    for (int r = 0; r < count; ++r) refused[r] = rows[r].ordinary;
    const int64_t end = screen.first + problem.keys, begin = at.part * shared->part_keys;
    int64_t screened = 0;
    screen_keys(problem, *shared->products, shared->wide, true, !shared->always && at.part == parts - 1, screen, rows, count, space, begin,
                minimum(end, begin + shared->part_keys), false, screened);
    add_count(problem, screened_keys, screened);
    if (parts == 1) {
      end_rows(shared, space, rows, count, screen, at.kv_head);
      continue;
    }
    for (int r = 0; r < count; ++r) {
      const int64_t list = (number * parts + at.part) * block_rows + r;
      shared->list_counts[list] = rows[r].ordinary ? -1 : static_cast<int32_t>(rows[r].count);
      rows[r].ordinary = refused[r];
    }
    if (__atomic_sub_fetch(&shared->pending[number], 1, __ATOMIC_ACQ_REL)) continue;
    for (int r = 0; r < count; ++r) {
      ScreenedRow row = rows[r];
      space.give_list(row, 0);
      row.limit = -infinity;
      row.count = 0;
      for (int64_t part = 0; part < parts; ++part) {
        const int64_t list = (number * parts + part) * block_rows + r;
        const int64_t listed = shared->list_counts[list];
        if (listed < 0) {
          row.ordinary = true;
          break;
        }
        std::memcpy(row.values + row.count, shared->list_values + list * space.room, sizeof(Real) * listed);
        std::memcpy(row.errors + row.count, shared->list_errors + list * space.room, sizeof(Real) * listed);
        std::memcpy(row.indices + row.count, shared->list_indices + list * space.room, sizeof(int32_t) * listed);
        row.count += listed;
      }
      end_rows(shared, space, &row, 1, screen, at.kv_head);
    }
  }
}
#endif

// A task is a head of keys and a share of the query blocks that use it.
static void forward_worker(Shared *shared) {
  const Problem &problem = *shared->problem;
  Workspace space;
  ScreenSpace screening;
  bool prepared = false;
  const bool screening_allowed = shared->products && !shared->ordinary;
  if (screening_allowed && !screening.prepare(shared, problem.keys, 1)) return;
  const int64_t group = problem.heads / problem.kv_heads;
  Panels panels;
  for (int64_t task; (task = take_task(shared)) < shared->tasks;) {
    const int64_t head = task / shared->splits, split = task % shared->splits;
    const int64_t b = head / problem.kv_heads, kv_head = head % problem.kv_heads;
    for (int64_t h = kv_head * group; h < (kv_head + 1) * group; ++h) {
      int64_t pause = 0, next_pause = 15;  // blocks that are not screened
      for (int64_t start = split * block_rows; start < problem.queries; start += shared->splits * block_rows) {
        const int rows = static_cast<int>(minimum(block_rows, problem.queries - start));
        RowResult results[block_rows];
        int left[block_rows], others = 0;
        const Range range = range_of(problem, start + rows - 1);
        const float worth = shared->products ? shared->products->worth_scoring(range.last - range.first) : 0.0f;
        const bool screens = screening_allowed && (shared->always || (pause == 0 && worth > 4.0f));
        if (screens) {
          int64_t scored = 0;
          others = screen_block(shared, screening, b, h, start, rows, results, left, scored);
          if (others * 2 > rows || static_cast<float>(scored) > worth * static_cast<float>(rows)) {
            pause = next_pause;
            next_pause *= 2;
          } else {
            next_pause = 15;
          }
        } else {
          if (pause > 0) --pause;
          const uint8_t *wanted = shared->ordinary;
          if (wanted) wanted += (b * problem.heads + h) * problem.queries + start;
          for (int row = 0; row < rows; ++row) {
            if (!wanted || wanted[row]) left[others++] = row;
          }
        }
        ScoredBlock block{};
        if (others) {
          if (!prepared && !space.prepare(shared, forward_mode)) return;
          prepared = true;
          block = solve_block(problem, space, panels, b, h, start, left, others, results);
        }
        const int *picked = screens ? every_row : left;
        const int count = screens ? rows : others;
        if (problem.states) keep_rows(problem, b, h, start, picked, count, shared->ordinary != nullptr, results);
        if (count) read_block(problem, space, b, h, start, picked, count, results, block);
      }
    }
  }
}
