// Parses "softmax.float32" and "log_softmax.float32".
#include "softmax.h"

#include "families.h"
#include "parse_rows.h"
#include "reader.h"

namespace nimble {
namespace {

template <bool kLogarithm>
std::shared_ptr<const void> parse(const NativeArguments& arguments) {
  Reader reader(arguments);
  auto plan = std::make_shared<SoftmaxPlan>();
  plan->logarithm = kLogarithm;
  plan->length = reader.positive("length");
  plan->rows = read_rows(reader, 2);
  reader.end(2, 0);
  return plan;
}

}  // namespace

void add_softmax(std::vector<NativeKernel>& kernels) {
  kernels.push_back({"softmax.float32", best_softmax(), parse<false>});
  kernels.push_back({"log_softmax.float32", best_softmax(), parse<true>});
}

}  // namespace nimble
