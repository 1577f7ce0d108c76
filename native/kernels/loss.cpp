// Parses "cross_entropy.float32", "total_loss.float32" and "cross_entropy_gradient.float32".
#include "loss.h"

#include <stdexcept>
#include <string>

#include "families.h"
#include "reader.h"

namespace nimble {
namespace {

std::int64_t read_ignored(Reader& reader) {
  return reader.between("ignored target", -Reader::kMost, Reader::kMost);
}

std::shared_ptr<const void> parse_rows_of(const NativeArguments& arguments) {
  Reader reader(arguments);
  auto plan = std::make_shared<LossPlan>();
  plan->rows = reader.positive("rows");
  plan->classes = reader.positive("classes");
  plan->ignored = read_ignored(reader);
  plan->x_row = reader.stride("x row stride");
  reader.end(4, 0);
  return plan;
}

std::shared_ptr<const void> parse_total(const NativeArguments& arguments) {
  Reader reader(arguments);
  auto plan = std::make_shared<LossPlan>();
  plan->rows = reader.positive("rows");
  plan->ignored = read_ignored(reader);
  plan->mean = reader.flag("mean");
  reader.end(4, 0);
  return plan;
}

std::shared_ptr<const void> parse_gradient(const NativeArguments& arguments) {
  Reader reader(arguments);
  auto plan = std::make_shared<LossPlan>();
  plan->rows = reader.positive("rows");
  plan->classes = reader.positive("classes");
  plan->ignored = read_ignored(reader);
  plan->mean = reader.flag("mean");
  plan->y_row = reader.stride("out row stride");
  plan->x_row = reader.stride("x row stride");
  reader.end(6, 0);
  return plan;
}

}  // namespace

void refuse_target(std::int64_t target) {
  throw std::out_of_range("Target " + std::to_string(target) + " is out of bounds.");
}

void add_loss(std::vector<NativeKernel>& kernels) {
  kernels.push_back({"cross_entropy.float32", best_cross_entropy(), parse_rows_of});
  kernels.push_back({"total_loss.float32", best_total_loss(), parse_total});
  kernels.push_back(
      {"cross_entropy_gradient.float32", best_cross_entropy_gradient(), parse_gradient});
}

}  // namespace nimble
