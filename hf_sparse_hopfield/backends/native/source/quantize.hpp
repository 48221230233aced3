// Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
// Makes the int8 copy of keys that `screen.hpp` reads.

// Of a key with a number that is huge or not finite: its scores have no bounds, so it is always scored exactly.
constexpr uint16_t wild_scale = 0x799a;  // about 1e35 as bfloat16
constexpr Real wild_above = 1e30f;
constexpr Real least_scale = 0x1p-100f;  // smaller numbers round to zero

// Adds one key at `place` of the screen of a head.
template <int kind>
static void quantize_key(const void *key, int64_t depth, int64_t place, uint8_t *codes, uint16_t *scales,
                         float *bounds) {
  typedef uint8_t Bytes __attribute__((vector_size(lanes)));
  const int64_t quads = (depth + 3) / 4;
  auto part = [&](int64_t d) {
    return d + lanes <= depth ? load_stored<kind>(key, d)
                              : load_some_stored<kind>(key, d, static_cast<int>(maximum(0, depth - d)));
  };
  Vector most{}, sum{};
  for (int64_t d = 0; d < depth; d += lanes) {
    const Vector size = (Vector)((Integers)part(d) & magnitude_bits);
    most = larger(most, size);
    sum += size;  // not finite if one is NaN
  }
  const Real largest = largest_of(most);
  const bool wild = !(largest < wild_above) || !(sum_of(sum) < infinity);
  // Rounded up to bfloat16, so that no code exceeds 127.
  const Real wanted = largest / 127.0f > least_scale ? largest / 127.0f : least_scale;
  uint32_t bits;
  std::memcpy(&bits, &wanted, sizeof(bits));
  const uint16_t half = wild ? wild_scale : static_cast<uint16_t>((bits + 0xffff) >> 16);
  bits = static_cast<uint32_t>(half) << 16;
  Real scale;
  std::memcpy(&scale, &bits, sizeof(scale));
  const Real inverse = wild ? 0.0f : 1.0f / scale;
  uint8_t *target = codes + place / tile_keys * quads * 64 + place % tile_keys * 4;
  Vector residuals{}, squares{};
  for (int64_t d = 0; d < quads * 4; d += lanes) {
    const Vector value = wild ? Vector{} : part(d) * inverse;
    const Vector shifted = value + 12582912.0f;  // rounds to the nearest integer
    const Vector rounded = shifted - 12582912.0f;
    residuals += (value - rounded) * (value - rounded);
    squares += rounded * rounded;
    const Bytes entries = __builtin_convertvector((Integers)shifted - (0x4b400000 - 128), Bytes);
    for (int quad = 0; quad < lanes / 4 && d + quad * 4 < quads * 4; ++quad) {
      std::memcpy(target + (d / 4 + quad) * 64, reinterpret_cast<const char *>(&entries) + quad * 4, 4);
    }
  }
  scales[place] = half;
  // The quotients are rounded, by at most 127 * 2^-23 each.
  const Real residual = std::sqrt(sum_of(residuals)) * 1.00001f + 2e-5f * std::sqrt(static_cast<Real>(depth));
  const Real norm = std::sqrt(sum_of(squares)) * 1.00001f;
  float *group = bounds + place / group_keys * group_bounds;
  if (place % group_keys == 0) {
    group[0] = group[1] = group[2] = 0.0f;
  }
  if (residual > group[0]) group[0] = residual;
  if (norm > group[1]) group[1] = norm;
  if (wild) group[2] = infinity;
  if (scale > group[2]) group[2] = scale;
}

template <int kind>
static void quantize_keys(const ScreenedKeys &keys, int64_t b, int64_t h) {
  const StoredRows rows = stored_rows(keys.key, keys.key_stride, keys.kind, keys.head_dim, b, h);
  const auto &screen = keys.screen;
  uint8_t *codes = screen.codes + b * screen.code_stride[0] + h * screen.code_stride[1];
  uint16_t *scales = screen.scales + b * screen.scale_stride[0] + h * screen.scale_stride[1];
  float *bounds = screen.bounds + b * screen.bound_stride[0] + h * screen.bound_stride[1];
  for (int64_t place = keys.first; place < keys.last; ++place) {
    quantize_key<kind>(rows.row(place - keys.first), keys.head_dim, place, codes, scales, bounds);
  }
}

// The keys of one head.
static void add_to_screen(const ScreenedKeys &keys, int64_t b, int64_t h) {
  const StoredRows rows{nullptr, 0, keys.kind, keys.head_dim};
  HOPFIELD_BY_STORED(rows, quantize_keys, keys, b, h);
}

// A task is a head and some of its groups: the screen that a call makes for itself.
static void make_screen_worker(Shared *shared) {
  const Problem &problem = *shared->problem;
  const int64_t span = 4 * group_keys, parts = (problem.keys + span - 1) / span;
  for (int64_t task; (task = take_task(shared)) < shared->tasks;) {
    const int64_t head = task / parts, first = task % parts * span;
    const int64_t b = head / problem.kv_heads, kv_head = head % problem.kv_heads;
    ScreenedKeys keys{};
    keys.head_dim = problem.head_dim;
    keys.first = first;
    keys.last = minimum(problem.keys, first + span);
    keys.kind = problem.key_kind;
    for (int n = 0; n < 3; ++n) keys.key_stride[n] = problem.key_stride[n];
    keys.key = reinterpret_cast<const char *>(problem.key) + first * problem.key_stride[2] * bytes_of(problem.key_kind);
    keys.screen = shared->made;
    add_to_screen(keys, b, kv_head);
  }
}
