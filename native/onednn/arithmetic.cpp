#include "kinds.h"
#include "problems.h"

namespace nimble::onednn {

Candidates eltwise(std::string_view kind, const Desc& src, const Desc& dst, double alpha,
                   double beta, const Post& post) {
  const auto function = eltwise_kind(kind);
  if (has_sum(post)) return {};
  return candidates("eltwise of src " + text(src.dims()) + " to dst " + text(dst.dims()),
                    {{"dst", DNNL_ARG_DST}, {"src", DNNL_ARG_SRC}}, post,
                    [&](dnnl_primitive_desc_t* made, const_dnnl_primitive_attr_t attributes) {
                      return dnnl_eltwise_forward_primitive_desc_create(
                          made, engine(), dnnl_forward_inference, function, src.get(), dst.get(),
                          static_cast<float>(alpha), static_cast<float>(beta), attributes);
                    });
}

Candidates binary(std::string_view kind, const Desc& a, const Desc& b, const Desc& dst,
                  const Post& post) {
  const auto function = binary_kind(kind);
  return candidates(
      "binary of a " + text(a.dims()) + " and b " + text(b.dims()) + " to dst " +
          text(dst.dims()),
      {{"dst", DNNL_ARG_DST}, {"a", DNNL_ARG_SRC_0}, {"b", DNNL_ARG_SRC_1}}, post,
      [&](dnnl_primitive_desc_t* made, const_dnnl_primitive_attr_t attributes) {
        return dnnl_binary_primitive_desc_create(made, engine(), function, a.get(), b.get(),
                                                 dst.get(), attributes);
      });
}

Candidates reduction(std::string_view kind, const Desc& src, const Desc& dst, const Post& post) {
  const auto function = reduction_kind(kind);
  return candidates("reduction of src " + text(src.dims()) + " to dst " + text(dst.dims()),
                    {{"dst", DNNL_ARG_DST}, {"src", DNNL_ARG_SRC}}, post,
                    [&](dnnl_primitive_desc_t* made, const_dnnl_primitive_attr_t attributes) {
                      return dnnl_reduction_primitive_desc_create(
                          made, engine(), function, src.get(), dst.get(), 0, 0, attributes);
                    });
}

}  // namespace nimble::onednn
