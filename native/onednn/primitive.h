// A primitive whose code has been generated. Immutable: any threads may execute it at once, each
// with memory of its own, the scratchpad included.
#pragma once

#include <memory>

#include "candidate.h"

namespace nimble::onednn {

class Primitive {
 public:
  Primitive(Candidate candidate, PrimitiveHandle handle)
      : candidate_(std::move(candidate)), handle_(std::move(handle)) {}

  const Candidate& candidate() const { return candidate_; }
  const_dnnl_primitive_t get() const { return handle_.get(); }

 private:
  Candidate candidate_;
  std::shared_ptr<const dnnl_primitive> handle_;
};

}  // namespace nimble::onednn
