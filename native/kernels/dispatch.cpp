#include "dispatch.h"

#include <cstdlib>
#include <string_view>

namespace nimble {
namespace {

bool wanted() {
  const char* generic = std::getenv("NIMBLE_GENERIC");
  return generic == nullptr || std::string_view(generic) != "1";
}

}  // namespace

bool use_avx2() {
#if defined(__x86_64__)
  static const bool use =
      wanted() && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  return use;
#else
  return wanted() && false;
#endif
}

}  // namespace nimble
