// Reads the ints of a call in order. What is malformed is refused with a sentence that says why.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "../core/kernels.h"

namespace nimble {

class Reader {
 public:
  explicit Reader(const NativeArguments& arguments) : arguments_(arguments) {}

  std::int64_t any(const char* what);
  std::int64_t between(const char* what, std::int64_t least, std::int64_t most);
  // Sizes are bounded so that no product of a few of them overflows.
  std::int64_t size(const char* what) { return between(what, 0, kMost); }
  std::int64_t positive(const char* what) { return between(what, 1, kMost); }
  std::int64_t stride(const char* what) { return between(what, -kMost, kMost); }
  bool flag(const char* what) { return between(what, 0, 1) != 0; }
  float number(std::size_t index) const;

  bool at_end() const { return next_ == arguments_.ints.size(); }
  // No more ints, and exactly so many operands and floats.
  void end(std::size_t operands, std::size_t floats) const;

  const NativeArguments& arguments() const { return arguments_; }
  [[noreturn]] void refuse(const std::string& why) const;

  static constexpr std::int64_t kMost = std::int64_t{1} << 40;

 private:
  const NativeArguments& arguments_;
  std::size_t next_ = 0;
};

}  // namespace nimble
