// Owned handles of oneDNN's C interface, the one engine, and its errors as exceptions.
#pragma once

#include <oneapi/dnnl/dnnl.h>

#include <memory>
#include <string>
#include <type_traits>

namespace nimble::onednn {

template <auto destroy>
struct Destroyer {
  template <class T>
  void operator()(T* handle) const {
    destroy(handle);
  }
};

template <class T, auto destroy>
using Handle = std::unique_ptr<std::remove_pointer_t<T>, Destroyer<destroy>>;

using MemoryDesc = Handle<dnnl_memory_desc_t, dnnl_memory_desc_destroy>;
using Memory = Handle<dnnl_memory_t, dnnl_memory_destroy>;
using PostOps = Handle<dnnl_post_ops_t, dnnl_post_ops_destroy>;
using Attributes = Handle<dnnl_primitive_attr_t, dnnl_primitive_attr_destroy>;
using PrimitiveDesc = Handle<dnnl_primitive_desc_t, dnnl_primitive_desc_destroy>;
using PrimitiveHandle = Handle<dnnl_primitive_t, dnnl_primitive_destroy>;
using StreamHandle = Handle<dnnl_stream_t, dnnl_stream_destroy>;

// Throws std::runtime_error that says what oneDNN answered when it was to `doing`.
void check(dnnl_status_t status, const std::string& doing);

// The CPU. One for the process: a primitive runs only on streams of the engine it was made with.
dnnl_engine_t engine();

std::string version();

}  // namespace nimble::onednn
