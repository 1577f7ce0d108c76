#include <stdexcept>

#include "problems.h"

namespace nimble::onednn {
namespace {

// The tensors around one layer in one direction.
struct Layer {
  Desc state, weights, weights_h, bias;
  dnnl_rnn_direction_t direction;

  Layer(const Desc& src, const Desc& dst, bool reverse, std::int64_t gates, std::int64_t biases)
      : Layer(checked(src), checked(dst), src.type(), reverse, gates, biases) {}

 private:
  Layer(const Dims& src, const Dims& dst, dnnl_data_type_t type, bool reverse, std::int64_t gates,
        std::int64_t biases)
      : state(Desc::row_major({1, 1, dst[1], dst[2]}, type)),
        weights(Desc::any({1, 1, src[2], gates, dst[2]}, type)),
        weights_h(Desc::any({1, 1, dst[2], gates, dst[2]}, type)),
        bias(Desc::row_major({1, 1, biases, dst[2]}, dnnl_f32)),
        direction(reverse ? dnnl_unidirectional_right2left : dnnl_unidirectional_left2right) {}

  static Dims checked(const Desc& sequence) {
    const Dims dims = sequence.dims();
    if (dims.size() == 3) return dims;
    throw std::invalid_argument("a sequence has dims (time, batch, features), not " + text(dims));
  }
};

std::string problem_of(const char* what, const Desc& src, const Desc& dst) {
  return std::string(what) + " of src " + text(src.dims()) + " to dst " + text(dst.dims());
}

}  // namespace

Candidates lstm(const Desc& src, const Desc& dst, bool reverse) {
  const Layer layer(src, dst, reverse, 4, 4);
  const auto state = layer.state.get();
  return candidates(
      problem_of("lstm", src, dst),
      {{"dst", DNNL_ARG_DST_LAYER},
       {"dst_h", DNNL_ARG_DST_ITER},
       {"dst_c", DNNL_ARG_DST_ITER_C},
       {"src", DNNL_ARG_SRC_LAYER},
       {"src_h", DNNL_ARG_SRC_ITER},
       {"src_c", DNNL_ARG_SRC_ITER_C},
       {"weights", DNNL_ARG_WEIGHTS_LAYER},
       {"weights_h", DNNL_ARG_WEIGHTS_ITER},
       {"bias", DNNL_ARG_BIAS}},
      {}, [&](dnnl_primitive_desc_t* made, const_dnnl_primitive_attr_t attributes) {
        return dnnl_lstm_forward_primitive_desc_create(
            made, engine(), dnnl_forward_inference, layer.direction, src.get(), state, state,
            layer.weights.get(), layer.weights_h.get(), nullptr, nullptr, layer.bias.get(),
            dst.get(), state, state, 0, attributes);
      });
}

// PyTorch multiplies the old state by its weights before it is reset: oneDNN's `lbr` variant,
// which has a bias more, the one inside the reset.
Candidates gru(const Desc& src, const Desc& dst, bool reverse) {
  const Layer layer(src, dst, reverse, 3, 4);
  const auto state = layer.state.get();
  return candidates(
      problem_of("gru", src, dst),
      {{"dst", DNNL_ARG_DST_LAYER},
       {"dst_h", DNNL_ARG_DST_ITER},
       {"src", DNNL_ARG_SRC_LAYER},
       {"src_h", DNNL_ARG_SRC_ITER},
       {"weights", DNNL_ARG_WEIGHTS_LAYER},
       {"weights_h", DNNL_ARG_WEIGHTS_ITER},
       {"bias", DNNL_ARG_BIAS}},
      {}, [&](dnnl_primitive_desc_t* made, const_dnnl_primitive_attr_t attributes) {
        return dnnl_lbr_gru_forward_primitive_desc_create(
            made, engine(), dnnl_forward_inference, layer.direction, src.get(), state,
            layer.weights.get(), layer.weights_h.get(), layer.bias.get(), dst.get(), state, 0,
            attributes);
      });
}

}  // namespace nimble::onednn
