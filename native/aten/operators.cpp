#include "operators.h"

#include <ATen/ScalarOps.h>
#include <c10/core/MemoryFormat.h>
#include <c10/util/StringUtil.h>
#include <c10/util/strides.h>

#include <algorithm>
#include <set>
#include <unordered_map>

#include "python.h"

namespace nimble::aten {
namespace {

using c10::Argument;
using c10::FunctionSchema;
using c10::OperatorHandle;

// Ops that give their first argument in other memory, and those that may also change its dtype.
const std::set<std::string> kCopies = {"aten::alias", "aten::clone", "aten::contiguous",
                                       "aten::detach", "aten::lift_fresh_copy"};
const std::set<std::string> kCasts = {"aten::_to_copy", "aten::to", "aten::type_as"};

// Ops of two tensors, one of which may be a number.
const std::set<std::string> kBinary = {
    "aten::add", "aten::div", "aten::eq", "aten::ge", "aten::gt",
    "aten::le",  "aten::lt",  "aten::mul", "aten::ne", "aten::sub",
};

// Not tagged as such, but these take results of any strides all the same.
const std::set<std::string> kAnyStrides = {
    "aten::addmm",     "aten::baddbmm", "aten::bmm",          "aten::cat", "aten::gather",
    "aten::hardswish", "aten::index",   "aten::index_select", "aten::mm",
};

// Tagged pointwise, but oneDNN computes them, as if the result had the strides of the argument.
const std::set<std::string> kOwnStrides = {"aten::gelu", "aten::gelu_backward"};

// Composed of other ops, as most such out variants are not worth the risk, but common and sound.
const std::set<std::string> kComposites = {"aten::log_softmax", "aten::matmul", "aten::softmax"};

// Their out variants write nothing where the mode leaves one result empty, or lay a result as they like.
const std::set<std::string> kNoOut = {"aten::linalg_qr", "aten::log_sigmoid_forward"};

// A factory's dtype, layout and device are those of the tensor that it fills.
bool is_tensor_option(const Argument& argument) {
  static const std::set<std::string> names = {"dtype", "layout", "device", "pin_memory"};
  return argument.kwarg_only() && names.contains(argument.name());
}

bool same(const Argument& a, const Argument& b) {
  return a.name() == b.name() && *a.real_type() == *b.real_type();
}

bool returns_plain_tensors(const FunctionSchema& schema) {
  for (const auto& result : schema.returns()) {
    if (result.type()->kind() != c10::TypeKind::TensorType) return false;
  }
  return !schema.returns().empty();
}

bool mutates(const FunctionSchema& schema) {
  for (const auto& argument : schema.arguments()) {
    if (argument.alias_info() != nullptr && argument.alias_info()->isWrite()) return true;
  }
  return false;
}

// Whether `out` takes the arguments of `plain`, then a tensor to write for each of its results.
bool is_out_variant(const FunctionSchema& plain, const FunctionSchema& out) {
  std::vector<const Argument*> read;
  std::size_t written = 0;
  for (const auto& argument : out.arguments()) {
    if (argument.is_out()) {
      if (argument.type()->kind() != c10::TypeKind::TensorType) return false;
      ++written;
    } else {
      if (written > 0) return false;
      read.push_back(&argument);
    }
  }
  if (written != plain.returns().size()) return false;
  std::size_t next = 0;
  for (const auto& argument : plain.arguments()) {
    if (next < read.size() && same(argument, *read[next])) {
      ++next;
    } else if (!is_tensor_option(argument)) {
      return false;
    }
  }
  return next == read.size();
}

bool has_sound_out_variant(const OperatorHandle& op) {
  const auto& schema = op.schema();
  // The size of what these return depends on the data: it cannot have a place in advance. That of
  // aten::index only does where an index is a mask.
  if (op.hasTag(at::Tag::dynamic_output_shape) && schema.name() != "aten::index") return false;
  // A loss makes its result as large as its input before it reduces it.
  if (schema.argumentIndexWithName("reduction")) return false;
  return returns_plain_tensors(schema) && !mutates(schema) && !kNoOut.contains(schema.name());
}

bool is_sound_out_variant(const OperatorHandle& out) {
  // A generated one calls the plain op and copies: no better than doing so here.
  if (out.hasTag(at::Tag::generated)) return false;
  if (!out.hasComputedKernelForDispatchKey(c10::DispatchKey::CPU)) return false;
  return !out.hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd) ||
         out.hasTag(at::Tag::pointwise) || kComposites.contains(out.operator_name().name);
}

std::optional<OperatorHandle> search_out_variant(const OperatorHandle& op) {
  if (!has_sound_out_variant(op)) return std::nullopt;
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const auto& name : dispatcher.getAllOpNames()) {
    if (name.name != op.operator_name().name) continue;
    const auto candidate = dispatcher.findSchema(name);
    if (candidate && is_out_variant(op.schema(), candidate->schema()) &&
        is_sound_out_variant(*candidate)) {
      return candidate;
    }
  }
  return std::nullopt;
}

