// A test is a function that registers itself; a failed check throws.
#pragma once

#include <functional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

struct Test {
  const char* name;
  void (*body)();
};

inline std::vector<Test>& all_tests() {
  static std::vector<Test> tests;
  return tests;
}

struct Registered {
  Registered(const char* name, void (*body)()) { all_tests().push_back({name, body}); }
};

#define TEST(name)                                  \
  static void name();                               \
  static const Registered registered_##name(#name, name); \
  static void name()

#define CHECK(condition)                                                              \
  do {                                                                                \
    if (!(condition))                                                                 \
      throw std::runtime_error(std::string(__FILE__) + ":" + std::to_string(__LINE__) + \
                               ": " #condition);                                      \
  } while (false)

// The message of the exception that the call throws.
inline std::string refusal(const std::function<void()>& call) {
  try {
    call();
  } catch (const std::exception& error) {
    return error.what();
  }
  throw std::runtime_error("expected an exception, but none came");
}
