// Keeps fork() and replays apart: a child process never inherits a replay that is going on.
#pragma once

namespace nimble::fork_gate {

// Around everything that holds the lock of a tape. Nests.
void enter();
void leave();

// Lets those inside leave and keeps others out. Every fork() does this by itself; Python does it
// earlier, without the GIL, since those inside may need that to leave. Nests.
void close();
void open();

}  // namespace nimble::fork_gate
