#pragma once

#include <functional>

namespace millstream {

/// Runs `task` on a thread that waits for nothing else, at once: an idle one of those
/// kept for this, or a new one. Threads of the pool are not used, because XLA goes on
/// with the user's program on the thread that delivers. Where the system gives no more
/// threads, the caller's runs it. Tasks must not throw.
void deliver(std::function<void()> task);

}  // namespace millstream
