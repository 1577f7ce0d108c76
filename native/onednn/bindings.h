// The oneDNN part of nimble._core.
#pragma once

#include <nanobind/nanobind.h>

#include "tape.h"

namespace nimble::onednn {

void bind(nanobind::module_& module, nanobind::class_<Tape>& tape);

}  // namespace nimble::onednn
