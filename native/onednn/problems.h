// What oneDNN is asked to compute. Each gives every implementation it offers, in its order.
#pragma once

#include <string_view>
#include <variant>
#include <vector>

#include "candidate.h"
#include "desc.h"
#include "post.h"

namespace nimble::onednn {

using Candidates = std::vector<Candidate>;

// Weights that are packed ahead of time have dims only: where they lie is left to oneDNN.
using Weights = std::variant<Desc, Dims>;

// How a window moves over the spatial dims, in PyTorch's terms: a dilation of 1 is none.
struct Window {
  Dims strides, dilation, padding_l, padding_r;

  // Throws std::invalid_argument if it is not one over `spatial` dims.
  void check(std::size_t spatial) const;
  Dims gaps() const;  // what oneDNN calls dilation: 0 is none
};

// Weights in PyTorch's order: (out, in / groups, ...), transposed (in, out / groups, ...).
Candidates convolution(const Desc& src, const Dims& weights_dims, bool bias, const Desc& dst,
                       const Window& window, std::int64_t groups, const Post& post,
                       bool transposed);

Candidates matmul(const Desc& src, const Weights& weights, bool bias, const Desc& dst,
                  const Post& post);
Candidates inner_product(const Desc& src, const Dims& weights_dims, bool bias, const Desc& dst,
                         const Post& post);

Candidates pooling(std::string_view kind, const Desc& src, const Desc& dst, const Dims& kernel,
                   const Window& window, const Post& post);
Candidates resampling(std::string_view kind, const Desc& src, const Desc& dst, const Post& post);

Candidates softmax(const Desc& src, const Desc& dst, std::int64_t axis, bool log,
                   const Post& post);
Candidates layer_norm(const Desc& src, const Desc& dst, double eps, bool affine, const Post& post);

Candidates eltwise(std::string_view kind, const Desc& src, const Desc& dst, double alpha,
                   double beta, const Post& post);
Candidates binary(std::string_view kind, const Desc& a, const Desc& b, const Desc& dst,
                  const Post& post);
Candidates reduction(std::string_view kind, const Desc& src, const Desc& dst, const Post& post);

// Weights of a grouped convolution may be given as PyTorch has them, without a dim of groups.
Candidates reorder(const Desc& src, const Desc& dst);

// One layer, one direction, over a whole sequence: src (time, batch, in), dst (time, batch, out).
Candidates lstm(const Desc& src, const Desc& dst, bool reverse);
Candidates gru(const Desc& src, const Desc& dst, bool reverse);

}  // namespace nimble::onednn
