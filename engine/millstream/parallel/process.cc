#include "millstream/parallel/process.h"

#include <pthread.h>
#include <sched.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <fstream>
#include <string>
#include <utility>

namespace millstream {
namespace {

std::atomic<std::uint64_t> forks{0};

/// CPUs that the quota in a control group amounts to, or 0 where there is none.
double quota(const std::string& quota_file, const std::string& period_file) {
  std::ifstream in(quota_file);
  std::string allowed;
  double period = 100000;
  if (!(in >> allowed) || allowed == "max" || allowed == "-1") return 0;
  if (period_file.empty()) {
    in >> period;
  } else {
    std::ifstream(period_file) >> period;
  }
  try {
    return period > 0 ? std::stod(allowed) / period : 0;
  } catch (const std::exception&) {
    return 0;
  }
}

}  // namespace

int cpu_budget() {
  cpu_set_t set;
  CPU_ZERO(&set);
  int cpus = sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;
  double limit = quota("/sys/fs/cgroup/cpu.max", "");
  if (limit <= 0) {
    limit = quota("/sys/fs/cgroup/cpu/cpu.cfs_quota_us",
                  "/sys/fs/cgroup/cpu/cpu.cfs_period_us");
  }
  if (limit > 0) cpus = std::min(cpus, static_cast<int>(std::ceil(limit)));
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
