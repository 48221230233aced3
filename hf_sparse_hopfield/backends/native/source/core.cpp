// Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
// The C interface: chooses the kernels for this processor, plans the work and runs it on OpenMP threads.
#include "problem.hpp"

#include <cstdlib>

#if defined(_OPENMP)
#include <omp.h>
#endif
#if defined(__x86_64__) && defined(__GNUC__)
#include <cpuid.h>
#elif defined(__aarch64__) && defined(__linux__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

#if defined(_WIN32)
#define HOPFIELD_EXPORT extern "C" __declspec(dllexport)
#else
#define HOPFIELD_EXPORT extern "C" __attribute__((visibility("default")))
#endif

namespace hopfield {

const KernelsOf<float> *generic_kernels();
const KernelsOf<float> *avx2_kernels();
const KernelsOf<float> *avx512_kernels();
const KernelsOf<double> *double_kernels();
const KernelsOf<double> *double_avx2_kernels();
const Products *generic_products();
const Products *avx2_products();
const Products *avx_vnni_products();
const Products *avx512_products();
const Products *avx512_vnni_products();
const Products *neon_dot_products();

namespace {

#if defined(__x86_64__) && defined(__GNUC__)
// What `__builtin_cpu_supports` does not know in every compiler.
bool has_f16c() {
  unsigned a, b, c, d;
  return __get_cpuid(1, &a, &b, &c, &d) && (c >> 29 & 1);
}

bool has_avx_vnni() {
  unsigned a, b, c, d;
  return __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a >> 4 & 1);
}
#endif

constexpr int64_t screened_from = 512;             // keys of decode; shorter rows are fast as they are
constexpr size_t scratch_kept = size_t(16) << 20;  // more than this is freed between calls

struct Scratch {
  void *memory = nullptr;
  size_t size = 0;
  ~Scratch() { std::free(memory); }
};

thread_local Scratch thread_scratch[slots];

// Instruction sets. A processor with a later one of x86 has all before it, but perhaps AVX-VNNI.
enum Level { generic_level, avx2_level, avx_vnni_level, avx512_level, avx512_vnni_level, neon_dot_level };

int forced_level = -1;     // for tests
int always_screening = 0;  // for tests: screens whether that pays or not

int supported_level() {
#if defined(__x86_64__) && defined(__GNUC__)
  __builtin_cpu_init();
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") || !__builtin_cpu_supports("bmi2") || !has_f16c()) {
    return generic_level;
  }
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl")) {
    return __builtin_cpu_supports("avx512vnni") ? avx512_vnni_level : avx512_level;
  }
  return has_avx_vnni() ? avx_vnni_level : avx2_level;
#elif defined(__aarch64__) && defined(__linux__)
  return getauxval(AT_HWCAP) & HWCAP_ASIMDDP ? neon_dot_level : generic_level;
#elif defined(__aarch64__) && defined(__APPLE__)
  return neon_dot_level;  // since the first of them
#else
  return generic_level;
#endif
}

int usable_level() {
  static const int level = supported_level();
  const int forced = __atomic_load_n(&forced_level, __ATOMIC_RELAXED);
  if (forced < 0 || forced >= level) return level;
#if defined(__x86_64__) && defined(__GNUC__)
  if (forced == avx_vnni_level && !has_avx_vnni()) return avx2_level;
  return forced;
#else
  return generic_level;
#endif
}

void *aligned(void *memory) { return reinterpret_cast<void *>((reinterpret_cast<uintptr_t>(memory) + 63) / 64 * 64); }

template <class Real>
const KernelsOf<Real> *choose_kernels();

template <>
const KernelsOf<float> *choose_kernels() {
  const int level = usable_level();
  const KernelsOf<float> *kernels = nullptr;
  if (level == avx512_level || level == avx512_vnni_level) kernels = avx512_kernels();
  if (level == avx2_level || level == avx_vnni_level) kernels = avx2_kernels();
  return kernels ? kernels : generic_kernels();
}

template <>
const KernelsOf<double> *choose_kernels() {
  const KernelsOf<double> *kernels = usable_level() >= avx2_level ? double_avx2_kernels() : nullptr;
  return kernels ? kernels : double_kernels();
}

const Products *choose_products() {
  const Products *(*const by_level[])() = {generic_products, avx2_products, avx_vnni_products, avx512_products,
                                           avx512_vnni_products, neon_dot_products};
  const Products *products = by_level[usable_level()]();
  return products ? products : generic_products();
}

