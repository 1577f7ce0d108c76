// Parses "pointwise.float32", and brings its dimensions into the order that makes long blocks.
#include "pointwise.h"

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "families.h"
#include "parse_program.h"
#include "reader.h"

namespace nimble {
namespace {

using Dim = std::vector<std::int64_t>;  // the size, then a stride per operand

// Strides of outputs decide the order: where blocks are written without gaps, most are read so.
void sort_dims(std::vector<Dim>& dims) {
  std::stable_sort(dims.begin(), dims.end(), [](const Dim& a, const Dim& b) {
    return std::abs(a[1]) > std::abs(b[1]);
  });
}

// Two neighbours are one dimension where every operand steps through both evenly.
void collapse(std::vector<Dim>& dims) {
  std::erase_if(dims, [](const Dim& dim) { return dim[0] == 1; });
  sort_dims(dims);
  for (std::size_t d = dims.size(); d-- > 1;) {
    Dim& outer = dims[d - 1];
    const Dim& inner = dims[d];
    bool even = true;
    for (std::size_t i = 1; i < inner.size(); ++i) even &= outer[i] == inner[i] * inner[0];
    if (!even) continue;
    const std::int64_t size = outer[0] * inner[0];
    outer = inner;
    outer[0] = size;
    dims.erase(dims.begin() + static_cast<std::ptrdiff_t>(d));
  }
}

// The same slot may be the same memory; two slots are two tensors.
bool share_slot(const Reader& reader, int output, int input) {
  const auto& operands = reader.arguments().operands;
  const auto outputs = static_cast<std::size_t>(reader.arguments().ints[0]);
  return operands[static_cast<std::size_t>(output)].slot ==
         operands[outputs + static_cast<std::size_t>(input)].slot;
}

std::shared_ptr<const void> parse(const NativeArguments& arguments) {
  Reader reader(arguments);
  auto plan = std::make_shared<PointwisePlan>();
  const int outputs = static_cast<int>(reader.between("outputs", 1, kMaxOperands));
  const int inputs = static_cast<int>(reader.between("inputs", 0, kMaxOperands - outputs));
  const auto operands = static_cast<std::size_t>(outputs + inputs);
  if (arguments.operands.size() != operands) {
    reader.refuse("takes " + std::to_string(operands) + " operands, not " +
                  std::to_string(arguments.operands.size()));
  }
  const auto count = static_cast<std::size_t>(reader.between("dimensions", 0, kMaxDims));
  std::vector<Dim> dims(count, Dim(operands + 1));
  for (Dim& dim : dims) dim[0] = reader.size("size");
  for (std::size_t i = 0; i < operands; ++i) {
    plan->operand[i].dtype = read_dtype(reader);
    for (Dim& dim : dims) dim[i + 1] = reader.stride("stride");
  }
  for (const Dim& dim : dims) {
    plan->empty |= dim[0] == 0;
    for (int o = 0; o < outputs; ++o) {
      if (dim[0] > 1 && dim[static_cast<std::size_t>(o) + 1] == 0) {
        reader.refuse("writes an element of output " + std::to_string(o) + " twice: stride 0");
      }
    }
  }
  plan->program = read_program(reader, inputs, outputs, 0, share_slot);
  reader.end(operands, static_cast<std::size_t>(plan->program.constants));
  collapse(dims);
  Dim one(operands + 1);
  one[0] = 1;
  while (dims.size() < 2) dims.insert(dims.begin(), one);
  plan->dims = static_cast<int>(dims.size());
  for (std::size_t d = 0; d < dims.size(); ++d) {
    plan->size[d] = dims[d][0];
    for (std::size_t i = 0; i < operands; ++i) plan->operand[i].stride[d] = dims[d][i + 1];
  }
  return plan;
}

}  // namespace

void add_pointwise(std::vector<NativeKernel>& kernels) {
  kernels.push_back({"pointwise.float32", best_pointwise(), parse});
}

}  // namespace nimble
