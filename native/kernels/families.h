// Every family of kernels adds its own to the list.
#pragma once

#include <vector>

#include "../core/kernels.h"

namespace nimble {

using AddKernels = void(std::vector<NativeKernel>& kernels);

AddKernels add_convolution, add_arithmetic, add_pointwise, add_linear, add_norm, add_copy, add_pooling, add_softmax,
    add_gather, add_reduction, add_attention, add_winograd;

inline constexpr AddKernels* kFamilies[] = {
    add_convolution, add_arithmetic, add_pointwise, add_linear, add_norm,     add_copy,
    add_pooling,    add_softmax,   add_gather, add_reduction, add_attention,
    add_winograd};

}  // namespace nimble
