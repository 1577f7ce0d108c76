// Letting go of Python's global lock, and taking it back even when the interpreter is ending.
#pragma once

#include <Python.h>
#include <cxxabi.h>
#include <unistd.h>

namespace nimble {

class WithoutGil {
 public:
  WithoutGil() : thread_(PyEval_SaveThread()) {}
  ~WithoutGil() {
    try {
      PyEval_RestoreThread(thread_);
    } catch (abi::__forced_unwind&) {
      // The interpreter has ended and wants this daemon thread to end too, by unwinding through
      // frames that do not allow it. It stays here, as it would in Python from 3.14 on.
      for (;;) ::pause();
    }
  }
  WithoutGil(const WithoutGil&) = delete;
  WithoutGil& operator=(const WithoutGil&) = delete;

 private:
  PyThreadState* const thread_;
};

}  // namespace nimble
