// Calls without boxing, for the signatures of most elementwise ops: on 64 floats, where add.out
// takes 340 ns, boxing would add 50.
#include <tuple>

#include "call.h"

namespace nimble::aten {
namespace {

using c10::IValue;

// How an argument of type T is kept between runs.
template <class T>
struct Held {
  explicit Held(const IValue& value) : value(value.to<std::decay_t<T>>()) {}
  std::decay_t<T> value;
};

template <class Function>
class Typed;

template <class... Args>
class Typed<at::Tensor&(Args...)> final : public Invocation {
 public:
  Typed(const Prepared& prepared, std::vector<at::Tensor> outs)
      : Typed(prepared, std::move(outs), std::index_sequence_for<Args...>()) {}

 private:
  template <std::size_t... I>
  Typed(const Prepared& prepared, std::vector<at::Tensor> outs, std::index_sequence<I...>)
      : Invocation(&run),
        op_(prepared.op.typed<at::Tensor&(Args...)>()),
        held_(prepared.arguments[I]...),
        outs_(c10::toString(prepared.op.operator_name()), std::move(outs)) {}

  static void run(void* context) {
    auto& self = *static_cast<Typed*>(context);
    self.outs_.watch([&] {
      std::apply([&](auto&... held) { self.op_.redispatch(kCpu, held.value...); }, self.held_);
    });
  }

  c10::TypedOperatorHandle<at::Tensor&(Args...)> op_;
  std::tuple<Held<Args>...> held_;
  Outs outs_;
};

template <class Function>
std::unique_ptr<Invocation> make(const Prepared& prepared, const std::vector<at::Tensor>& outs) {
  return std::make_unique<Typed<Function>>(prepared, outs);
}

using T = const at::Tensor&;
using S = const at::Scalar&;
using Out = at::Tensor&;

struct Signature {
  std::string_view schema;
  std::unique_ptr<Invocation> (*make)(const Prepared&, const std::vector<at::Tensor>&);
};

// Of exp.out, mul.out, where.self_out, clamp_min.out, add.out, addmm.out, copy_ and many others.
constexpr Signature kSignatures[] = {
    {"Tensor, Tensor!", make<Out(T, Out)>},
    {"Tensor, Tensor, Tensor!", make<Out(T, T, Out)>},
    {"Tensor, Tensor, Tensor, Tensor!", make<Out(T, T, T, Out)>},
    {"Tensor, Scalar, Tensor!", make<Out(T, S, Out)>},
    {"Tensor, Tensor, Scalar, Tensor!", make<Out(T, T, S, Out)>},
    {"Tensor, Tensor, Tensor, Scalar, Scalar, Tensor!", make<Out(T, T, T, S, S, Out)>},
    {"Tensor!, Tensor, bool", make<Out(Out, T, bool)>},
};

std::string signature(const c10::FunctionSchema& schema) {
  std::string text;
  for (const auto& argument : schema.arguments()) {
    if (!text.empty()) text += ", ";
    text += argument.real_type()->str();
    if (argument.alias_info() != nullptr && argument.alias_info()->isWrite()) text += "!";
  }
  return text;
}

}  // namespace

std::unique_ptr<Invocation> make_typed(const Prepared& prepared,
                                       const std::vector<at::Tensor>& outs) {
  if (prepared.op.schema().returns().size() != 1) return nullptr;
  const std::string wanted = signature(prepared.op.schema());
  for (const auto& known : kSignatures) {
    if (known.schema != wanted) continue;
    try {
      return known.make(prepared, outs);
    } catch (const c10::Error&) {
      // A few ops have other C++ types for such a schema, and the dispatcher says so.
      return nullptr;
    }
  }
  return nullptr;
}

}  // namespace nimble::aten
