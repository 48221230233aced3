// Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
// The kernels in double for processors with these instructions, which the compiler uses without intrinsics.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#if defined(__x86_64__) && defined(__GNUC__)
#define HOPFIELD_DOUBLE
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma,bmi,bmi2,popcnt"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma,bmi,bmi2,popcnt")
#endif
#include "kernels.hpp"
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

namespace hopfield {
const KernelsOf<double> *double_avx2_kernels() { return &table; }
}  // namespace hopfield
#else
#include "problem.hpp"
namespace hopfield {
const KernelsOf<double> *double_avx2_kernels() { return nullptr; }
}  // namespace hopfield
#endif
