// Parses "matmul.float32".
#include "matmul.h"

#include "families.h"
#include "parse_program.h"
#include "parse_rows.h"
#include "reader.h"

namespace nimble {
namespace {

std::shared_ptr<const void> parse(const NativeArguments& arguments) {
  Reader reader(arguments);
  auto plan = std::make_shared<MatmulPlan>();
  plan->m = reader.size("M");
  plan->n = reader.size("N");
  plan->k = reader.size("K");
  plan->y_row = reader.stride("y row stride");
  plan->x_row = reader.stride("x row stride");
  plan->w_row = reader.stride("w row stride");
  plan->w_column = reader.stride("w column stride");
  plan->batch = read_rows(reader, 3);
  plan->epilogue = read_epilogue(reader, 4, 0);
  return plan;
}

}  // namespace

void add_matmul(std::vector<NativeKernel>& kernels) {
  kernels.push_back({"matmul.float32", best_matmul(), parse});
}

}  // namespace nimble
