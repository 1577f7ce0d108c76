// An implementation that oneDNN offers for a problem, before any code is generated for it.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "desc.h"
#include "post.h"

namespace nimble::onednn {

class Primitive;

// An operand of a primitive: its name here, its number in oneDNN.
struct Role {
  std::string name;
  int argument;
};

class Candidate {
 public:
  Candidate(PrimitiveDesc desc, std::vector<Role> roles);

  std::string implementation() const;
  std::size_t scratchpad_bytes() const;
  const std::vector<Role>& roles() const { return roles_; }
  // Throws std::invalid_argument with the roles there are.
  Desc desc(std::string_view role) const;
  Desc desc(const Role& role) const;
  std::optional<Desc> weights() const;
  Primitive create() const;

 private:
  std::shared_ptr<const dnnl_primitive_desc> desc_;
  std::vector<Role> roles_;
};

using MakeDesc = std::function<dnnl_status_t(dnnl_primitive_desc_t*, const_dnnl_primitive_attr_t)>;

// Everything oneDNN offers, in its order; nothing if it offers nothing. `problem` is for the text
// of std::invalid_argument, thrown where oneDNN says that the descriptions do not fit together.
std::vector<Candidate> candidates(const std::string& problem, std::vector<Role> roles,
                                  const Post& post, const MakeDesc& make);

}  // namespace nimble::onednn
