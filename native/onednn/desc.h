// The description of a tensor: dims, element type, and where its elements lie.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "handles.h"

namespace nimble::onednn {

using Dims = std::vector<std::int64_t>;

std::string text(const Dims& dims);

// Throws std::invalid_argument naming `what` if there are not `wanted` numbers, or one is too low.
void check_numbers(const char* what, const Dims& numbers, std::size_t wanted, std::int64_t least);

// Immutable, and cheap to copy.
class Desc {
 public:
  // Strides in elements. Throws std::invalid_argument if there is no such tensor.
  Desc(const Dims& dims, const Dims& strides, std::string_view dtype);

  // Where the elements lie is left to oneDNN. Only for making primitives.
  static Desc any(const Dims& dims, dnnl_data_type_t type);
  static Desc row_major(const Dims& dims, dnnl_data_type_t type);
  static Desc copy_of(const_dnnl_memory_desc_t md);

  const_dnnl_memory_desc_t get() const { return md_.get(); }
  dnnl_data_type_t type() const;
  std::string dtype() const;
  Dims dims() const;
  std::optional<Dims> strides() const;  // nothing if the layout is oneDNN's own
  std::size_t bytes() const { return dnnl_memory_desc_get_size(get()); }

  // The first dim split into (groups, rest). Needs strides, as permuted() does.
  Desc grouped(std::int64_t groups) const;
  // Dim i of the result is dim order[i] of this.
  Desc permuted(const Dims& order) const;

  bool operator==(const Desc& other) const { return dnnl_memory_desc_equal(get(), other.get()); }
  std::size_t hash() const;

 private:
  explicit Desc(MemoryDesc md) : md_(std::move(md)) {}
  Dims plain_strides(const char* what) const;

  std::shared_ptr<const dnnl_memory_desc> md_;
};

}  // namespace nimble::onednn
