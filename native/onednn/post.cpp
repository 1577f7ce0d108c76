#include "post.h"

#include <algorithm>
#include <stdexcept>

namespace nimble::onednn {
namespace {

void refuse_invalid(dnnl_status_t status, std::size_t index) {
  if (status == dnnl_invalid_arguments) {
    throw std::invalid_argument("post operation " + std::to_string(index) +
                                " has arguments that oneDNN refuses");
  }
  check(status, "append a post operation");
}

struct Append {
  dnnl_post_ops_t ops;

  dnnl_status_t operator()(const PostEltwise& post) const {
    return dnnl_post_ops_append_eltwise(ops, post.kind, post.alpha, post.beta);
  }
  dnnl_status_t operator()(const PostSum& post) const {
    return dnnl_post_ops_append_sum(ops, post.scale, 0, dnnl_data_type_undef);
  }
  dnnl_status_t operator()(const PostBinary& post) const {
    return dnnl_post_ops_append_binary(ops, post.kind, post.other.get());
  }
};

}  // namespace

bool has_sum(const Post& post) {
  return std::ranges::any_of(
      post, [](const auto& step) { return std::holds_alternative<PostSum>(step); });
}

Attributes attributes(const Post& post) {
  dnnl_primitive_attr_t attributes = nullptr;
  check(dnnl_primitive_attr_create(&attributes), "make attributes");
  Attributes result(attributes);
  // Otherwise the scratchpad would belong to the thread that made the primitive.
  check(dnnl_primitive_attr_set_scratchpad_mode(attributes, dnnl_scratchpad_mode_user),
        "set the mode of scratchpads");
  if (post.empty()) return result;
  dnnl_post_ops_t ops = nullptr;
  check(dnnl_post_ops_create(&ops), "make a chain of post operations");
  const PostOps owned(ops);
  for (std::size_t i = 0; i < post.size(); ++i) refuse_invalid(std::visit(Append{ops}, post[i]), i);
  check(dnnl_primitive_attr_set_post_ops(attributes, ops), "set post operations");
  return result;
}

}  // namespace nimble::onednn
