// Readable names of the functions that oneDNN computes.
#pragma once

#include <oneapi/dnnl/dnnl.h>

#include <string_view>

namespace nimble::onednn {

// Each throws std::invalid_argument with the names there are.
dnnl_alg_kind_t eltwise_kind(std::string_view name);
dnnl_alg_kind_t binary_kind(std::string_view name);
dnnl_alg_kind_t pooling_kind(std::string_view name);
dnnl_alg_kind_t reduction_kind(std::string_view name);
dnnl_alg_kind_t resampling_kind(std::string_view name);

}  // namespace nimble::onednn