template <class Real>
void run(void (*worker)(SharedOf<Real> *), SharedOf<Real> &shared, int64_t tasks) {
  const ProblemOf<Real> &problem = *shared.problem;
  shared.tasks = tasks;
  shared.next = 0;
  // Waking a thread costs a few microseconds: as long as this many products take.
  const double products = static_cast<double>(problem.batch * problem.heads * problem.queries) *
                          static_cast<double>(problem.keys * (problem.head_dim + problem.value_dim));
  const int64_t useful = products < 1e9 ? 1 + static_cast<int64_t>(products) / 200000 : problem.threads;
  int threads = static_cast<int>(maximum(1, minimum(minimum(problem.threads, useful), tasks)));
  if (threads == 1) {
    worker(&shared);
    release_large_scratch();
    return;
  }
#if defined(_OPENMP)
#pragma omp parallel num_threads(threads)
#endif
  {
    worker(&shared);
    release_large_scratch();
  }
}

// The least number of shares per head with which the threads end at about the same time.
int64_t choose_splits(int64_t heads, int64_t blocks, int64_t threads) {
  int64_t best = 1;
  double best_cost = 1e30;
  for (int64_t splits = 1; splits <= minimum(blocks, 2 * threads); ++splits) {
    int64_t tasks = heads * splits;
    double cost = static_cast<double>(round_up(tasks, threads)) / static_cast<double>(tasks);
    if (cost < best_cost - 0.08) {
      best = splits;
      best_cost = cost;
    }
  }
  return best;
}

// Memory that begins with a cache line, so that no vector lies across two.
struct Buffer {
  void *allocated, *memory;
  explicit Buffer(size_t bytes) : allocated(std::malloc(bytes + 64)), memory(allocated ? aligned(allocated) : nullptr) {}
  ~Buffer() { std::free(allocated); }
  Buffer(const Buffer &) = delete;
  Buffer &operator=(const Buffer &) = delete;
};

template <class Real>
int decode(const KernelsOf<Real> &kernels, SharedOf<Real> &shared) {
  const ProblemOf<Real> &problem = *shared.problem;
  const int64_t rows = problem.batch * problem.heads * problem.queries, heads = problem.batch * problem.kv_heads;
  const int64_t chunks = (problem.keys + decode_chunk - 1) / decode_chunk;
  shared.score_stride = kernels.padded_keys(problem.keys) + kernels.vector_lanes;
  Buffer scores(sizeof(Real) * static_cast<size_t>(rows * shared.score_stride));
  Buffer dense(sizeof(Real) * static_cast<size_t>(rows)), pending(sizeof(int32_t) * static_cast<size_t>(heads));
  if (!scores.memory || !dense.memory || !pending.memory) return 1;
  shared.scores = static_cast<Real *>(scores.memory);
  shared.dense = static_cast<Real *>(dense.memory);
  shared.pending = static_cast<int32_t *>(pending.memory);
  for (int64_t head = 0; head < heads; ++head) shared.pending[head] = static_cast<int32_t>(chunks);
  for (int64_t row = 0; row < rows; ++row) shared.dense[row] = 0.0f;
  shared.read_later = heads < problem.threads;
  run(kernels.decode, shared, heads * chunks);
  if (shared.failed) return 1;
  bool any = false;
  for (int64_t row = 0; row < rows; ++row) any |= shared.dense[row] != 0.0f;
  if (shared.read_later && any) {
    const int64_t width = 2 * kernels.vector_lanes;
    run(kernels.decode_read, shared, heads * ((problem.value_dim + width - 1) / width));
  }
  return shared.failed;
}

// The ordinary way of all rows, or of those that `shared.ordinary` names.
template <class Real>
int forward_ordinarily(const KernelsOf<Real> &kernels, SharedOf<Real> &shared) {
  const ProblemOf<Real> &problem = *shared.problem;
  if (problem.heads / problem.kv_heads * problem.queries <= decode_rows) return decode(kernels, shared);
  const int64_t heads = problem.batch * problem.kv_heads;
  shared.splits = choose_splits(heads, (problem.queries + block_rows - 1) / block_rows, problem.threads);
  run(kernels.forward, shared, heads * shared.splits);
  return shared.failed;
}

// A screen for the keys of this call.
struct MadeScreen {
  Buffer codes, scales, bounds;

  explicit MadeScreen(const ProblemOf<float> &problem)
      : codes(size(problem, groups(problem) * group_keys * quads(problem) * 4)),
        scales(size(problem, groups(problem) * group_keys * 2)),
        bounds(size(problem, groups(problem) * group_bounds * 4)) {}

  static int64_t groups(const ProblemOf<float> &problem) { return (problem.keys + group_keys - 1) / group_keys; }
  static int64_t quads(const ProblemOf<float> &problem) { return (problem.head_dim + 3) / 4; }
  static size_t size(const ProblemOf<float> &problem, int64_t bytes) {
    return static_cast<size_t>(problem.batch * problem.kv_heads * bytes);
  }

