// Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
// The kernels in vectors of four, for every processor the compiler knows.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "kernels.hpp"

namespace hopfield {
const KernelsOf<float> *generic_kernels() { return &table; }
}  // namespace hopfield
