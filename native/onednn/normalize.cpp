#include <stdexcept>

#include "problems.h"

namespace nimble::onednn {

Candidates softmax(const Desc& src, const Desc& dst, std::int64_t axis, bool log,
                   const Post& post) {
  const auto dims = static_cast<std::int64_t>(src.dims().size());
  const std::int64_t along = axis < 0 ? axis + dims : axis;
  if (along < 0 || along >= dims) {
    throw std::invalid_argument("src " + text(src.dims()) + " has no axis " +
                                std::to_string(axis));
  }
  if (has_sum(post)) return {};
  const auto kind = log ? dnnl_softmax_log : dnnl_softmax_accurate;
  return candidates("softmax of src " + text(src.dims()) + " to dst " + text(dst.dims()),
                    {{"dst", DNNL_ARG_DST}, {"src", DNNL_ARG_SRC}}, post,
                    [&](dnnl_primitive_desc_t* made, const_dnnl_primitive_attr_t attributes) {
                      return dnnl_softmax_forward_primitive_desc_create(
                          made, engine(), dnnl_forward_inference, kind, src.get(), dst.get(),
                          static_cast<int>(along), attributes);
                    });
}

Candidates layer_norm(const Desc& src, const Desc& dst, double eps, bool affine,
                      const Post& post) {
  if (has_sum(post)) return {};
  std::vector<Role> roles = {{"dst", DNNL_ARG_DST}, {"src", DNNL_ARG_SRC}};
  if (affine) {
    roles.push_back({"scale", DNNL_ARG_SCALE});
    roles.push_back({"shift", DNNL_ARG_SHIFT});
  }
  const unsigned flags = affine ? dnnl_use_scale | dnnl_use_shift : 0;
  return candidates("layer norm of src " + text(src.dims()) + " to dst " + text(dst.dims()), roles,
                    post,
                    [&](dnnl_primitive_desc_t* made, const_dnnl_primitive_attr_t attributes) {
                      return dnnl_layer_normalization_forward_primitive_desc_create(
                          made, engine(), dnnl_forward_inference, src.get(), dst.get(), nullptr,
                          static_cast<float>(eps), flags, attributes);
                    });
}

}  // namespace nimble::onednn
