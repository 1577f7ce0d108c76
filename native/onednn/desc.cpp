#include "desc.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <stdexcept>
#include <tuple>
#include <utility>

namespace nimble::onednn {
namespace {

constexpr std::array<std::pair<std::string_view, dnnl_data_type_t>, 3> kTypes = {{
    {"float32", dnnl_f32},
    {"bfloat16", dnnl_bf16},
    {"float16", dnnl_f16},
}};

dnnl_data_type_t type_named(std::string_view name) {
  for (const auto& [known, type] : kTypes) {
    if (known == name) return type;
  }
  throw std::invalid_argument("dtype '" + std::string(name) +
                              "' is none of float32, bfloat16, float16");
}

template <class T>
T query(const_dnnl_memory_desc_t md, dnnl_query_t what) {
  T result{};
  check(dnnl_memory_desc_query(md, what, &result), "describe a tensor");
  return result;
}

// oneDNN recognises a layout by all strides, those of dims with one element included, which mean
// nothing. So these are given the value they have in a dense tensor: a tile of the rows of one
// image is then as good as an image.
Dims recognisable(const Dims& dims, Dims strides) {
  std::vector<std::size_t> order(dims.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::sort(order, {}, [&](std::size_t i) { return std::tuple(strides[i], dims[i], i); });
  std::int64_t extent = 1;  // of the dims further in
  for (const std::size_t i : order) {
    if (strides[i] == 0) continue;  // the same element over and over
    if (dims[i] == 1) strides[i] = extent;
    extent = strides[i] * dims[i];
  }
  return strides;
}

MemoryDesc with_strides(const Dims& dims, const Dims& given, dnnl_data_type_t type) {
  check_numbers("strides", given, dims.size(), 0);
  check_numbers("dims", dims, dims.size(), 0);
  const Dims strides = recognisable(dims, given);
  if (dims.empty() || dims.size() > DNNL_MAX_NDIMS) {
    throw std::invalid_argument("a tensor has 1 to 12 dims, not " + std::to_string(dims.size()));
  }
  dnnl_memory_desc_t made = nullptr;
  const auto status = dnnl_memory_desc_create_with_strides(
      &made, static_cast<int>(dims.size()), dims.data(), type, strides.data());
  if (status == dnnl_invalid_arguments) {
    throw std::invalid_argument("dims " + text(dims) + " with strides " + text(given) +
                                " overlap");
  }
  check(status, "describe a tensor");
  return MemoryDesc(made);
}

}  // namespace

std::string text(const Dims& dims) {
  std::string result = "(";
  for (std::size_t i = 0; i < dims.size(); ++i) {
    result += (i ? ", " : "") + std::to_string(dims[i]);
  }
  return result + (dims.size() == 1 ? ",)" : ")");
}

void check_numbers(const char* what, const Dims& numbers, std::size_t wanted, std::int64_t least) {
  if (numbers.size() != wanted) {
    throw std::invalid_argument(std::string(what) + " must be " + std::to_string(wanted) +
                                " numbers, not " + text(numbers));
  }
  if (std::ranges::any_of(numbers, [&](std::int64_t number) { return number < least; })) {
    throw std::invalid_argument(std::string(what) + " must be at least " + std::to_string(least) +
                                ", not " + text(numbers));
  }
}

Desc::Desc(const Dims& dims, const Dims& strides, std::string_view dtype)
    : md_(with_strides(dims, strides, type_named(dtype))) {}

Desc Desc::any(const Dims& dims, dnnl_data_type_t type) {
  check_numbers("dims", dims, std::min<std::size_t>(dims.size(), DNNL_MAX_NDIMS), 0);
  dnnl_memory_desc_t made = nullptr;
  check(dnnl_memory_desc_create_with_tag(&made, static_cast<int>(dims.size()), dims.data(), type,
                                         dnnl_format_tag_any),
        "describe a tensor");
  return Desc(MemoryDesc(made));
}

Desc Desc::row_major(const Dims& dims, dnnl_data_type_t type) {
  Dims strides(dims.size(), 1);
  for (std::size_t i = dims.size(); i-- > 1;) strides[i - 1] = strides[i] * dims[i];
  return Desc(with_strides(dims, strides, type));
}

Desc Desc::copy_of(const_dnnl_memory_desc_t md) {
  dnnl_memory_desc_t made = nullptr;
  check(dnnl_memory_desc_clone(&made, md), "copy the description of a tensor");
  return Desc(MemoryDesc(made));
}

dnnl_data_type_t Desc::type() const {
  return query<dnnl_data_type_t>(get(), dnnl_query_data_type);
}

std::string Desc::dtype() const {
  for (const auto& [name, type] : kTypes) {
    if (type == this->type()) return std::string(name);
  }
  return "bytes";  // a scratchpad
}

Dims Desc::dims() const {
  const auto count = query<std::int32_t>(get(), dnnl_query_ndims_s32);
  const auto* dims = query<const dnnl_dims_t*>(get(), dnnl_query_dims);
  return Dims(*dims, *dims + count);
}

std::optional<Dims> Desc::strides() const {
  if (query<dnnl_format_kind_t>(get(), dnnl_query_format_kind) != dnnl_blocked) return {};
  if (query<std::int32_t>(get(), dnnl_query_inner_nblks_s32) != 0) return {};
  const auto count = query<std::int32_t>(get(), dnnl_query_ndims_s32);
  const auto* strides = query<const dnnl_dims_t*>(get(), dnnl_query_strides);
  return Dims(*strides, *strides + count);
}

Dims Desc::plain_strides(const char* what) const {
  if (auto found = strides()) return *found;
  throw std::invalid_argument(std::string("a tensor in a layout of oneDNN's own cannot be ") +
                              what);
}

Desc Desc::grouped(std::int64_t groups) const {
  Dims dims = this->dims(), strides = plain_strides("grouped");
  if (groups < 1 || dims[0] % groups != 0) {
    throw std::invalid_argument("the first of dims " + text(dims) + " does not split into " +
                                std::to_string(groups) + " groups");
  }
  dims[0] /= groups;
  strides.insert(strides.begin(), strides[0] * dims[0]);
  dims.insert(dims.begin(), groups);
  return Desc(with_strides(dims, strides, type()));
}

Desc Desc::permuted(const Dims& order) const {
  const Dims dims = this->dims(), strides = plain_strides("permuted");
  Dims sorted = order;
  std::ranges::sort(sorted);
  for (std::size_t i = 0; i < std::max(sorted.size(), dims.size()); ++i) {
    if (sorted.size() == dims.size() && sorted[i] == static_cast<std::int64_t>(i)) continue;
    throw std::invalid_argument(text(order) + " is no order of " + std::to_string(dims.size()) +
                                " dims");
  }
  Dims new_dims, new_strides;
  for (const std::int64_t from : order) {
    new_dims.push_back(dims[static_cast<std::size_t>(from)]);
    new_strides.push_back(strides[static_cast<std::size_t>(from)]);
  }
  return Desc(with_strides(new_dims, new_strides, type()));
}

std::size_t Desc::hash() const {
  std::size_t result = static_cast<std::size_t>(type());
  for (const std::int64_t dim : dims()) result = result * 1000003 + static_cast<std::size_t>(dim);
  return result * 1000003 + bytes();  // equal ones have equal dims and sizes; strides may not count
}

}  // namespace nimble::onednn
