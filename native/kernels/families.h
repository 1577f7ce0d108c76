// Every family of kernels adds its own to the list.
#pragma once

#include <vector>

#include "../core/kernels.h"

namespace nimble {

using AddKernels = void(std::vector<NativeKernel>& kernels);

AddKernels add_attention, add_convolution, add_copy, add_gather, add_linear, add_loss, add_matmul,
    add_norm, add_pointwise, add_pooling, add_reduction, add_resample, add_softmax, add_statistics, add_topk,
    add_weight_gradient, add_winograd;

inline constexpr AddKernels* kFamilies[] = {
    add_attention, add_convolution, add_copy,      add_gather,    add_linear,          add_loss,
    add_matmul,    add_norm,        add_pointwise, add_pooling,   add_reduction,       add_resample,
    add_softmax,   add_statistics,  add_topk,      add_weight_gradient, add_winograd};

}  // namespace nimble
