// Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
// The kernels for processors with these instructions; empty where the compiler cannot produce them.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>
#define HOPFIELD_AVX2
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c,bmi,bmi2,popcnt"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c,bmi,bmi2,popcnt")
#endif
#include "kernels.hpp"
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

namespace hopfield {
const KernelsOf<float> *avx2_kernels() { return &table; }
}  // namespace hopfield
#else
#include "problem.hpp"
namespace hopfield {
const KernelsOf<float> *avx2_kernels() { return nullptr; }
}  // namespace hopfield
#endif
