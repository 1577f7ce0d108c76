// Parses "attention.float32".
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
  plan->y = read_strides(reader);
  plan->q = read_strides(reader);
  plan->k = read_strides(reader);
  plan->v = read_strides(reader);
  if (plan->mask) {
    plan->m = read_strides(reader);
    plan->mask_key = reader.stride("mask key stride");
  }
  plan->scale = reader.number(0);
  reader.end(5 + std::size_t{plan->mask}, 1);
  return plan;
}

}  // namespace

std::int64_t attention_scratch(std::int64_t keys, std::int64_t dim, std::int64_t value_dim) {
  const std::int64_t values = value_dim % 16 == 0 ? 0 : whole_panels(value_dim) * keys;
  return whole_panels(keys) * (dim + kAttentionRows) + values;
}

void add_attention(std::vector<NativeKernel>& kernels) {
  kernels.push_back({"attention.float32", best_attention(), parse});
}

}  // namespace nimble
