// Parses "attention.float32" and "attention_gradient.float32".
#include "attention.h"

#include "families.h"
#include "reader.h"

namespace nimble {
namespace {

std::int64_t whole_panels(std::int64_t n) { return (n + 15) / 16 * 16; }

Strides3 read_strides(Reader& reader) {
  Strides3 strides{};
  strides.batch = reader.stride("batch stride");
  strides.head = reader.stride("head stride");
  strides.row = reader.stride("row stride");
  return strides;
}

std::shared_ptr<const void> parse(const NativeArguments& arguments) {
  Reader reader(arguments);
  auto plan = std::make_shared<AttentionPlan>();
  plan->batch = reader.size("batch");
  plan->heads = reader.size("heads");
  plan->group = reader.positive("heads per key head");
  plan->queries = reader.size("queries");
  plan->keys = reader.positive("keys");
  plan->dim = reader.positive("dimension");
  plan->value_dim = reader.positive("value dimension");
  plan->causal = reader.flag("causal");
  plan->mask = reader.flag("mask");
  plan->has_sums = reader.flag("sums");
  plan->y = read_strides(reader);
  plan->q = read_strides(reader);
  plan->k = read_strides(reader);
  plan->v = read_strides(reader);
  if (plan->mask) {
    plan->m = read_strides(reader);
    plan->mask_key = reader.stride("mask key stride");
  }
  if (plan->has_sums) plan->sums = read_strides(reader);
  plan->scale = reader.number(0);
  reader.end(5 + std::size_t{plan->mask} + plan->has_sums, 1);
  return plan;
}

std::int64_t panels(Reader& reader, const char* name) {
  const std::int64_t size = reader.positive(name);
  if (size % 16 != 0) reader.refuse(std::string(name) + " is no multiple of 16");
  return size;
}

std::shared_ptr<const void> parse_gradient(const NativeArguments& arguments) {
  Reader reader(arguments);
  auto plan = std::make_shared<AttentionGradientPlan>();
  plan->batch = reader.size("batch");
  plan->heads = reader.size("heads");
  plan->queries = reader.positive("queries");
  plan->keys = reader.positive("keys");
  plan->dim = panels(reader, "dimension");
  plan->value_dim = panels(reader, "value dimension");
  plan->causal = reader.flag("causal");
  plan->mask = reader.flag("mask");
  for (auto* strides : {&plan->dq, &plan->dk, &plan->dv, &plan->dy, &plan->q, &plan->k, &plan->v,
                        &plan->y, &plan->sums}) {
    *strides = read_strides(reader);
  }
  if (plan->mask) {
    plan->m = read_strides(reader);
    plan->mask_key = reader.stride("mask key stride");
  }
  plan->scale = reader.number(0);
  reader.end(10 + std::size_t{plan->mask}, 1);
  return plan;
}

}  // namespace

std::int64_t attention_scratch(std::int64_t keys, std::int64_t dim, std::int64_t value_dim) {
  const std::int64_t values = value_dim % 16 == 0 ? 0 : whole_panels(value_dim) * keys;
  return whole_panels(keys) * (dim + kAttentionRows) + values;
}

std::int64_t attention_gradient_scratch(std::int64_t queries, std::int64_t keys, std::int64_t dim,
                                        std::int64_t value_dim) {
  return whole_panels(queries) * (dim + value_dim + 2 + kAttentionRows + keys);
}

void add_attention(std::vector<NativeKernel>& kernels) {
  kernels.push_back({"attention.float32", best_attention(), parse});
  kernels.push_back(
      {"attention_gradient.float32", best_attention_gradient(), parse_gradient});
}

}  // namespace nimble
