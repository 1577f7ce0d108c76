// One operation on tensors without gaps, bit for bit as PyTorch's.
#include "arithmetic.h"

#include <cstring>

#include "families.h"
#include "reader.h"

namespace nimble {
namespace {

template <std::size_t kOperands>
std::shared_ptr<const void> parse_count(const NativeArguments& arguments) {
  Reader reader(arguments);
  const CountPlan plan{reader.size("count")};
  reader.end(kOperands, 0);
  return std::make_shared<CountPlan>(plan);
}

void copy(void* context) {
  const auto& call = *static_cast<const NativeCall*>(context);
  const std::int64_t bytes = static_cast<const CountPlan*>(call.plan)->count;
  if (bytes == 0) return;  // the addresses may be null
  std::memcpy(call.operand<char>(0), call.operand<char>(1), static_cast<std::size_t>(bytes));
}

}  // namespace

void add_arithmetic(std::vector<NativeKernel>& kernels) {
  kernels.push_back({"copy", copy, parse_count<2>});
  kernels.push_back({"add.float32", best_add_float32(), parse_count<3>});
  kernels.push_back({"sub.float32", best_sub_float32(), parse_count<3>});
  kernels.push_back({"mul.float32", best_mul_float32(), parse_count<3>});
  kernels.push_back({"div.float32", best_div_float32(), parse_count<3>});
  kernels.push_back({"relu.float32", best_relu_float32(), parse_count<2>});
  kernels.push_back({"add.float64", best_add_float64(), parse_count<3>});
  kernels.push_back({"sub.float64", best_sub_float64(), parse_count<3>});
  kernels.push_back({"mul.float64", best_mul_float64(), parse_count<3>});
  kernels.push_back({"div.float64", best_div_float64(), parse_count<3>});
  kernels.push_back({"relu.float64", best_relu_float64(), parse_count<2>});
}

}  // namespace nimble
