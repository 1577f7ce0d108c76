// Parses the poolings of channels-last tensors.
#include "families.h"
#include "pooling.h"
#include "reader.h"

namespace nimble {
namespace {

// Every window has an element of the tensor: PyTorch demands the same.
PoolAxis read_window(Reader& reader, PoolAxis axis) {
  axis.kernel = reader.positive("kernel");
  axis.stride = reader.positive("stride");
  axis.padding = reader.between("padding", 0, axis.kernel / 2);
  axis.dilation = reader.positive("dilation");
  if (axis.out > 0 && (axis.out - 1) * axis.stride - axis.padding >= axis.in) {
    reader.refuse("has a window beyond the end of its input: output size " +
                  std::to_string(axis.out));
  }
  return axis;
}

template <Pooling kKind, bool kGradient = false>
std::shared_ptr<const void> parse(const NativeArguments& arguments) {
  Reader reader(arguments);
  auto plan = std::make_shared<PoolPlan>();
  plan->kind = kKind;
  plan->n = reader.size("batch");
  plan->channels = reader.size("channels");
  plan->h.in = reader.positive("height");
  plan->w.in = reader.positive("width");
  plan->h.out = reader.size("output height");
  plan->w.out = reader.size("output width");
  plan->y_n = reader.stride("y batch stride");
  plan->y_h = reader.stride("y row stride");
  plan->y_w = reader.stride("y column stride");
  plan->x_n = reader.stride("x batch stride");
  plan->x_h = reader.stride("x row stride");
  plan->x_w = reader.stride("x column stride");
  if (kKind != Pooling::adaptive_mean) {
    plan->h = read_window(reader, plan->h);
    plan->w = read_window(reader, plan->w);
    if (kKind != Pooling::max) {
      if (plan->h.dilation != 1 || plan->w.dilation != 1) reader.refuse("has no dilation");
      if (!reader.flag("padding counted")) plan->kind = Pooling::mean_without_padding;
      plan->divisor = static_cast<float>(reader.size("divisor"));
    }
  }
  if (kGradient) {
    plan->d_n = reader.stride("gradient's batch stride");
    plan->d_h = reader.stride("gradient's row stride");
    plan->d_w = reader.stride("gradient's column stride");
  }
  reader.end(kGradient ? 3 : 2, 0);
  return plan;
}

}  // namespace

void add_pooling(std::vector<NativeKernel>& kernels) {
  kernels.push_back({"max_pool_nhwc.float32", best_pool_nhwc(), parse<Pooling::max>});
  kernels.push_back({"max_pool_gradient_nhwc.float32", best_max_pool_gradient_nhwc(),
                     parse<Pooling::max, true>});
  kernels.push_back(
      {"avg_pool_nhwc.float32", best_pool_nhwc(), parse<Pooling::mean_with_padding>});
  kernels.push_back(
      {"adaptive_avg_pool_nhwc.float32", best_pool_nhwc(), parse<Pooling::adaptive_mean>});
}

}  // namespace nimble
