// Parses "gather_rows", "scatter_rows.float32", "argmax.float32", "argmin.float32" and "cumsum.float32".
#include "gather.h"

#include <stdexcept>
#include <string>

#include "families.h"
#include "parse_rows.h"
#include "reader.h"

namespace nimble {
namespace {

std::shared_ptr<const void> parse_gather(const NativeArguments& arguments) {
  Reader reader(arguments);
  auto plan = std::make_shared<GatherPlan>();
  const std::int64_t size = reader.between("element size", 1, 16);
  plan->outer = reader.size("outer size");
  plan->count = reader.size("indices");
  plan->bytes = reader.size("row length") * size;
  plan->table = reader.size("table rows");
  plan->out_outer = reader.stride("out outer stride") * size;
  plan->out_row = reader.stride("out row stride") * size;
  plan->in_outer = reader.stride("in outer stride") * size;
  plan->in_row = reader.stride("in row stride") * size;
  plan->index_outer = reader.stride("index outer stride");
  plan->index_step = reader.stride("index stride");
  plan->wraps = reader.flag("wraps");
  reader.end(3, 0);
  return plan;
}

std::shared_ptr<const void> parse_scatter(const NativeArguments& arguments) {
  Reader reader(arguments);
  auto plan = std::make_shared<ScatterPlan>();
  plan->count = reader.size("indices");
  plan->length = reader.size("row length");
  plan->table = reader.size("table rows");
  plan->rows = reader.between("rows", 0, plan->table);
  plan->first = reader.between("first row", 0, plan->table - plan->rows);
  plan->skipped = reader.between("skipped index", -1, Reader::kMost);
  plan->out_row = reader.stride("out row stride");
  plan->in_row = reader.stride("in row stride");
  reader.end(3, 0);
  return plan;
}

template <bool kLeast>
std::shared_ptr<const void> parse_arg(const NativeArguments& arguments) {
  Reader reader(arguments);
  auto plan = std::make_shared<ArgPlan>();
  plan->least = kLeast;
  plan->length = reader.positive("length");
  plan->step = reader.stride("stride");
  plan->rows = read_rows(reader, 2);
  reader.end(2, 0);
  return plan;
}

std::shared_ptr<const void> parse_cumsum(const NativeArguments& arguments) {
  Reader reader(arguments);
  auto plan = std::make_shared<CumsumPlan>();
  plan->length = reader.size("length");
  plan->out_step = reader.stride("out stride");
  plan->in_step = reader.stride("in stride");
  plan->rows = read_rows(reader, 2);
  reader.end(2, 0);
  return plan;
}

}  // namespace

void refuse_index(std::int64_t index, std::int64_t rows) {
  throw std::out_of_range("index out of range in self: " + std::to_string(index) + " of " +
                          std::to_string(rows));
}

void add_gather(std::vector<NativeKernel>& kernels) {
  kernels.push_back({"gather_rows", best_gather_rows(), parse_gather});
  kernels.push_back({"scatter_rows.float32", best_scatter_rows(), parse_scatter});
  kernels.push_back({"argmax.float32", best_argmax(), parse_arg<false>});
  kernels.push_back({"argmin.float32", best_argmax(), parse_arg<true>});
  kernels.push_back({"cumsum.float32", best_cumsum(), parse_cumsum});
}

}  // namespace nimble
