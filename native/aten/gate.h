// Lets the calls through that need no second look: plain tensors, and nothing that watches them.
#pragma once

#include <cstddef>
#include <optional>

#include "python.h"

namespace nimble::aten {

class Gate {
 public:
  static constexpr std::size_t kMost = 8;  // arguments: each is compared with all others

  // For calls with `count` tensors under this autocast (none: off) and default dtype.
  Gate(std::size_t count, std::optional<at::ScalarType> autocast, at::ScalarType default_dtype)
      : count_(count), autocast_(autocast), default_dtype_(default_dtype) {}

  // Whether these are so many different tensors, of torch.Tensor itself, no gradient is asked for,
  // no mode or transform is on, and autocast and the default dtype are the gate's. May say no to
  // what a closer look would find fit.
  bool passes(nb::tuple args) const;

 private:
  bool is_quiet() const;

  std::size_t count_;
  std::optional<at::ScalarType> autocast_;
  at::ScalarType default_dtype_;
};

}  // namespace nimble::aten