// Remembered, because the search goes through all ops there are. The GIL protects it.
std::optional<OperatorHandle> out_variant(const OperatorHandle& op) {
  static std::unordered_map<OperatorHandle, std::optional<OperatorHandle>> found;
  const auto known = found.find(op);
  if (known != found.end()) return known->second;
  return found.emplace(op, search_out_variant(op)).first->second;
}

torch::jit::Stack out_arguments(const FunctionSchema& plain, const FunctionSchema& out,
                                const torch::jit::Stack& arguments,
                                const std::vector<at::Tensor>& results) {
  torch::jit::Stack stack;
  std::size_t from = 0;
  std::size_t result = 0;
  for (const auto& argument : out.arguments()) {
    if (argument.is_out()) {
      stack.emplace_back(results[result++]);
      continue;
    }
    while (!same(plain.arguments()[from], argument)) ++from;
    stack.push_back(arguments[from++]);
  }
  return stack;
}

// Exactly these strides: some kernels mind even the stride of a dimension of one element.
bool has_format(const at::Tensor& tensor, at::MemoryFormat format) {
  if (!tensor.defined()) return true;
  if (format == at::MemoryFormat::ChannelsLast && tensor.dim() == 4) {
    return tensor.strides() == at::IntArrayRef(c10::get_channels_last_strides_2d(tensor.sizes()));
  }
  if (format == at::MemoryFormat::ChannelsLast3d && tensor.dim() == 5) {
    return tensor.strides() == at::IntArrayRef(c10::get_channels_last_strides_3d(tensor.sizes()));
  }
  return tensor.strides() == at::IntArrayRef(c10::contiguous_strides(tensor.sizes()));
}

bool have_format(const torch::jit::Stack& arguments, at::MemoryFormat format) {
  const auto fits = [&](const at::Tensor& tensor) { return has_format(tensor, format); };
  return std::ranges::all_of(arguments, [&](const c10::IValue& argument) {
    if (argument.isTensor()) return fits(argument.toTensor());
    if (argument.isTensorList()) return std::ranges::all_of(argument.toTensorVector(), fits);
    return true;
  });
}

// Many out variants assume that the result has the strides that the plain op would have given it,
// and write elsewhere, without a word, where it has not. They are trusted only with arguments and
// results all in one format.
bool trusts_strides(const OperatorHandle& op, const torch::jit::Stack& arguments) {
  const auto& name = op.operator_name().name;
  const bool any = op.hasTag(at::Tag::pointwise) || op.hasTag(at::Tag::reduction);
  if (kAnyStrides.contains(name) || (any && !kOwnStrides.contains(name))) return true;
  return have_format(arguments, at::MemoryFormat::Contiguous) ||
         have_format(arguments, at::MemoryFormat::ChannelsLast) ||
         have_format(arguments, at::MemoryFormat::ChannelsLast3d);
}

