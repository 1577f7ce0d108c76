// Parses sum, mean, max and min over any dimensions.
#include "reduction.h"

#include <utility>

#include "families.h"
#include "parse_rows.h"
#include "reader.h"

namespace nimble {
namespace {

template <Reduction kKind>
std::shared_ptr<const void> parse(const NativeArguments& arguments) {
  Reader reader(arguments);
  auto plan = std::make_shared<ReductionPlan>();
  plan->kind = kKind;
  plan->kept = read_rows(reader, 2);
  plan->reduced = read_rows(reader, 1);
  reader.end(2, 0);
  plan->count = plan->reduced.count;
  if (plan->count == 0 && kKind != Reduction::sum && kKind != Reduction::mean) {
    reader.refuse("cannot reduce no elements");
  }
  Rows& kept = plan->kept;
  Rows& reduced = plan->reduced;
  plan->columns = 1;
  plan->length = plan->step = 1;
  // A reduced dimension without gaps is best the last.
  bool row = false;
  for (int d = 0; d < reduced.dims; ++d) {
    if (reduced.stride[0][d] != 1) continue;
    std::swap(reduced.size[d], reduced.size[reduced.dims - 1]);
    std::swap(reduced.stride[0][d], reduced.stride[0][reduced.dims - 1]);
    row = true;
    break;
  }
  const int last = kept.dims - 1;
  if (!row && last >= 0 && kept.stride[0][last] == 1 && kept.stride[1][last] == 1) {
    plan->columns = kept.size[last];
    if (plan->columns > 0) kept.count /= plan->columns;
    --kept.dims;
  }
  if (reduced.dims > 0) {
    --reduced.dims;
    plan->length = reduced.size[reduced.dims];
    plan->step = reduced.stride[0][reduced.dims];
    if (plan->length > 0) reduced.count /= plan->length;
  }
  return plan;
}

}  // namespace

void add_reduction(std::vector<NativeKernel>& kernels) {
  kernels.push_back({"sum.float32", best_reduce(), parse<Reduction::sum>});
  kernels.push_back({"mean.float32", best_reduce(), parse<Reduction::mean>});
  kernels.push_back({"max.float32", best_reduce(), parse<Reduction::max>});
  kernels.push_back({"min.float32", best_reduce(), parse<Reduction::min>});
}

}  // namespace nimble
