#pragma once

#include "dispatch.h"
#include "linear.h"
#include "program.h"

namespace nimble {

inline constexpr int kMaxTaps = 121;

// Images lie channels-last: strides are in floats, that of channels is 1.
struct Image {
  std::int64_t batch, row, pixel;  // strides
};

// A convolution over two dimensions, or the part of one: rows [first_row, last_row) of the output.
struct ConvolutionPlan {
  std::int64_t batch, height, width;           // of the input
  std::int64_t first_row, last_row, out_width;
  std::int64_t groups, in, out;                // channels of a group
  std::int64_t first_panel, last_panel;        // of a group
  std::int64_t tap_stride;                     // of the weights, if depthwise
  std::int64_t kernel_h, kernel_w, stride_h, stride_w, dilation_h, dilation_w, top, left;
  Image src, dst;
  bool bias;
  Epilogue epilogue;
  // The common ends, done while the result is still in registers.
  bool add;  // the extra operand 0, laid out as `added`
  Image added;
  float low, high;  // clamp; not at all if low is not below high
};

class Reader;
// Reads what the kernels of convolutions have in common; `operands` come before the bias.
void read_convolution(Reader& reader, ConvolutionPlan& plan, bool depthwise, std::size_t operands);

NIMBLE_KERNEL(convolution)
NIMBLE_KERNEL(convolution_bfloat16)  // channels in couples
NIMBLE_KERNEL(depthwise)

}  // namespace nimble
