#include "dims.h"

#include <algorithm>
#include <cstdlib>

namespace nimble {

std::vector<Dim> read_sizes(Reader& reader, std::size_t operands) {
  std::vector<Dim> dims(static_cast<std::size_t>(reader.between("dimensions", 0, kMaxDims)),
                        Dim(operands + 1));
  for (Dim& dim : dims) dim[0] = reader.size("size");
  return dims;
}

void read_strides(Reader& reader, std::vector<Dim>& dims, std::size_t operand) {
  for (Dim& dim : dims) dim[operand + 1] = reader.stride("stride");
}

bool is_empty(const std::vector<Dim>& dims) {
  return std::any_of(dims.begin(), dims.end(), [](const Dim& dim) { return dim[0] == 0; });
}

void collapse(std::vector<Dim>& dims) {
  std::erase_if(dims, [](const Dim& dim) { return dim[0] == 1; });
  std::stable_sort(dims.begin(), dims.end(), [](const Dim& a, const Dim& b) {
    return std::abs(a[1]) > std::abs(b[1]);
  });
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

void widen(std::vector<Dim>& dims, std::size_t count, std::size_t operands) {
  Dim one(operands + 1);
  one[0] = 1;
  while (dims.size() < count) dims.insert(dims.begin(), one);
}

}  // namespace nimble
