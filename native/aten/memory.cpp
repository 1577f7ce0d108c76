#include "memory.h"

#include <c10/core/TensorOptions.h>
#include <c10/util/StringUtil.h>

#include <limits>

#include "python.h"

namespace nimble::aten {
namespace {

c10::DataPtr at_offset(void* address, std::size_t offset) {
  void* moved = address == nullptr ? nullptr : static_cast<std::byte*>(address) + offset;
  return {moved, c10::Device(c10::kCPU)};
}

// Whether kernels of this key are all that an operator meets, beside autograd and autocast.
bool is_only(const at::Tensor& tensor, c10::DispatchKey key) {
  constexpr auto ordinary =
      c10::autograd_dispatch_keyset_with_ADInplaceOrView | c10::autocast_dispatch_keyset;
  return tensor.key_set() - ordinary == c10::DispatchKeySet(key) && tensor.has_storage();
}

}  // namespace

bool is_plain(const at::Tensor& tensor) {
  return tensor.defined() && is_only(tensor, c10::DispatchKey::CPU);
}

bool is_plain_anywhere(const at::Tensor& tensor) {
  return tensor.defined() &&
         is_only(tensor, c10::computeDispatchKey(std::nullopt, at::kStrided, tensor.device()));
}

std::optional<std::size_t> span(at::IntArrayRef shape, at::IntArrayRef strides,
                                std::size_t itemsize) {
  std::int64_t last = 0;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] == 0) return 0;
    std::int64_t step = 0;
    if (__builtin_mul_overflow(shape[i] - 1, strides[i], &step) ||
        __builtin_add_overflow(last, step, &last)) {
      return std::nullopt;
    }
  }
  std::int64_t bytes = 0;
  if (__builtin_add_overflow(last, 1, &last) ||
      __builtin_mul_overflow(last, static_cast<std::int64_t>(itemsize), &bytes)) {
    return std::nullopt;
  }
  return static_cast<std::size_t>(bytes);
}

bool holds(const at::Tensor& tensor, std::size_t nbytes) {
  const auto before = static_cast<std::size_t>(tensor.storage_offset()) * tensor.itemsize();
  return nbytes == 0 || tensor.storage().nbytes() >= before + nbytes;
}

void bump_version(const at::Tensor& tensor) {
  if (!tensor.is_inference()) tensor.unsafeGetTensorImpl()->bump_version();
}

std::size_t span(const at::Tensor& tensor) {
  return span(tensor.sizes(), tensor.strides(), tensor.itemsize())
      .value_or(std::numeric_limits<std::size_t>::max());
}

Range Slot::range() const {
  const auto begin = reinterpret_cast<std::uintptr_t>(address_);
  return {begin, begin + nbytes_};
}

void Slot::keep(Memory& memory) {
  std::swap(memory_, memory);
  bind(memory_.address);
}

void Slot::bind(void* address) {
  address_ = address;
  for (const auto& [storage, offset] : parts_) {
    storage->set_data_ptr_noswap(at_offset(address, offset));
  }
}

void Slot::check(at::ScalarType dtype, const Ints& shape, const Ints& strides,
                 std::size_t offset) const {
  const std::size_t itemsize = c10::elementSize(dtype);
  if (c10::isQIntType(dtype)) value_error("a quantized dtype is not supported");
  if (shape.size() != strides.size()) {
    value_error(c10::str("shape ", at::IntArrayRef(shape), " and strides ",
                         at::IntArrayRef(strides), " differ in length"));
  }
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] < 0 || strides[i] < 0) value_error("a size or stride is negative");
  }
  if (offset % itemsize != 0) {
    value_error(c10::str("byte offset ", offset, " is no multiple of ", itemsize,
                         ", the bytes of one ", dtype));
  }
  const auto bytes = span(shape, strides, itemsize);
  if (!bytes || offset > nbytes_ || *bytes > nbytes_ - offset) {
    value_error(c10::str(dtype, at::IntArrayRef(shape), " with strides ", at::IntArrayRef(strides),
                         " at byte ", offset, " ends beyond the ", nbytes_, " bytes of its slot"));
  }
}

at::Tensor Slot::value(at::ScalarType dtype, const Ints& shape, const Ints& strides,
                       std::size_t offset) {
  check(dtype, shape, strides, offset);
  const auto nbytes = static_cast<std::int64_t>(*span(shape, strides, c10::elementSize(dtype)));
  auto storage = c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), nbytes, at_offset(address_, offset),
      /*allocator=*/nullptr, /*resizable=*/false);
  parts_.push_back({storage, offset});
  return tensor_on(storage, dtype, shape, strides, 0);
}

at::Tensor tensor_on(const c10::intrusive_ptr<c10::StorageImpl>& storage, at::ScalarType dtype,
                     at::IntArrayRef shape, at::IntArrayRef strides, std::size_t offset) {
  auto tensor = at::detail::make_tensor<c10::TensorImpl>(
      c10::Storage(storage), c10::DispatchKeySet(c10::DispatchKey::CPU),
      c10::scalarTypeToTypeMeta(dtype));
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(
      shape, strides, static_cast<std::int64_t>(offset / c10::elementSize(dtype)));
  return tensor;
}

}  // namespace nimble::aten
