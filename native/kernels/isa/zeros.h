// What convolutions read where an image ends.
#pragma once

namespace nimble::NIMBLE_ISA {

alignas(64) inline constexpr float kZeros[8192] = {};

}  // namespace nimble::NIMBLE_ISA
