// Parses "copy_strided" and "pad.float32".
#include "copy.h"

#include <algorithm>

#include "dims.h"
#include "families.h"
#include "reader.h"

namespace nimble {
namespace {

std::shared_ptr<const void> parse_copy(const NativeArguments& arguments) {
  Reader reader(arguments);
  auto plan = std::make_shared<CopyPlan>();
  plan->bytes = reader.between("element size", 1, 8);
  if ((plan->bytes & (plan->bytes - 1)) != 0) {
    reader.refuse("copies elements of 1, 2, 4 or 8 bytes");
  }
  std::vector<Dim> dims = read_sizes(reader, 2);
  read_strides(reader, dims, 0);
  read_strides(reader, dims, 1);
  plan->start = reader.size("start");
  reader.end(2, 0);
  plan->empty = is_empty(dims);
  collapse(dims);
  widen(dims, 2, 2);
  if (dims.back()[1] == 1 && dims.back()[2] != 1) {
    const auto found = std::find_if(dims.begin(), dims.end() - 1,
                                    [](const Dim& dim) { return dim[2] == 1 && dim[0] > 1; });
    plan->transposes = found != dims.end() - 1;
    if (plan->transposes) std::rotate(found, found + 1, dims.end() - 1);
  }
  plan->dims = static_cast<int>(dims.size());
  for (std::size_t d = 0; d < dims.size(); ++d) {
    plan->size[d] = dims[d][0];
    plan->to[d] = dims[d][1];
    plan->from[d] = dims[d][2];
  }
  return plan;
}

std::shared_ptr<const void> parse_pad(const NativeArguments& arguments) {
  Reader reader(arguments);
  auto plan = std::make_shared<PadPlan>();
  int dims = static_cast<int>(reader.between("dimensions", 1, kMaxDims));
  for (int d = 0; d < dims; ++d) {
    plan->size[d] = reader.size("size");
    plan->empty |= plan->size[d] == 0;
  }
  for (int d = 0; d < dims; ++d) plan->before[d] = reader.between("padding", 0, plan->size[d]);
  for (int d = 0; d < dims; ++d) {
    plan->inner[d] = reader.between("inner size", 0, plan->size[d] - plan->before[d]);
  }
  for (int d = 0; d < dims; ++d) plan->to[d] = reader.stride("stride");
  for (int d = 0; d < dims; ++d) plan->from[d] = reader.stride("stride");
  plan->value = reader.number(0);
  reader.end(2, 1);
  // A last dimension that is not padded is one with the one before.
  while (dims > 1 && plan->inner[dims - 1] == plan->size[dims - 1] &&
         plan->to[dims - 2] == plan->size[dims - 1] * plan->to[dims - 1] &&
         plan->from[dims - 2] == plan->size[dims - 1] * plan->from[dims - 1]) {
    const int last = dims-- - 1;
    plan->size[last - 1] *= plan->size[last];
    plan->before[last - 1] *= plan->size[last];
    plan->inner[last - 1] *= plan->size[last];
    plan->to[last - 1] = plan->to[last];
    plan->from[last - 1] = plan->from[last];
  }
  plan->dims = dims;
  return plan;
}

}  // namespace

void add_copy(std::vector<NativeKernel>& kernels) {
  kernels.push_back({"copy_strided", best_copy_strided(), parse_copy});
  kernels.push_back({"pad.float32", best_pad(), parse_pad});
}

}  // namespace nimble