bool indexes_by_mask(const OperatorHandle& op, const torch::jit::Stack& arguments) {
  if (op.operator_name().name != "aten::index") return false;
  return std::ranges::any_of(arguments[1].toOptionalTensorVector(), [](const auto& index) {
    return index && (index->scalar_type() == at::kBool || index->scalar_type() == at::kByte);
  });
}

// What is to be copied into the result, where that is all there is to do.
std::optional<at::Tensor> copied(const std::string& name, const torch::jit::Stack& arguments,
                                 const at::Tensor& result) {
  const bool casts = kCasts.contains(name);
  if (!casts && !kCopies.contains(name) && name != "aten::copy") return std::nullopt;
  const at::Tensor& self = arguments[0].toTensor();
  if (self.sizes() != result.sizes()) return std::nullopt;
  if (!casts && self.scalar_type() != result.scalar_type()) return std::nullopt;
  return name == "aten::copy" ? arguments[1].toTensor() : self;
}

// Eager casts the number to the tensor's dtype in every call, which costs more than the rest of it.
// In float32 that can be done before; in a shorter dtype kernels compute with the number as it was.
at::Tensor number_beside(const at::Tensor& tensor, const at::Scalar& number) {
  if (tensor.scalar_type() != at::kFloat || number.isComplex()) {
    return at::native::wrapped_scalar_tensor(number);
  }
  at::Tensor cast = at::detail::scalar_tensor_static(number, at::kFloat, at::kCPU);
  cast.unsafeGetTensorImpl()->set_wrapped_number(true);
  return cast;
}

bool is_number(const at::Tensor& tensor) {
  return tensor.unsafeGetTensorImpl()->is_wrapped_number();
}

// The out variant on two tensors, of which the second is a number; nullopt where it is not.
std::optional<Prepared> binary_with_number(const OperatorHandle& op, torch::jit::Stack arguments,
                                           const at::Tensor& result) {
  const auto& [name, overload] = op.operator_name();
  if (!kBinary.contains(name)) return std::nullopt;
  at::Scalar number;
  if (overload == "Scalar") {
    number = arguments[1].toScalar();
  } else if (overload == "Tensor" && is_number(arguments[1].toTensor())) {
    number = arguments[1].toTensor().item();
  } else {
    return std::nullopt;
  }
  arguments[1] = number_beside(arguments[0].toTensor(), number);
  arguments.emplace_back(result);
  const auto out = out_variant(find_operator(name, "Tensor"));
  return out ? std::optional(Prepared{*out, std::move(arguments)}) : std::nullopt;
}

}  // namespace

OperatorHandle find_operator(const std::string& name, const std::string& overload) {
  const auto op = c10::Dispatcher::singleton().findSchema({name, overload});
  const std::string full = overload.empty() ? name : name + "." + overload;
  if (!op) value_error(full + " is no op that torch knows");
  if (!op->hasComputedKernelForDispatchKey(c10::DispatchKey::CPU)) {
    value_error(full + " has no kernel for the CPU");
  }
  if (op->hasTag(at::Tag::inplace_view)) {
    value_error(full + " reshapes a tensor of the plan instead of writing it");
  }
  return *op;
}

std::optional<Prepared> in_place(const OperatorHandle& op, const torch::jit::Stack& arguments,
                                 const std::vector<at::Tensor>& results) {
  const auto& [name, overload] = op.operator_name();
  if (const auto from = copied(name, arguments, results[0])) {
    return Prepared{find_operator("aten::copy_", ""), {results[0], *from, false}};
  }
  if (name == "aten::relu") {
    return Prepared{find_operator("aten::clamp_min", "out"), {arguments[0], 0, results[0]}};
  }
  if (auto binary = binary_with_number(op, arguments, results[0])) return binary;
  const auto out = out_variant(op);
  if (!out || indexes_by_mask(op, arguments)) return std::nullopt;
  auto with_outs = out_arguments(op.schema(), out->schema(), arguments, results);
  if (!trusts_strides(op, with_outs)) return std::nullopt;
  return Prepared{*out, std::move(with_outs)};
}

}  // namespace nimble::aten
