#include "python_post.h"

#include <nanobind/stl/string.h>

#include <optional>
#include <stdexcept>

#include "kinds.h"

namespace nb = nanobind;

namespace nimble::onednn {
namespace {

template <class... Types>
std::optional<std::tuple<Types...>> as(const nb::sequence& item) {
  if (nb::len(item) != sizeof...(Types)) return {};
  std::tuple<Types...> result;
  std::size_t at = 0;
  const bool fits = std::apply(
      [&](auto&... part) { return (nb::try_cast(item[at++], part) && ...); }, result);
  return fits ? std::optional(std::move(result)) : std::nullopt;
}

}  // namespace

Post post_from(nb::sequence post) {
  Post result;
  for (const nb::handle item : post) {
    if (nb::isinstance<nb::tuple>(item)) {
      const auto parts = nb::borrow<nb::sequence>(item);
      if (const auto e = as<std::string, std::string, float, float>(parts);
          e && std::get<0>(*e) == "eltwise") {
        const auto& [_, kind, alpha, beta] = *e;
        result.push_back(PostEltwise{eltwise_kind(kind), alpha, beta});
        continue;
      }
      if (const auto s = as<std::string, float>(parts); s && std::get<0>(*s) == "sum") {
        result.push_back(PostSum{std::get<1>(*s)});
        continue;
      }
      if (const auto b = as<std::string, std::string, const Desc*>(parts);
          b && std::get<0>(*b) == "binary" && std::get<2>(*b)) {
        result.push_back(PostBinary{binary_kind(std::get<1>(*b)), *std::get<2>(*b)});
        continue;
      }
    }
    throw std::invalid_argument(
        std::string(nb::repr(item).c_str()) +
        " is no post operation; those are ('eltwise', kind, alpha, beta), ('sum', scale) and "
        "('binary', kind, Desc)");
  }
  return result;
}

}  // namespace nimble::onednn
