#include <stdexcept>

#include "problems.h"

namespace nimble::onednn {
namespace {

struct Bias {
  std::optional<Desc> desc;

  Bias(bool wanted, const Dims& dims, dnnl_data_type_t type) {
    if (wanted) desc = Desc::row_major(dims, type);
  }
  const_dnnl_memory_desc_t get() const { return desc ? desc->get() : nullptr; }
};

std::vector<Role> roles_of(bool bias) {
  std::vector<Role> roles = {
      {"dst", DNNL_ARG_DST}, {"src", DNNL_ARG_SRC}, {"weights", DNNL_ARG_WEIGHTS}};
  if (bias) roles.push_back({"bias", DNNL_ARG_BIAS});
  return roles;
}

std::string problem_of(const char* what, const Desc& src, const Dims& weights, const Desc& dst) {
  return std::string(what) + " of src " + text(src.dims()) + " by weights " + text(weights) +
         " to dst " + text(dst.dims());
}

}  // namespace

Candidates matmul(const Desc& src, const Weights& weights, bool bias, const Desc& dst,
                  const Post& post) {
  const auto* const given = std::get_if<Desc>(&weights);
  const Desc by = given ? *given : Desc::any(std::get<Dims>(weights), src.type());
  Dims bias_dims(dst.dims().size(), 1);
  bias_dims.back() = dst.dims().back();
  const Bias added(bias, bias_dims, src.type());
  return candidates(problem_of("matmul", src, by.dims(), dst), roles_of(bias), post,
                    [&](dnnl_primitive_desc_t* made, const_dnnl_primitive_attr_t attributes) {
                      return dnnl_matmul_primitive_desc_create(made, engine(), src.get(), by.get(),
                                                               added.get(), dst.get(), attributes);
                    });
}

Candidates inner_product(const Desc& src, const Dims& weights_dims, bool bias, const Desc& dst,
                         const Post& post) {
  const Desc by = Desc::any(weights_dims, src.type());
  const Bias added(bias, {dst.dims().back()}, src.type());
  return candidates(problem_of("inner product", src, weights_dims, dst), roles_of(bias), post,
                    [&](dnnl_primitive_desc_t* made, const_dnnl_primitive_attr_t attributes) {
                      return dnnl_inner_product_forward_primitive_desc_create(
                          made, engine(), dnnl_forward_inference, src.get(), by.get(), added.get(),
                          dst.get(), attributes);
                    });
}

}  // namespace nimble::onednn
