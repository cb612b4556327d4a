#pragma once

#include <cstdint>

namespace millstream {

/// The number of threads that this process can keep busy: the CPUs in its affinity
/// mask, limited by the quota of its cgroup; at least one.
int cpu_budget();

/// Whether this thread has had a major page fault since its last call.
bool waited_for_pages() noexcept;

/// How many forks lie between this process and the ancestor that made the first call. A
/// mutex or a thread from before a fork is not usable after it.
std::uint64_t fork_generation() noexcept;

}  // namespace millstream
