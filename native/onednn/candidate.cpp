#include "candidate.h"

#include <algorithm>
#include <stdexcept>

#include "one_thread.h"
#include "primitive.h"

namespace nimble::onednn {
namespace {

std::vector<Role> roles_with_post(std::vector<Role> roles, const Post& post, bool scratchpad) {
  if (scratchpad) roles.push_back({"scratchpad", DNNL_ARG_SCRATCHPAD});
  for (std::size_t i = 0; i < post.size(); ++i) {
    if (!std::holds_alternative<PostBinary>(post[i])) continue;
    const int argument = DNNL_ARG_ATTR_MULTIPLE_POST_OP(static_cast<int>(i)) | DNNL_ARG_SRC_1;
    roles.push_back({"post" + std::to_string(i), argument});
  }
  return roles;
}

std::size_t scratchpad_size(const_dnnl_primitive_desc_t desc) {
  return dnnl_memory_desc_get_size(
      dnnl_primitive_desc_query_md(desc, dnnl_query_scratchpad_md, 0));
}

PrimitiveDesc clone(const_dnnl_primitive_desc_t desc) {
  dnnl_primitive_desc_t copy = nullptr;
  check(dnnl_primitive_desc_clone(&copy, desc), "copy a candidate");
  return PrimitiveDesc(copy);
}

}  // namespace

Candidate::Candidate(PrimitiveDesc desc, std::vector<Role> roles)
    : desc_(std::move(desc)), roles_(std::move(roles)) {}

std::string Candidate::implementation() const {
  const char* name = nullptr;
  check(dnnl_primitive_desc_query(desc_.get(), dnnl_query_impl_info_str, 0, &name),
        "name an implementation");
  return name;
}

std::size_t Candidate::scratchpad_bytes() const { return scratchpad_size(desc_.get()); }

Desc Candidate::desc(const Role& role) const {
  const auto md =
      dnnl_primitive_desc_query_md(desc_.get(), dnnl_query_exec_arg_md, role.argument);
  if (!md) throw std::runtime_error("oneDNN describes no operand '" + role.name + "'");
  return Desc::copy_of(md);
}

Desc Candidate::desc(std::string_view role) const {
  std::string all;
  for (const Role& known : roles_) {
    if (known.name == role) return desc(known);
    all += (all.empty() ? "" : ", ") + known.name;
  }
  throw std::invalid_argument("there is no operand '" + std::string(role) + "'; there are " + all);
}

std::optional<Desc> Candidate::weights() const {
  const auto found = std::ranges::find(roles_, "weights", &Role::name);
  if (found == roles_.end()) return {};
  return desc(*found);
}

Primitive Candidate::create() const {
  const OneThread here;
  dnnl_primitive_t made = nullptr;
  check(dnnl_primitive_create(&made, desc_.get()), "make the primitive " + implementation());
  return Primitive(*this, PrimitiveHandle(made));
}

std::vector<Candidate> candidates(const std::string& problem, std::vector<Role> roles,
                                  const Post& post, const MakeDesc& make) {
  const OneThread here;
  const Attributes with = attributes(post);
  dnnl_primitive_desc_t first = nullptr;
  dnnl_status_t status = make(&first, with.get());
  const PrimitiveDesc current(first);
  if (status == dnnl_unimplemented) return {};
  if (status == dnnl_invalid_arguments) {
    throw std::invalid_argument("no such problem: " + problem);
  }
  check(status, "offer implementations of " + problem);
  std::vector<Candidate> result;
  while (status == dnnl_success) {
    const bool scratchpad = scratchpad_size(current.get()) != 0;
    result.emplace_back(clone(current.get()), roles_with_post(roles, post, scratchpad));
    status = dnnl_primitive_desc_next_impl(current.get());
  }
  if (status != dnnl_last_impl_reached) check(status, "offer implementations of " + problem);
  return result;
}

}  // namespace nimble::onednn
