// Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
// The kernels in double, in vectors of four, for every processor the compiler knows.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#if defined(__GNUC__)
// How vectors of this size are passed depends on the instruction set, but no function here is called from elsewhere.
#pragma GCC diagnostic ignored "-Wpsabi"
#endif
#define HOPFIELD_DOUBLE
#include "kernels.hpp"

namespace hopfield {
const KernelsOf<double> *double_kernels() { return &table; }
}  // namespace hopfield
