// Parses weight_gradient and depthwise_gradient.
#include "weight_gradient.h"

#include "families.h"
#include "reader.h"

namespace nimble {
namespace {

WeightGradientPlan::Steps read_steps(Reader& reader) {
  const std::int64_t n = reader.stride("batch stride"), h = reader.stride("row stride");
  return {n, h, reader.stride("pixel stride")};
}

void read_dimension(Reader& reader, WeightGradientPlan::Dimension& dimension) {
  dimension.out = reader.positive("size of the result");
  dimension.in = reader.positive("size of the input");
  dimension.kernel = reader.positive("kernel");
  dimension.stride = reader.positive("stride");
  dimension.dilation = reader.positive("dilation");
  dimension.padding = reader.size("padding");
}

template <bool kDepthwise>
std::shared_ptr<const void> parse(const NativeArguments& arguments) {
  Reader reader(arguments);
  auto plan = std::make_shared<WeightGradientPlan>();
  plan->n = reader.positive("batch");
  plan->out = reader.positive("output channels");
  plan->in = reader.positive("input channels of a group");
  if (kDepthwise && plan->in != 1) reader.refuse("has one input channel of a group");
  read_dimension(reader, plan->h);
  read_dimension(reader, plan->w);
  plan->gradient = read_steps(reader);
  plan->x = read_steps(reader);
  plan->of_out = reader.stride("stride of output channels");
  plan->of_in = reader.stride("stride of input channels");
  plan->of_h = reader.stride("stride of kernel rows");
  plan->of_w = reader.stride("stride of kernel columns");
  reader.end(3, 0);
  return plan;
}

}  // namespace

void add_weight_gradient(std::vector<NativeKernel>& kernels) {
  kernels.push_back({"weight_gradient.float32", best_weight_gradient(), parse<false>});
  kernels.push_back({"depthwise_gradient.float32", best_depthwise_gradient(), parse<true>});
}

}  // namespace nimble
