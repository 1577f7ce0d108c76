#include "../copy.h"

#include <cstring>

#include "../../core/kernels.h"
#include "transpose.h"
#include "vec.h"

namespace nimble::NIMBLE_ISA {
namespace {

template <class T>
NIMBLE_INLINE void copy_row(T* out, const T* in, std::int64_t n, std::int64_t to,
                            std::int64_t from) {
  if (to == 1 && from == 1) {
    std::memcpy(out, in, static_cast<std::size_t>(n) * sizeof(T));
  } else if (to == 1) {
    for (std::int64_t i = 0; i < n; ++i) out[i] = in[i * from];
  } else {
    for (std::int64_t i = 0; i < n; ++i) out[i * to] = in[i * from];
  }
}

constexpr std::int64_t kAhead = 8;  // rows from the one that is copied to the one that is fetched

template <class T>
void copy_between(const NativeCall& call, const CopyPlan& plan) {
  T* out = call.operand<T>(0) + plan.start;
  const T* in = call.operand<const T>(1);
  const int last = plan.dims - 1;
  std::int64_t index[kMaxDims] = {};
  for (int d = 0; d >= 0;) {
    if (plan.transposes) {
      transpose(out, in, plan.size[last - 1], plan.size[last], plan.to[last - 1], plan.from[last]);
    } else {
      for (std::int64_t r = 0; r < plan.size[last - 1]; ++r) {
        __builtin_prefetch(in + (r + kAhead) * plan.from[last - 1]);
        copy_row(out + r * plan.to[last - 1], in + r * plan.from[last - 1], plan.size[last],
                 plan.to[last], plan.from[last]);
      }
    }
    for (d = last - 2; d >= 0; --d) {
      out += plan.to[d];
      in += plan.from[d];
      if (++index[d] < plan.size[d]) break;
      out -= plan.size[d] * plan.to[d];
      in -= plan.size[d] * plan.from[d];
      index[d] = 0;
    }
  }
}

NIMBLE_INLINE void fill_row(float* out, std::int64_t n, std::int64_t to, float value) {
  if (to == 1) {
    for (std::int64_t i = 0; i < n; ++i) out[i] = value;
  } else {
    for (std::int64_t i = 0; i < n; ++i) out[i * to] = value;
  }
}

}  // namespace

void copy_strided(void* context) {
  const auto& call = *static_cast<const NativeCall*>(context);
  const auto& plan = *static_cast<const CopyPlan*>(call.plan);
  if (plan.empty) return;
  switch (plan.bytes) {
    case 1: return copy_between<std::uint8_t>(call, plan);
    case 2: return copy_between<std::uint16_t>(call, plan);
    case 4: return copy_between<float>(call, plan);
    default: return copy_between<std::uint64_t>(call, plan);
  }
}

void pad(void* context) {
  const auto& call = *static_cast<const NativeCall*>(context);
  const auto& plan = *static_cast<const PadPlan*>(call.plan);
  if (plan.empty) return;
  auto* out = call.operand<float>(0);
  const auto* in = call.operand<const float>(1);
  const int last = plan.dims - 1;
  const std::int64_t before = plan.before[last], inner = plan.inner[last], to = plan.to[last];
  std::int64_t index[kMaxDims] = {};
  for (int d = 0; d >= 0;) {
    float* row = out;
    std::int64_t from = 0;
    bool inside = true;
    for (int i = 0; i < last; ++i) {
      const std::int64_t at = index[i] - plan.before[i];
      row += index[i] * plan.to[i];
      from += at * plan.from[i];
      inside &= at >= 0 && at < plan.inner[i];
    }
    if (inside) {
      fill_row(row, before, to, plan.value);
      if (inner > 0) copy_row(row + before * to, in + from, inner, to, plan.from[last]);
      fill_row(row + (before + inner) * to, plan.size[last] - before - inner, to, plan.value);
    } else {
      fill_row(row, plan.size[last], to, plan.value);
    }
    for (d = last - 1; d >= 0; --d) {
      if (++index[d] < plan.size[d]) break;
      index[d] = 0;
    }
  }
}

}  // namespace nimble::NIMBLE_ISA
