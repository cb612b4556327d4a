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

/// Threads that run tasks in first-in, first-out order. Tasks must not throw.
/// Thread-safe.
class ThreadPool {
 public:
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const;

  /// Starts threads until the pool has at least `threads`, or the operating system
  /// refuses to start more. Returns the number of threads, or 0 in a child process
  /// after a fork.
  int grow(int threads);

  /// Queues `task` for a thread of the pool. In a child process after a fork the pool
  /// has no threads, and the task is dropped.
  void submit(std::function<void()> task);

  /// Calls `body(begin, end)` for ranges of at most `most` elements that cover [0,
  /// count), on the calling thread and up to `helpers` threads of the pool. Returns
  /// when all ranges are done and rethrows the first exception. The calling thread does
  /// all the work if the pool is busy.
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

/// The pool that all loaders of this process share. The first call creates it. It is
/// never destroyed, so the process may exit during a task. A forked process gets a pool
/// of its own.
ThreadPool& shared_pool();

}  // namespace millstream
