// Parses "convolution.float32", "convolution.bfloat16" and "depthwise.float32".
#include "convolution.h"

#include "families.h"
#include "parse_program.h"
#include "reader.h"

namespace nimble {
namespace {

constexpr std::int64_t kMostChannels = 8192;  // of a group's input: there are as many zeros for padding

Image read_image(Reader& reader) {
  Image image{};
  image.batch = reader.stride("batch stride");
  image.row = reader.stride("row stride");
  image.pixel = reader.stride("pixel stride");
  return image;
}

std::shared_ptr<const void> parse(const NativeArguments& arguments, bool depthwise) {
  Reader reader(arguments);
  auto plan = std::make_shared<ConvolutionPlan>();
  read_convolution(reader, *plan, depthwise, 3);
  return plan;
}

}  // namespace

void read_convolution(Reader& reader, ConvolutionPlan& plan, bool depthwise, std::size_t operands) {
  plan.batch = reader.size("batch");
  plan.height = reader.size("height");
  plan.width = reader.size("width");
  plan.first_row = reader.size("first row");
  plan.last_row = reader.between("last row", plan.first_row, Reader::kMost);
  plan.out_width = reader.size("output width");
  plan.groups = reader.positive("groups");
  plan.in = reader.between("input channels of a group", 1, depthwise ? 1 : kMostChannels);
  plan.out = reader.between("output channels of a group", 1, depthwise ? 1 : Reader::kMost);
  const std::int64_t channels = depthwise ? plan.groups : plan.out;
  const std::int64_t panels = (channels + kPanel - 1) / kPanel;
  plan.first_panel = reader.between("first panel", 0, panels);
  plan.last_panel = reader.between("last panel", plan.first_panel, panels);
  plan.tap_stride = depthwise ? reader.stride("tap stride") : 0;
  plan.kernel_h = reader.between("kernel height", 1, kMaxTaps);
  plan.kernel_w = reader.between("kernel width", 1, kMaxTaps / plan.kernel_h);
  plan.stride_h = reader.positive("stride");
  plan.stride_w = reader.positive("stride");
  plan.dilation_h = reader.positive("dilation");
  plan.dilation_w = reader.positive("dilation");
  plan.top = reader.size("padding at the top");
  plan.left = reader.size("padding on the left");
  plan.src = read_image(reader);
  plan.dst = read_image(reader);
  plan.bias = reader.flag("bias");
  plan.add = reader.flag("add");
  plan.added = read_image(reader);
  const bool clamps = reader.flag("clamp");
  std::size_t floats = 0;
  if (plan.bias) ++operands;
  if (plan.add) ++operands;
  plan.low = plan.high = 0;
  if (clamps) {
    floats = 2;
    plan.low = reader.number(0);
    plan.high = reader.number(1);
    if (!(plan.low < plan.high)) reader.refuse("clamps to nothing");
  }
  plan.epilogue = read_epilogue(reader, operands, floats);
}

void add_convolution(std::vector<NativeKernel>& kernels) {
  kernels.push_back({"convolution.float32", best_convolution(),
                     [](const NativeArguments& given) { return parse(given, false); }});
  kernels.push_back({"convolution.bfloat16", NIMBLE_BFLOAT16(convolution_bfloat16),
                     [](const NativeArguments& given) { return parse(given, false); }});
  kernels.push_back({"depthwise.float32", best_depthwise(),
                     [](const NativeArguments& given) { return parse(given, true); }});
}

}  // namespace nimble
