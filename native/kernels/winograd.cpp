// Parses "winograd.float32" and "pack_winograd.float32".
#include "winograd.h"

#include "families.h"
#include "reader.h"

namespace nimble {
namespace {

std::int64_t read_side(Reader& reader) {
  const std::int64_t side = reader.between("side of a tile", 2, 4);
  if (side == 3) reader.refuse("has tiles of 3 pixels; expected 2 or 4");
  return side;
}

std::shared_ptr<const void> parse(const NativeArguments& arguments) {
  Reader reader(arguments);
  auto plan = std::make_shared<WinogradPlan>();
  plan->side = read_side(reader);
  plan->block = reader.between("tiles of a block", 1, 4096);
  read_convolution(reader, plan->convolution, false, 4);
  const ConvolutionPlan& given = plan->convolution;
  if (given.kernel_h != 3 || given.kernel_w != 3 || given.stride_h != 1 || given.stride_w != 1 ||
      given.dilation_h != 1 || given.dilation_w != 1 || given.groups != 1) {
    reader.refuse("is for kernels of 3 x 3 at stride and dilation 1, without groups");
  }
  if (given.in % 8 != 0) reader.refuse("needs input channels in eights");
  return plan;
}

std::shared_ptr<const void> parse_pack(const NativeArguments& arguments) {
  Reader reader(arguments);
  auto plan = std::make_shared<PackWinogradPlan>();
  plan->side = read_side(reader);
  plan->panels = reader.size("panels");
  plan->in = reader.size("input channels");
  reader.end(2, 0);
  return plan;
}

}  // namespace

void add_winograd(std::vector<NativeKernel>& kernels) {
  kernels.push_back({"winograd.float32", best_winograd(), parse});
  kernels.push_back({"pack_winograd.float32", best_pack_winograd(), parse_pack});
}

}  // namespace nimble
