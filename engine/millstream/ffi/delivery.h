#pragma once

#include <functional>

namespace millstream {

/// Runs `task` at once on an idle delivery thread, or on a new one. Threads of the
/// shared pool are not used, because XLA continues the user's program on the thread
/// that delivers. If the system cannot start another thread, the caller's thread runs
/// the task. Tasks must not throw. Thread-safe.
void deliver(std::function<void()> task);

}  // namespace millstream
