// Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
// Everything that is compiled once per instruction set, in float and in double. The including file names the
// instruction set or double, and opens the target pragma; each copy lives in a namespace of its own, and nothing here
// instantiates the standard library.
#include "problem.hpp"

#if defined(HOPFIELD_AVX512) || defined(HOPFIELD_AVX2)
#include <immintrin.h>
#endif

namespace hopfield {
namespace {

#if defined(HOPFIELD_DOUBLE)
typedef double Real;
#else
typedef float Real;
#endif
typedef IntegerOf<Real> Integer;
typedef RowStateOf<Real> RowState;
typedef ProblemOf<Real> Problem;
typedef SharedOf<Real> Shared;
typedef KernelsOf<Real> Kernels;

#include "vector.hpp"
// clang-format off: the order matters
#include "matmul.hpp"
#include "normalizer.hpp"
#include "stored.hpp"
#include "forward.hpp"
#include "decode.hpp"
#if !defined(HOPFIELD_DOUBLE)
#include "screen.hpp"
#include "quantize.hpp"
#endif
#include "screened.hpp"
#include "backward.hpp"
// clang-format on

constexpr Kernels table = {forward_worker,         decode_worker,      decode_read_worker, backward_worker,
                           reduce_worker,          bias_worker,        screened_decode_worker,
                           make_screen_worker,     add_to_screen,      padded_keys,        lanes};

}  // namespace
}  // namespace hopfield
