// Parses "resample_nhwc.float32".
#include "resample.h"

#include "families.h"
#include "reader.h"

namespace nimble {
namespace {

std::shared_ptr<const void> parse(const NativeArguments& arguments) {
  Reader reader(arguments);
  auto plan = std::make_shared<ResamplePlan>();
  plan->n = reader.size("batch");
  plan->channels = reader.size("channels");
  plan->height = reader.positive("height");
  plan->width = reader.positive("width");
  plan->out_height = reader.size("output height");
  plan->out_width = reader.size("output width");
  plan->y_n = reader.stride("y batch stride");
  plan->y_h = reader.stride("y row stride");
  plan->y_w = reader.stride("y column stride");
  plan->x_n = reader.stride("x batch stride");
  plan->x_h = reader.stride("x row stride");
  plan->x_w = reader.stride("x column stride");
  plan->first_row = reader.size("first row");
  plan->mode = static_cast<Resampling>(reader.between("mode", 0, 3));
  plan->step_h = reader.number(0);
  plan->step_w = reader.number(1);
  reader.end(2, 2);
  if (!(plan->step_h >= 0) || !(plan->step_w >= 0)) reader.refuse("has a step below 0");
  return plan;
}

}  // namespace

void add_resample(std::vector<NativeKernel>& kernels) {
  kernels.push_back({"resample_nhwc.float32", best_resample_nhwc(), parse});
}

}  // namespace nimble