  bool make(const KernelsOf<float> &kernels, SharedOf<float> &shared) {
    const ProblemOf<float> &problem = *shared.problem;
    if (!codes.memory || !scales.memory || !bounds.memory) return false;
    const int64_t keys = groups(problem) * group_keys, heads = problem.kv_heads;
    const int64_t code_bytes = keys * quads(problem) * 4, numbers = groups(problem) * group_bounds;
    shared.made = {static_cast<uint8_t *>(codes.memory),   {heads * code_bytes, code_bytes},
                   static_cast<uint16_t *>(scales.memory), {heads * keys, keys},
                   static_cast<float *>(bounds.memory),    {heads * numbers, numbers}};
    const int64_t span = 4 * group_keys;
    run(kernels.make_screen, shared, problem.batch * heads * ((problem.keys + span - 1) / span));
    return true;
  }
};

// Few rows a head: keys are dealt out in parts if there are too few heads for the threads.
int decode_screened(const KernelsOf<float> &kernels, SharedOf<float> &shared) {
  const ProblemOf<float> &problem = *shared.problem;
  const int64_t group = problem.heads / problem.kv_heads, rows = problem.batch * problem.heads * problem.queries;
  const int64_t blocks = problem.batch * problem.kv_heads * ((group * problem.queries + block_rows - 1) / block_rows);
  const int64_t span = 2048, places = problem.keys + problem.screen_first;
  const int64_t wanted = blocks % problem.threads && blocks < 4 * problem.threads ? 4 * problem.threads / blocks + 1 : 1;
  shared.parts = maximum(1, minimum(wanted, places / span));
  shared.part_keys = round_up((places + shared.parts - 1) / shared.parts, 4 * group_keys);
  shared.parts = (places + shared.part_keys - 1) / shared.part_keys;
  shared.wide = shared.products->paired;  // else 8-bit queries are about as exact
  const int64_t lists = shared.parts > 1 ? blocks * shared.parts * block_rows : 0;
  const int64_t room = round_up(shared.part_keys / 8, group_keys) + 2 * group_keys;
  // vectors are written whole, so that lists need room for one behind the last
  const size_t listed = static_cast<size_t>(lists * room + 64);
  Buffer values(sizeof(float) * listed), errors(sizeof(float) * listed), indices(sizeof(int32_t) * listed);
  Buffer counts(sizeof(int32_t) * static_cast<size_t>(lists)), pending(sizeof(int32_t) * static_cast<size_t>(blocks));
  Buffer ordinary(static_cast<size_t>(rows));
  if (!values.memory || !errors.memory || !indices.memory || !counts.memory || !pending.memory || !ordinary.memory) return 1;
  shared.list_values = static_cast<float *>(values.memory);
  shared.list_errors = static_cast<float *>(errors.memory);
  shared.list_indices = static_cast<int32_t *>(indices.memory);
  shared.list_counts = static_cast<int32_t *>(counts.memory);
  shared.pending = static_cast<int32_t *>(pending.memory);
  shared.took_ordinary = static_cast<uint8_t *>(ordinary.memory);
  for (int64_t block = 0; block < blocks; ++block) shared.pending[block] = static_cast<int32_t>(shared.parts);
  for (int64_t row = 0; row < rows; ++row) shared.took_ordinary[row] = 0;
  run(kernels.screened_decode, shared, blocks * shared.parts);
  if (shared.failed) return shared.failed;
  bool any = false;
  for (int64_t row = 0; row < rows; ++row) any |= shared.took_ordinary[row] != 0;
  if (!any) return 0;
  shared.ordinary = shared.took_ordinary;
  return forward_ordinarily(kernels, shared);
}

int screen_rows(const KernelsOf<float> &kernels, SharedOf<float> &shared) {
  const ProblemOf<float> &problem = *shared.problem;
  const int64_t group = problem.heads / problem.kv_heads, heads = problem.batch * problem.kv_heads;
  const int64_t blocks = (problem.queries + block_rows - 1) / block_rows;
  if (group * problem.queries <= block_rows || heads * group * blocks < 2 * problem.threads) {
    return decode_screened(kernels, shared);
  }
  shared.splits = choose_splits(heads, blocks, problem.threads);
  run(kernels.forward, shared, heads * shared.splits);
  return shared.failed;
}

int forward(const ProblemOf<double> *problem) {
  SharedOf<double> shared{};
  shared.problem = problem;
  return forward_ordinarily(*choose_kernels<double>(), shared);
}

