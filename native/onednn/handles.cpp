#include "handles.h"

#include <oneapi/dnnl/dnnl_debug.h>

#include <stdexcept>

namespace nimble::onednn {

void check(dnnl_status_t status, const std::string& doing) {
  if (status == dnnl_success) return;
  throw std::runtime_error("oneDNN could not " + doing + ": " + dnnl_status2str(status));
}

dnnl_engine_t engine() {
  // Never destroyed: primitives and memories in globals may outlive whatever would destroy it.
  static const dnnl_engine_t cpu = [] {
    dnnl_engine_t made = nullptr;
    check(dnnl_engine_create(&made, dnnl_cpu, 0), "make an engine");
    return made;
  }();
  return cpu;
}

std::string version() {
  const dnnl_version_t* const found = dnnl_version();
  return std::to_string(found->major) + "." + std::to_string(found->minor) + "." +
         std::to_string(found->patch);
}

}  // namespace nimble::onednn
