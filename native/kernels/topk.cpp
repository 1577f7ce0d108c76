// Parses "topk.float32".
#include "topk.h"

#include "families.h"
#include "parse_rows.h"
#include "reader.h"

namespace nimble {
namespace {

std::shared_ptr<const void> parse(const NativeArguments& arguments) {
  Reader reader(arguments);
  auto plan = std::make_shared<TopkPlan>();
  plan->length = reader.positive("length");
  plan->k = reader.between("k", 1, plan->length);
  plan->value_step = reader.stride("values stride");
  plan->place_step = reader.stride("indices stride");
  plan->x_step = reader.stride("x stride");
  plan->largest = reader.flag("largest");
  plan->rows = read_rows(reader, 3);
  reader.end(3, 0);
  return plan;
}

}  // namespace

void add_topk(std::vector<NativeKernel>& kernels) {
  kernels.push_back({"topk.float32", best_topk(), parse});
}

}  // namespace nimble
