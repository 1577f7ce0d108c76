#include "kinds.h"

#include <initializer_list>
#include <stdexcept>
#include <string>
#include <utility>

namespace nimble::onednn {
namespace {

using Names = std::initializer_list<std::pair<std::string_view, dnnl_alg_kind_t>>;

dnnl_alg_kind_t find(const char* what, const Names& names, std::string_view name) {
  std::string all;
  for (const auto& [known, kind] : names) {
    if (known == name) return kind;
    all += (all.empty() ? "" : ", ") + std::string(known);
  }
  throw std::invalid_argument("there is no " + std::string(what) + " '" + std::string(name) +
                              "'; there are " + all);
}

}  // namespace

dnnl_alg_kind_t eltwise_kind(std::string_view name) {
  return find("eltwise kind",
              {{"relu", dnnl_eltwise_relu},
               {"clip", dnnl_eltwise_clip_v2},
               {"tanh", dnnl_eltwise_tanh},
               {"logistic", dnnl_eltwise_logistic},
               {"gelu_erf", dnnl_eltwise_gelu_erf},
               {"gelu_tanh", dnnl_eltwise_gelu_tanh},
               {"swish", dnnl_eltwise_swish},
               {"hardswish", dnnl_eltwise_hardswish},
               {"hardsigmoid", dnnl_eltwise_hardsigmoid},
               {"elu", dnnl_eltwise_elu},
               {"linear", dnnl_eltwise_linear},
               {"exp", dnnl_eltwise_exp},
               {"sqrt", dnnl_eltwise_sqrt},
               {"abs", dnnl_eltwise_abs},
               {"square", dnnl_eltwise_square},
               {"log", dnnl_eltwise_log},
               {"round", dnnl_eltwise_round},
               {"pow", dnnl_eltwise_pow},
               {"softplus", dnnl_eltwise_soft_relu},
               {"mish", dnnl_eltwise_mish}},
              name);
}

dnnl_alg_kind_t binary_kind(std::string_view name) {
  return find("binary kind",
              {{"add", dnnl_binary_add},
               {"sub", dnnl_binary_sub},
               {"mul", dnnl_binary_mul},
               {"div", dnnl_binary_div},
               {"max", dnnl_binary_max},
               {"min", dnnl_binary_min},
               {"ge", dnnl_binary_ge},
               {"gt", dnnl_binary_gt},
               {"le", dnnl_binary_le},
               {"lt", dnnl_binary_lt},
               {"eq", dnnl_binary_eq},
               {"ne", dnnl_binary_ne}},
              name);
}

dnnl_alg_kind_t pooling_kind(std::string_view name) {
  return find("pooling kind",
              {{"max", dnnl_pooling_max},
               {"avg_include", dnnl_pooling_avg_include_padding},
               {"avg_exclude", dnnl_pooling_avg_exclude_padding}},
              name);
}

dnnl_alg_kind_t reduction_kind(std::string_view name) {
  return find("reduction kind",
              {{"sum", dnnl_reduction_sum},
               {"mean", dnnl_reduction_mean},
               {"max", dnnl_reduction_max},
               {"min", dnnl_reduction_min},
               {"mul", dnnl_reduction_mul}},
              name);
}

dnnl_alg_kind_t resampling_kind(std::string_view name) {
  return find("resampling kind",
              {{"nearest", dnnl_resampling_nearest}, {"linear", dnnl_resampling_linear}}, name);
}

}  // namespace nimble::onednn
