#include "millstream/parallel/process.h"

#include <pthread.h>
#include <sched.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <fstream>
#include <utility>

namespace millstream {
namespace {

std::atomic<std::uint64_t> forks{0};

}  // namespace

int cpu_budget() {
  cpu_set_t set;
  CPU_ZERO(&set);
  int cpus = sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;
  double quota = 0;
  double period = 0;
  // Without a quota the file says "max 100000", which does not parse as numbers.
  if (std::ifstream("/sys/fs/cgroup/cpu.max") >> quota >> period && period > 0) {
    cpus = std::min(cpus, static_cast<int>(std::ceil(quota / period)));
  }
  return std::max(cpus, 1);
}

bool waited_for_pages() noexcept {
  thread_local long before = 0;
  rusage used{};
  if (getrusage(RUSAGE_THREAD, &used) != 0) return true;
  return std::exchange(before, used.ru_majflt) != used.ru_majflt;
}

std::uint64_t fork_generation() noexcept {
  static const int registered = pthread_atfork(
      nullptr, nullptr, [] { forks.fetch_add(1, std::memory_order_relaxed); });
  static_cast<void>(registered);
  return forks.load(std::memory_order_relaxed);
}

}  // namespace millstream
