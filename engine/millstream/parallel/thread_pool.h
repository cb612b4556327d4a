#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace millstream {

/// Threads that run tasks in the order in which they came. Tasks must not throw.
class ThreadPool {
 public:
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const;

  /// Adds threads until there are at least that many, or the system gives no more.
  /// Returns how many there are; 0 in a process forked since.
  int grow(int threads);

  /// Runs `task` on a thread of the pool, some time. In a process forked since the pool
  /// was made there are no threads: the task is dropped.
  void submit(std::function<void()> task);

  /// Calls `body(begin, end)` for ranges of at most `most` that cover [0, count), on
  /// the caller's thread and at most `helpers` of the pool. Returns when all are done;
  /// rethrows the first exception. Never waits for a busy pool.
  void for_ranges(std::int64_t count, std::int64_t most, int helpers,
                  const std::function<void(std::int64_t, std::int64_t)>& body);

 private:
  void work(const std::stop_token& stop);

  const std::uint64_t generation_;
  mutable std::mutex mutex_;
  std::unique_ptr<std::condition_variable_any> wake_;
  std::deque<std::function<void()>> tasks_;
  std::vector<std::jthread> threads_;
};

/// The pool that all loaders of this process share, made when first asked for. It is
/// never destroyed, so a process may exit in the middle of a task; a forked process
/// gets one of its own.
ThreadPool& shared_pool();

}  // namespace millstream
