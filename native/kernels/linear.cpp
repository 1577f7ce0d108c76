// Parses "pack_linear.float32", "linear.float32" and "linear.bfloat16".
#include "linear.h"

#include "families.h"
#include "parse_program.h"
#include "reader.h"

namespace nimble {
namespace {

std::shared_ptr<const void> parse_pack(const NativeArguments& arguments) {
  Reader reader(arguments);
  PackPlan plan{};
  plan.n = reader.size("N");
  plan.k = reader.size("K");
  plan.n_stride = reader.stride("N stride");
  plan.k_stride = reader.stride("K stride");
  reader.end(2, 0);
  return std::make_shared<PackPlan>(plan);
}

std::shared_ptr<const void> parse_linear(const NativeArguments& arguments) {
  Reader reader(arguments);
  auto plan = std::make_shared<LinearPlan>();
  plan->m = reader.size("M");
  plan->n = reader.size("N");
  plan->y_stride = reader.stride("y stride");
  const std::int64_t panels = (plan->n + kPanel - 1) / kPanel;
  plan->first_panel = reader.between("first panel", 0, panels);
  plan->last_panel = reader.between("last panel", plan->first_panel, panels);
  plan->k = reader.size("K");
  plan->x_stride = reader.stride("x stride");
  plan->bias = reader.flag("bias");
  plan->add = reader.flag("add");
  plan->add_stride = reader.stride("add stride");
  const std::size_t operands = 3 + plan->bias + plan->add;
  plan->epilogue = read_epilogue(reader, operands, 0);
  return plan;
}

}  // namespace

void add_linear(std::vector<NativeKernel>& kernels) {
  kernels.push_back({"pack_linear.float32", best_pack_linear(), parse_pack});
  kernels.push_back({"linear.float32", best_linear(), parse_linear});
  kernels.push_back({"linear.bfloat16", NIMBLE_BFLOAT16(linear_bfloat16), parse_linear});
}

}  // namespace nimble
