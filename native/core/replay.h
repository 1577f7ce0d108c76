// Running every task of a tape once, in the order of its streams and waits.
#pragma once

#include <cstddef>
#include <vector>

#include "seat.h"
#include "tape.h"

namespace nimble {

// Both need the tape's lock. Throw what the first failing kernel threw, once no other is running.
void replay(Tape& tape, const Pastime* pastime = nullptr);
std::vector<Span> record(Tape& tape);

// From now on every replay writes its times to `tape.recorded`, by step, or none does.
void keep_times(Tape& tape, bool on);
std::vector<Span> in_order(std::vector<Span> spans);

// The part of one thread in the replay that is going on: runs whatever streams are ready and held
// by nobody else. True when all streams have ended; false when there has been nothing to do for a
// while, and the thread is to sleep on its seat, where it now lies down, and then to come again.
bool take_part(Tape& tape, std::size_t thread, Seat& seat);

}  // namespace nimble
