#include <limits>
#include <stdexcept>

#include "kinds.h"
#include "problems.h"

namespace nimble::onednn {

void Window::check(std::size_t spatial) const {
  check_numbers("strides", strides, spatial, 1);
  check_numbers("dilation", dilation, spatial, 1);
  check_numbers("padding_l", padding_l, spatial, 0);
  // A window may end before the source does.
  check_numbers("padding_r", padding_r, spatial, std::numeric_limits<std::int32_t>::min());
}

Dims Window::gaps() const {
  Dims result = dilation;
  for (std::int64_t& gap : result) --gap;
  return result;
}

Candidates pooling(std::string_view kind, const Desc& src, const Desc& dst, const Dims& kernel,
                   const Window& window, const Post& post) {
  const auto function = pooling_kind(kind);
  const std::size_t dims = src.dims().size();
  if (dims < 3 || dims > 5 || dst.dims().size() != dims) {
    throw std::invalid_argument("pooling takes 3 to 5 dims, not src " + text(src.dims()) +
                                ", dst " + text(dst.dims()));
  }
  check_numbers("kernel", kernel, dims - 2, 1);
  window.check(dims - 2);
  if (has_sum(post)) return {};
  const Dims gaps = window.gaps();
  const std::string problem = "pooling of src " + text(src.dims()) + " with kernel " +
                              text(kernel) + " to dst " + text(dst.dims()) + ", strides " +
                              text(window.strides) + ", dilation " + text(window.dilation) +
                              ", padding " + text(window.padding_l) + " and " +
                              text(window.padding_r);
  return candidates(problem, {{"dst", DNNL_ARG_DST}, {"src", DNNL_ARG_SRC}}, post,
                    [&](dnnl_primitive_desc_t* made, const_dnnl_primitive_attr_t attributes) {
                      return dnnl_pooling_forward_primitive_desc_create(
                          made, engine(), dnnl_forward_inference, function, src.get(), dst.get(),
                          window.strides.data(), kernel.data(), gaps.data(),
                          window.padding_l.data(), window.padding_r.data(), attributes);
                    });
}

Candidates resampling(std::string_view kind, const Desc& src, const Desc& dst, const Post& post) {
  const auto function = resampling_kind(kind);
  return candidates(
      "resampling of src " + text(src.dims()) + " to dst " + text(dst.dims()),
      {{"dst", DNNL_ARG_DST}, {"src", DNNL_ARG_SRC}}, post,
      [&](dnnl_primitive_desc_t* made, const_dnnl_primitive_attr_t attributes) {
        return dnnl_resampling_forward_primitive_desc_create(
            made, engine(), dnnl_forward_inference, function, nullptr, src.get(), dst.get(),
            attributes);
      });
}

}  // namespace nimble::onednn
