// Parses "pointwise.float32" and "fill".
#include "pointwise.h"

#include <vector>

#include "dims.h"
#include "families.h"
#include "parse_program.h"
#include "reader.h"

namespace nimble {
namespace {

// The same slot may be the same memory; two slots are two tensors.
bool share_slot(const Reader& reader, int output, int input) {
  const auto& operands = reader.arguments().operands;
  const auto outputs = static_cast<std::size_t>(reader.arguments().ints[0]);
  return operands[static_cast<std::size_t>(output)].slot ==
         operands[outputs + static_cast<std::size_t>(input)].slot;
}

std::shared_ptr<const void> parse_pointwise(const NativeArguments& arguments) {
  Reader reader(arguments);
  auto plan = std::make_shared<PointwisePlan>();
  const int outputs = static_cast<int>(reader.between("outputs", 1, kMaxOperands));
  const int inputs = static_cast<int>(reader.between("inputs", 0, kMaxOperands - outputs));
  const auto operands = static_cast<std::size_t>(outputs + inputs);
  if (arguments.operands.size() != operands) {
    reader.refuse("takes " + std::to_string(operands) + " operands, not " +
                  std::to_string(arguments.operands.size()));
  }
  std::vector<Dim> dims = read_sizes(reader, operands);
  for (std::size_t i = 0; i < operands; ++i) {
    plan->operand[i].dtype = read_dtype(reader);
    read_strides(reader, dims, i);
  }
  plan->empty = is_empty(dims);
  for (const Dim& dim : dims) {
    for (int o = 0; o < outputs; ++o) {
      if (dim[0] > 1 && dim[static_cast<std::size_t>(o) + 1] == 0) {
        reader.refuse("writes an element of output " + std::to_string(o) + " twice: stride 0");
      }
    }
  }
  plan->program = read_program(reader, inputs, outputs, 0, share_slot);
  reader.end(operands, static_cast<std::size_t>(plan->program.constants));
  collapse(dims);
  widen(dims, 2, operands);
  plan->dims = static_cast<int>(dims.size());
  for (std::size_t d = 0; d < dims.size(); ++d) {
    plan->size[d] = dims[d][0];
    for (std::size_t i = 0; i < operands; ++i) plan->operand[i].stride[d] = dims[d][i + 1];
  }
  return plan;
}

// Filling is the program that copies a constant.
std::shared_ptr<const void> parse_fill(const NativeArguments& arguments) {
  Reader reader(arguments);
  const std::int64_t dtype = reader.any("dtype");
  const std::int64_t count = reader.between("dimensions", 0, kMaxDims);
  std::vector<std::int64_t> ints = {1, 0, count};
  for (std::int64_t d = 0; d < count; ++d) ints.push_back(reader.any("size"));
  ints.push_back(dtype);
  for (std::int64_t d = 0; d < count; ++d) ints.push_back(reader.any("stride"));
  reader.end(1, 1);
  ints.insert(ints.end(), {1, static_cast<std::int64_t>(Op::copy), 0, -1, 0, 0});
  return parse_pointwise({arguments.kernel, arguments.operands, ints, arguments.floats});
}

}  // namespace

void add_pointwise(std::vector<NativeKernel>& kernels) {
  kernels.push_back({"pointwise.float32", best_pointwise(), parse_pointwise});
  kernels.push_back({"fill", best_pointwise(), parse_fill});
}

}  // namespace nimble
