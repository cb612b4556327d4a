#pragma once

#include <cstdint>

namespace millstream {

/// Threads that this process may keep busy: its CPU affinity, bounded by its control
/// group's quota; at least one.
int cpu_budget();

/// Whether this thread has had to wait for pages of a file since it last asked.
bool waited_for_pages() noexcept;

/// How many forks lie between the process that first asked and this one. What was
/// guarded by a mutex or served by a thread before a fork is not usable after it.
std::uint64_t fork_generation() noexcept;

}  // namespace millstream
