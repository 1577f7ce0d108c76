// The best k so far are a heap in the results' own memory, the worst of them on top: most elements
// are compared with that one only, eight at a time.
#include "../topk.h"

#include "../../core/kernels.h"
#include "vec.h"
#include "walk.h"

namespace nimble::NIMBLE_ISA {
namespace {

struct Entry {
  float value;
  std::int64_t place;
};

// NaN is larger than any number, as in PyTorch. Of equal ones the first is the better.
template <bool kLargest>
NIMBLE_INLINE bool better(const Entry& a, const Entry& b) {
  const bool a_nan = a.value != a.value, b_nan = b.value != b.value;
  if (a_nan || b_nan) {
    if (a_nan && b_nan) return a.place < b.place;
    return a_nan == kLargest;
  }
  if (a.value == b.value) return a.place < b.place;
  return kLargest ? a.value > b.value : a.value < b.value;
}

template <bool kLargest>
struct Heap {
  const TopkPlan& plan;
  float* values;
  std::int64_t* places;

  Entry get(std::int64_t i) const {
    return {values[i * plan.value_step], places[i * plan.place_step]};
  }
  void put(std::int64_t i, const Entry& entry) const {
    values[i * plan.value_step] = entry.value;
    places[i * plan.place_step] = entry.place;
  }

  // Lets `entry` sink from place `at` of a heap of `count`.
  void sink(std::int64_t at, std::int64_t count, const Entry& entry) const {
    for (std::int64_t child; (child = 2 * at + 1) < count; at = child) {
      if (child + 1 < count && better<kLargest>(get(child), get(child + 1))) ++child;
      if (!better<kLargest>(entry, get(child))) break;
      put(at, get(child));
    }
    put(at, entry);
  }

  void offer(const Entry& entry) const {
    if (better<kLargest>(entry, get(0))) sink(0, plan.k, entry);
  }
};

// Whether any of them can be better than the worst of the best. NaN on either side may be.
template <bool kLargest>
NIMBLE_INLINE bool any_better(Floats x, float worst) {
  const Floats limit = splat(worst);
  const Ints no = kLargest ? x <= limit : x >= limit;
  std::int32_t all = -1;
  for (int i = 0; i < kLanes; ++i) all &= no[i];
  return all == 0;
}

template <bool kLargest>
void top_of_row(const TopkPlan& plan, float* values, std::int64_t* places, const float* x) {
  const Heap<kLargest> heap{plan, values, places};
  for (std::int64_t i = 0; i < plan.k; ++i) heap.put(i, {x[i * plan.x_step], i});
  for (std::int64_t i = plan.k / 2 - 1; i >= 0; --i) heap.sink(i, plan.k, heap.get(i));
  std::int64_t i = plan.k;
  if (plan.x_step == 1) {
    for (; i + kLanes <= plan.length; i += kLanes) {
      if (!any_better<kLargest>(load(x + i), *values)) continue;
      for (std::int64_t j = i; j < i + kLanes; ++j) heap.offer({x[j], j});
    }
  }
  for (; i < plan.length; ++i) heap.offer({x[i * plan.x_step], i});
  for (std::int64_t last = plan.k - 1; last > 0; --last) {
    const Entry worst = heap.get(0), moved = heap.get(last);
    heap.sink(0, last, moved);
    heap.put(last, worst);
  }
}

}  // namespace

void topk(void* context) {
  const auto& call = *static_cast<const NativeCall*>(context);
  const auto& plan = *static_cast<const TopkPlan*>(call.plan);
  Walk walk{plan.rows};
  const auto top = plan.largest ? top_of_row<true> : top_of_row<false>;
  for (std::int64_t r = 0; r < plan.rows.count; ++r, walk.next()) {
    top(plan, call.operand<float>(0) + walk.at[0], call.operand<std::int64_t>(1) + walk.at[1],
        call.operand<const float>(2) + walk.at[2]);
  }
}

}  // namespace nimble::NIMBLE_ISA
