#include <stdexcept>

#include "problems.h"

namespace nimble::onednn {
namespace {

// (groups, out / groups, in / groups, ...) as oneDNN wants it, without groups if there is one.
Dims onednn_dims(const Dims& weights, std::int64_t groups, bool transposed) {
  if (groups < 1 || weights[0] % groups != 0) {
    throw std::invalid_argument("weights_dims " + text(weights) + " do not split into " +
                                std::to_string(groups) + " groups");
  }
  Dims result = weights;
  result[0] /= groups;
  if (transposed) std::swap(result[0], result[1]);
  if (groups > 1) result.insert(result.begin(), groups);
  return result;
}

}  // namespace

Candidates convolution(const Desc& src, const Dims& weights_dims, bool bias, const Desc& dst,
                       const Window& window, std::int64_t groups, const Post& post,
                       bool transposed) {
  const std::size_t dims = src.dims().size();
  if (dims < 3 || dims > 5 || dst.dims().size() != dims) {
    throw std::invalid_argument("a convolution takes 3 to 5 dims, not src " + text(src.dims()) +
                                ", dst " + text(dst.dims()));
  }
  check_numbers("weights_dims", weights_dims, dims, 0);
  window.check(dims - 2);
  const Dims gaps = window.gaps();
  const Desc weights = Desc::any(onednn_dims(weights_dims, groups, transposed), src.type());
  std::vector<Role> roles = {
      {"dst", DNNL_ARG_DST}, {"src", DNNL_ARG_SRC}, {"weights", DNNL_ARG_WEIGHTS}};
  std::optional<Desc> added;
  if (bias) {
    added = Desc::row_major({dst.dims()[1]}, src.type());
    roles.push_back({"bias", DNNL_ARG_BIAS});
  }
  const auto create = transposed ? dnnl_deconvolution_forward_primitive_desc_create
                                 : dnnl_convolution_forward_primitive_desc_create;
  const auto kind = transposed ? dnnl_deconvolution_direct : dnnl_convolution_direct;
  const std::string problem =
      "convolution of src " + text(src.dims()) + " by weights " + text(weights_dims) + " in " +
      std::to_string(groups) + " groups to dst " + text(dst.dims()) + ", strides " +
      text(window.strides) + ", dilation " + text(window.dilation) + ", padding " +
      text(window.padding_l) + " and " + text(window.padding_r);
  return candidates(problem, roles, post,
                    [&](dnnl_primitive_desc_t* made, const_dnnl_primitive_attr_t attributes) {
                      return create(made, engine(), dnnl_forward_inference, kind, src.get(),
                                    weights.get(), added ? added->get() : nullptr, dst.get(),
                                    window.strides.data(), gaps.data(), window.padding_l.data(),
                                    window.padding_r.data(), attributes);
                    });
}

}  // namespace nimble::onednn
