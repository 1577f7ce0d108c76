#include "problems.h"

namespace nimble::onednn {
namespace {

// Whether `whole` is `parts` before its first dim was split into groups.
bool is_ungrouped(const Dims& whole, const Dims& parts) {
  return whole.size() + 1 == parts.size() && whole[0] == parts[0] * parts[1] &&
         Dims(whole.begin() + 1, whole.end()) == Dims(parts.begin() + 2, parts.end());
}

}  // namespace

Candidates reorder(const Desc& src, const Desc& dst) {
  const bool to_groups = is_ungrouped(src.dims(), dst.dims()) && src.strides();
  const Desc from = to_groups ? src.grouped(dst.dims()[0]) : src;
  return candidates("reorder of src " + text(src.dims()) + " to dst " + text(dst.dims()),
                    {{"dst", DNNL_ARG_TO}, {"src", DNNL_ARG_FROM}}, {},
                    [&](dnnl_primitive_desc_t* made, const_dnnl_primitive_attr_t attributes) {
                      return dnnl_reorder_primitive_desc_create(made, from.get(), engine(),
                                                                dst.get(), engine(), attributes);
                    });
}

}  // namespace nimble::onednn
