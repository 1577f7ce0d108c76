// Parses layer_norm, rms_norm and both group_norms.
#include "norm.h"

#include "families.h"
#include "parse_program.h"
#include "parse_rows.h"
#include "reader.h"

namespace nimble {
namespace {

template <bool kStatistics>
std::shared_ptr<const void> parse_layer_norm(const NativeArguments& arguments) {
  Reader reader(arguments);
  auto plan = std::make_shared<LayerNormPlan>();
  plan->length = reader.positive("length");
  plan->weight = reader.flag("weight");
  plan->bias = reader.flag("bias");
  plan->statistics = kStatistics;
  plan->rows = read_rows(reader, kStatistics ? 3 : 2);
  plan->eps = reader.number(0);
  const std::size_t before = kStatistics ? 4 : 2;
  plan->epilogue = read_epilogue(reader, before + std::size_t{plan->weight} + plan->bias, 1);
  return plan;
}

std::shared_ptr<const void> parse_gradient(const NativeArguments& arguments) {
  Reader reader(arguments);
  auto plan = std::make_shared<LayerNormGradientPlan>();
  plan->length = reader.positive("length");
  plan->weight = reader.flag("weight");
  plan->rows = read_rows(reader, 4);
  reader.end(5 + std::size_t{plan->weight}, 0);
  return plan;
}

std::shared_ptr<const void> parse_sums(const NativeArguments& arguments) {
  Reader reader(arguments);
  auto plan = std::make_shared<LayerNormSumsPlan>();
  plan->length = reader.positive("length");
  plan->weight = reader.flag("weight");
  plan->bias = reader.flag("bias");
  plan->rows = read_rows(reader, 3);
  reader.end(4 + std::size_t{plan->weight} + plan->bias, 0);
  return plan;
}

std::shared_ptr<const void> parse_group_norm(const NativeArguments& arguments) {
  Reader reader(arguments);
  auto plan = std::make_shared<GroupNormPlan>();
  plan->n = reader.size("batch");
  plan->channels = reader.between("channels", 1, kMaxNormChannels);
  plan->pixels = reader.positive("pixels");
  plan->groups = reader.between("groups", 1, plan->channels);
  if (plan->channels % plan->groups != 0) {
    reader.refuse("has " + std::to_string(plan->channels) + " channels, not a multiple of " +
                  std::to_string(plan->groups) + " groups");
  }
  plan->y_batch = reader.stride("y batch stride");
  plan->y_step = reader.stride("y stride");
  plan->x_batch = reader.stride("x batch stride");
  plan->x_step = reader.stride("x stride");
  plan->weight = reader.flag("weight");
  plan->bias = reader.flag("bias");
  plan->eps = reader.number(0);
  plan->epilogue = read_epilogue(reader, 2 + std::size_t{plan->weight} + plan->bias, 1);
  return plan;
}

}  // namespace

void add_norm(std::vector<NativeKernel>& kernels) {
  kernels.push_back({"layer_norm.float32", best_layer_norm(), parse_layer_norm<false>});
  kernels.push_back(
      {"layer_norm_with_statistics.float32", best_layer_norm(), parse_layer_norm<true>});
  kernels.push_back({"layer_norm_gradient.float32", best_layer_norm_gradient(), parse_gradient});
  kernels.push_back({"layer_norm_sums.float32", best_layer_norm_sums(), parse_sums});
  kernels.push_back({"rms_norm.float32", best_rms_norm(), parse_layer_norm<false>});
  kernels.push_back({"group_norm.float32", best_group_norm(), parse_group_norm});
  kernels.push_back({"group_norm_nhwc.float32", best_group_norm_nhwc(), parse_group_norm});
}

}  // namespace nimble
