// Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
// The C interface: chooses the kernels for this processor, plans the work and runs it on OpenMP threads.
#include "problem.hpp"

#include <cstdlib>

#if defined(_OPENMP)
#include <omp.h>
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

namespace {

constexpr size_t scratch_kept = size_t(16) << 20;  // more than this is freed between calls
constexpr int64_t decode_rows = 16;                // up to this many queries share keys: no packing

struct Scratch {
  void *memory = nullptr;
  size_t size = 0;
  ~Scratch() { std::free(memory); }
};

thread_local Scratch thread_scratch;

int forced_level = -1;  // for tests; 0 generic, 1 AVX2, 2 AVX-512

int supported_level() {
#if defined(__x86_64__) && defined(__GNUC__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl")) {
    return 2;
  }
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2")) return 1;
#endif
  return 0;
}

int usable_level() {
  int level = supported_level();
  int forced = __atomic_load_n(&forced_level, __ATOMIC_RELAXED);
  return forced >= 0 && forced < level ? forced : level;
}

template <class Real>
const KernelsOf<Real> *choose_kernels();

template <>
const KernelsOf<float> *choose_kernels() {
  int level = usable_level();
  const KernelsOf<float> *kernels = level == 2 ? avx512_kernels() : (level == 1 ? avx2_kernels() : nullptr);
  return kernels ? kernels : generic_kernels();
}

template <>
const KernelsOf<double> *choose_kernels() {
  const KernelsOf<double> *kernels = usable_level() >= 1 ? double_avx2_kernels() : nullptr;
  return kernels ? kernels : double_kernels();
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

struct Buffer {
  void *memory;
  explicit Buffer(size_t bytes) : memory(std::malloc(bytes ? bytes : 1)) {}
  ~Buffer() { std::free(memory); }
};

template <class Real>
int decode(const KernelsOf<Real> &kernels, SharedOf<Real> &shared) {
  const ProblemOf<Real> &problem = *shared.problem;
  const int64_t rows = problem.batch * problem.heads * problem.queries, heads = problem.batch * problem.kv_heads;
  const int64_t chunks = (problem.keys + decode_chunk - 1) / decode_chunk;
  shared.score_stride = kernels.padded_keys(problem.keys) + kernels.vector_lanes;
  Buffer scores(sizeof(Real) * static_cast<size_t>(rows * shared.score_stride) + 64);
  Buffer dense(sizeof(Real) * static_cast<size_t>(rows)), pending(sizeof(int32_t) * static_cast<size_t>(heads));
  if (!scores.memory || !dense.memory || !pending.memory) return 1;
  shared.scores = reinterpret_cast<Real *>((reinterpret_cast<uintptr_t>(scores.memory) + 63) / 64 * 64);
  shared.dense = static_cast<Real *>(dense.memory);
  shared.pending = static_cast<int32_t *>(pending.memory);
  for (int64_t head = 0; head < heads; ++head) shared.pending[head] = static_cast<int32_t>(chunks);
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

template <class Real>
int forward(const ProblemOf<Real> *problem) {
  const KernelsOf<Real> *kernels = choose_kernels<Real>();
  SharedOf<Real> shared{};
  shared.problem = problem;
  const int64_t group = problem->heads / problem->kv_heads;
  if (group * problem->queries <= decode_rows) return decode(*kernels, shared);
  const int64_t heads = problem->batch * problem->kv_heads;
  const int64_t blocks = (problem->queries + block_rows - 1) / block_rows;
  shared.splits = choose_splits(heads, blocks, problem->threads);
  run(kernels->forward, shared, heads * shared.splits);
  return shared.failed;
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

char *scratch(size_t bytes) {
  Scratch &own = thread_scratch;
  if (own.size < bytes + 64) {
    std::free(own.memory);
    own.memory = std::malloc(bytes + 64);
    own.size = own.memory ? bytes + 64 : 0;
    if (!own.memory) return nullptr;
  }
  return reinterpret_cast<char *>((reinterpret_cast<uintptr_t>(own.memory) + 63) / 64 * 64);
}

void release_large_scratch() {
  Scratch &own = thread_scratch;
  if (own.size <= scratch_kept) return;
  std::free(own.memory);
  own.memory = nullptr;
  own.size = 0;
}

}  // namespace hopfield

using namespace hopfield;

// Each returns 0, or 1 when memory ran out.
HOPFIELD_EXPORT int hopfield_forward(const ProblemOf<float> *problem) { return forward(problem); }
HOPFIELD_EXPORT int hopfield_backward(const ProblemOf<float> *problem) { return backward(problem); }
HOPFIELD_EXPORT int hopfield_forward_double(const ProblemOf<double> *problem) { return forward(problem); }
HOPFIELD_EXPORT int hopfield_backward_double(const ProblemOf<double> *problem) { return backward(problem); }

// Limits the instruction set (0 generic, 1 AVX2, 2 AVX-512, -1 no limit) and returns the one in use.
HOPFIELD_EXPORT int hopfield_level(int limit) {
  __atomic_store_n(&forced_level, limit, __ATOMIC_RELAXED);
  return usable_level();
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
