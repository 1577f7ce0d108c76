// Parses moments and gradient_sums, which batch norms in training are made of.
#include "statistics.h"

#include "families.h"
#include "reader.h"

namespace nimble {
namespace {

StatisticsPlan::Steps read_steps(Reader& reader) {
  const std::int64_t batch = reader.stride("batch stride");
  const std::int64_t channel = reader.stride("channel stride");
  return {batch, channel, reader.stride("pixel stride")};
}

template <bool kGradient>
std::shared_ptr<const void> parse(const NativeArguments& arguments) {
  Reader reader(arguments);
  auto plan = std::make_shared<StatisticsPlan>();
  plan->n = reader.positive("batch");
  plan->channels = reader.positive("channels");
  plan->pixels = reader.positive("pixels");
  plan->x = read_steps(reader);
  if (kGradient) plan->gradient = read_steps(reader);
  reader.end(kGradient ? 5 : 3, 0);
  return plan;
}

}  // namespace

void add_statistics(std::vector<NativeKernel>& kernels) {
  kernels.push_back({"moments.float32", best_moments(), parse<false>});
  kernels.push_back({"gradient_sums.float32", best_gradient_sums(), parse<true>});
}

}  // namespace nimble
