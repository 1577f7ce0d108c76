#include "reader.h"

#include <stdexcept>

namespace nimble {
namespace {

std::string shown(std::int64_t value) { return std::to_string(value); }

}  // namespace

void Reader::refuse(const std::string& why) const {
  throw std::invalid_argument("native kernel '" + std::string(arguments_.kernel) + "' " + why);
}

std::int64_t Reader::any(const char* what) {
  if (at_end()) {
    refuse("takes more than " + std::to_string(next_) + " ints: " + what + " is missing");
  }
  return arguments_.ints[next_++];
}

std::int64_t Reader::between(const char* what, std::int64_t least, std::int64_t most) {
  const std::int64_t value = any(what);
  if (value < least || value > most) {
    refuse("has " + std::string(what) + " " + shown(value) + ", which is not between " +
           shown(least) + " and " + shown(most));
  }
  return value;
}

float Reader::number(std::size_t index) const {
  if (index >= arguments_.floats.size()) {
    refuse("has no float " + std::to_string(index) + ", only " +
           std::to_string(arguments_.floats.size()));
  }
  return static_cast<float>(arguments_.floats[index]);
}

void Reader::end(std::size_t operands, std::size_t floats) const {
  const auto check = [&](const char* what, std::size_t wanted, std::size_t given) {
    if (wanted == given) return;
    refuse("takes " + std::to_string(wanted) + " " + what + ", not " + std::to_string(given));
  };
  check("operands", operands, arguments_.operands.size());
  check("ints", next_, arguments_.ints.size());
  check("floats", floats, arguments_.floats.size());
}

}  // namespace nimble
