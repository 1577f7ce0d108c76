#include "call.h"

#include <stdexcept>
#include <string>

#include "one_thread.h"

namespace nimble::onednn {

PrimitiveCall::PrimitiveCall(Primitive primitive, void* const* slots,
                             const std::vector<Operand>& operands)
    : primitive_(std::move(primitive)) {
  dnnl_stream_t stream = nullptr;
  check(dnnl_stream_create(&stream, engine(), dnnl_stream_default_flags), "make a stream");
  stream_.reset(stream);
  const auto& roles = primitive_.candidate().roles();
  for (std::size_t i = 0; i < roles.size(); ++i) {
    const Desc desc = primitive_.candidate().desc(roles[i]);
    dnnl_memory_t memory = nullptr;
    check(dnnl_memory_create(&memory, desc.get(), engine(), DNNL_MEMORY_NONE), "make a memory");
    memories_.emplace_back(memory);
    arguments_.push_back({roles[i].argument, memory});
    places_.push_back({slots + operands[i].slot, operands[i].offset, nullptr});
  }
}

// oneDNN copies the arguments into a map of its own at every execution; its interface has no way
// around that. Nothing else is allocated, and no lock is taken.
void PrimitiveCall::run(void* call) {
  auto& self = *static_cast<PrimitiveCall*>(call);
  for (std::size_t i = 0; i < self.places_.size(); ++i) {
    Place& place = self.places_[i];
    void* const address = static_cast<char*>(*place.slot) + place.offset;
    if (address == place.seen) continue;
    check(dnnl_memory_set_data_handle(self.arguments_[i].memory, address), "set an address");
    place.seen = address;
  }
  const OneThread here;
  const auto status =
      dnnl_primitive_execute(self.primitive_.get(), self.stream_.get(),
                             static_cast<int>(self.arguments_.size()), self.arguments_.data());
  if (status != dnnl_success) {
    check(status, "execute " + self.primitive_.candidate().implementation());
  }
}

void append(Tape& tape, std::int64_t stream, std::int64_t task, const Primitive& primitive,
            const std::vector<std::pair<std::int64_t, std::int64_t>>& operands) {
  const auto& roles = primitive.candidate().roles();
  if (operands.size() != roles.size()) {
    std::string names;
    for (const Role& role : roles) names += (names.empty() ? "" : ", ") + role.name;
    throw std::invalid_argument("the primitive takes " + std::to_string(roles.size()) +
                                " operands (" + names + "), not " +
                                std::to_string(operands.size()));
  }
  const auto checked = tape.checked(task, operands);
  tape.call(stream, task, &PrimitiveCall::run,
            std::make_shared<PrimitiveCall>(primitive, tape.slots(), checked), checked);
}

}  // namespace nimble::onednn
