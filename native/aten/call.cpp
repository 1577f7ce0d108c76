#include "call.h"

#include <c10/util/StringUtil.h>

namespace nimble::aten {
namespace {

// A stack that keeps its capacity, and lets go of the tensors at the end of every run.
class BoxedCall {
 public:
  explicit BoxedCall(Prepared prepared) : prepared_(std::move(prepared)) {
    stack_.reserve(prepared_.arguments.size() + prepared_.op.schema().returns().size());
  }

  template <class Use>
  void run(Use use) {
    struct Clear {
      torch::jit::Stack& stack;
      ~Clear() { stack.clear(); }
    } clear{stack_};
    stack_.insert(stack_.end(), prepared_.arguments.begin(), prepared_.arguments.end());
    c10::Dispatcher::singleton().redispatchBoxed(prepared_.op, kCpu, &stack_);
    use(stack_);
  }

  std::string name() const { return c10::toString(prepared_.op.operator_name()); }

 private:
  Prepared prepared_;
  torch::jit::Stack stack_;
};

class Direct final : public Invocation {
 public:
  Direct(Prepared prepared, std::vector<at::Tensor> outs)
      : Invocation(&run), call_(std::move(prepared)), outs_(call_.name(), std::move(outs)) {}

 private:
  static void run(void* context) {
    auto& self = *static_cast<Direct*>(context);
    self.outs_.watch([&] { self.call_.run([](const torch::jit::Stack&) {}); });
  }

  BoxedCall call_;
  Outs outs_;
};

class Copying final : public Invocation {
 public:
  Copying(Prepared prepared, std::vector<at::Tensor> targets)
      : Invocation(&run), call_(std::move(prepared)), targets_(std::move(targets)) {}

 private:
  static void run(void* context) {
    auto& self = *static_cast<Copying*>(context);
    self.call_.run([&](const torch::jit::Stack& results) { self.copy(results); });
  }

  void copy(const torch::jit::Stack& results) const {
    std::size_t next = 0;
    for (const auto& result : results) {
      if (result.isTensor()) {
        copy(result.toTensor(), next++);
      } else if (result.isTensorList()) {
        for (const at::Tensor& tensor : result.toTensorList()) copy(tensor, next++);
      }
    }
    TORCH_CHECK(next == targets_.size(), call_.name(), " returned ", next, " tensors, expected ",
                targets_.size());
  }

  void copy(const at::Tensor& result, std::size_t index) const {
    if (index >= targets_.size() || !targets_[index].defined()) return;
    const at::Tensor& target = targets_[index];
    // copy_ would broadcast and cast: a result that is not as planned must not pass unnoticed.
    TORCH_CHECK(result.defined() && result.sizes() == target.sizes() &&
                    result.scalar_type() == target.scalar_type(),
                call_.name(), ": result ", index, " is ",
                result.defined() ? c10::str(result.scalar_type(), result.sizes()) : "undefined",
                ", expected ", target.scalar_type(), target.sizes());
    target.copy_(result);
  }

  BoxedCall call_;
  std::vector<at::Tensor> targets_;
};

}  // namespace

void Outs::run_checked(void (*run)(void*), void* context) {
  struct Before {
    at::Tensor& tensor;
    c10::Storage storage;
    void* address;
    std::vector<std::int64_t> sizes, strides;
    std::int64_t offset;

    bool unchanged() const {
      return tensor.mutable_data_ptr() == address && tensor.sizes() == at::IntArrayRef(sizes) &&
             tensor.strides() == at::IntArrayRef(strides);
    }
    void restore() const {
      tensor.unsafeGetTensorImpl()->set_storage_keep_dtype(storage);
      tensor.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides, offset);
    }
  };
  std::vector<Before> before;
  for (auto& tensor : tensors_) {
    before.push_back({tensor, tensor.storage(), tensor.mutable_data_ptr(), tensor.sizes().vec(),
                      tensor.strides().vec(), tensor.storage_offset()});
  }
  try {
    run(context);
  } catch (...) {
    for (const auto& state : before) state.restore();
    throw;
  }
  for (std::size_t i = 0; i < before.size(); ++i) {
    if (before[i].unchanged()) continue;
    const std::string now = c10::str(tensors_[i].sizes(), " with strides ", tensors_[i].strides());
    before[i].restore();
    TORCH_CHECK(false, op_, ": result ", i, " was to be written in place, as ",
                at::IntArrayRef(before[i].sizes), " with strides ",
                at::IntArrayRef(before[i].strides), ", but the op made it ", now);
  }
  checked_ = true;
}

std::unique_ptr<Invocation> make_direct(Prepared prepared, std::vector<at::Tensor> outs) {
  if (auto typed = make_typed(prepared, outs)) return typed;
  return std::make_unique<Direct>(std::move(prepared), std::move(outs));
}

std::unique_ptr<Invocation> make_copying(Prepared prepared, std::vector<at::Tensor> targets) {
  return std::make_unique<Copying>(std::move(prepared), std::move(targets));
}

}  // namespace nimble::aten