int forward(const ProblemOf<float> *problem) {
  const KernelsOf<float> *kernels = choose_kernels<float>();
  SharedOf<float> shared{};
  shared.problem = problem;
  const int64_t rows = problem->heads / problem->kv_heads * problem->queries;
  // Only for many rows it pays to make a screen.
  const Products *products = choose_products();
  shared.always = __atomic_load_n(&always_screening, __ATOMIC_RELAXED);
  const bool pays = rows > decode_rows ? products->worth_scoring(problem->keys) > 4.0f
                                       : problem->screening == screen_given && problem->keys >= screened_from;
  if (!(pays || shared.always) || problem->places || problem->screening == never_screen) return forward_ordinarily(*kernels, shared);
  shared.products = products;
  if (problem->screening == screen_given) return screen_rows(*kernels, shared);
  MadeScreen screen(*problem);
  if (!screen.make(*kernels, shared)) return 1;
  return screen_rows(*kernels, shared);
}

template <class Real>
int backward(const ProblemOf<Real> *problem) {
  const KernelsOf<Real> *kernels = choose_kernels<Real>();
  SharedOf<Real> shared{};
  shared.problem = problem;
  const int64_t heads = problem->batch * problem->kv_heads;
  const int64_t blocks = (problem->queries + block_rows - 1) / block_rows;
  shared.splits = choose_splits(heads, blocks, problem->threads);
  const int64_t extra = (shared.splits - 1) * heads * problem->keys * (problem->head_dim + problem->value_dim);
  Buffer partial(sizeof(Real) * static_cast<size_t>(extra));
  if (!partial.memory) return 1;
  shared.partial = static_cast<Real *>(partial.memory);
  run(kernels->backward, shared, heads * shared.splits);
  if (shared.failed) return 1;
  if (shared.splits > 1) run(kernels->reduce, shared, heads);
  if (problem->bias_gradient) {
    const int64_t *stride = problem->bias_gradient_stride;
    int64_t tasks = (stride[0] ? problem->batch : 1) * (stride[1] ? problem->heads : 1) * (stride[2] ? blocks : 1);
    run(kernels->bias, shared, tasks);
  }
  return shared.failed;
}

}  // namespace

char *scratch(size_t bytes, Slot slot) {
  Scratch &own = thread_scratch[slot];
  if (own.size < bytes + 64) {
    std::free(own.memory);
    own.memory = std::malloc(bytes + 64);
    own.size = own.memory ? bytes + 64 : 0;
    if (!own.memory) return nullptr;
  }
  return static_cast<char *>(aligned(own.memory));
}

void release_large_scratch() {
  for (Scratch &own : thread_scratch) {
    if (own.size <= scratch_kept) continue;
    std::free(own.memory);
    own.memory = nullptr;
    own.size = 0;
  }
}

}  // namespace hopfield

using namespace hopfield;

// Each returns 0, 1 when memory ran out, or 2 when the keys are not those of the screen.
HOPFIELD_EXPORT int hopfield_forward(const ProblemOf<float> *problem) { return forward(problem); }
HOPFIELD_EXPORT int hopfield_backward(const ProblemOf<float> *problem) { return backward(problem); }
HOPFIELD_EXPORT int hopfield_forward_double(const ProblemOf<double> *problem) { return forward(problem); }
HOPFIELD_EXPORT int hopfield_backward_double(const ProblemOf<double> *problem) { return backward(problem); }

// Adds keys to a screen.
HOPFIELD_EXPORT int hopfield_screen(const ScreenedKeys *keys) {
  const KernelsOf<float> *kernels = choose_kernels<float>();
  const int64_t heads = keys->batch * keys->heads;
#if defined(_OPENMP)
  const int64_t numbers = heads * (keys->last - keys->first) * keys->head_dim;
  const int threads = static_cast<int>(maximum(1, minimum(minimum(keys->threads, heads), numbers / 100000)));
#pragma omp parallel for num_threads(threads) if (threads > 1)
#endif
  for (int64_t head = 0; head < heads; ++head) {
    kernels->add_to_screen(*keys, head / keys->heads, head % keys->heads);
  }
  return 0;
}

HOPFIELD_EXPORT int64_t hopfield_screened_keys_size() { return static_cast<int64_t>(sizeof(ScreenedKeys)); }

// Limits the instruction set to a Level (-1 no limit) and returns the one in use.
HOPFIELD_EXPORT int hopfield_level(int limit) {
  __atomic_store_n(&forced_level, limit, __ATOMIC_RELAXED);
  return usable_level();
}

// For tests: screen whether that pays or not.
HOPFIELD_EXPORT void hopfield_screen_always(int always) {
  __atomic_store_n(&always_screening, always, __ATOMIC_RELAXED);
}

HOPFIELD_EXPORT int64_t hopfield_problem_size() { return static_cast<int64_t>(sizeof(ProblemOf<float>)); }

// How many threads a parallel region really gets: 1 means that the core was built without OpenMP.
HOPFIELD_EXPORT int hopfield_threads(int threads) {
  int counted = 1;
#if defined(_OPENMP)
#pragma omp parallel num_threads(threads)
  {
#pragma omp single
    counted = omp_get_num_threads();
  }
#else
  (void)threads;
#endif
  return counted;
}
