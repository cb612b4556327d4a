#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "millstream/core/worker_pool.h"

namespace millstream {

/// Threads that call a function, which may block or take a lock such as the GIL. The
/// first request starts them. All methods are thread-safe.
class ThreadWorkerPool final : public WorkerPool {
 public:
  struct Function {
    /// Makes the rows of `chunk`. Stores in `row` which row it is making, or -n while
    /// it makes the first n rows together. `row` and the memory of `chunk` live as long
    /// as `owner`.
    std::function<void(const WorkRequest& chunk, std::atomic<std::int64_t>& row,
                       const std::shared_ptr<const void>& owner)>
        make;
    /// The stack of a thread as text.
    std::function<std::string(std::uint64_t thread)> stack_of;
  };

  /// If a row takes longer than `timeout` (0: no limit), or n rows made together take
  /// longer than n times `timeout`, `make` throws `WorkerStalled`. It also closes the
  /// pool, because a thread cannot be stopped. With `whole`, one call of the function
  /// makes all rows of a request.
  ThreadWorkerPool(Function function, int workers, std::chrono::milliseconds timeout,
                   bool whole = false);
  ~ThreadWorkerPool() override;

  /// Calls the function itself if the context allows it, the pool lends its function
  /// and nothing else is in progress. May return, after an error, while the function is
  /// still running. The function then writes to memory that it keeps alive: that of the
  /// batch (`CallContext::memory`) or a copy.
  void make(const WorkRequest& request) override;
  void close() noexcept override;
  Block block(std::int64_t bytes) override { return Block(bytes, "a batch"); }
  int workers() const noexcept override { return workers_; }
  bool lends_function() const noexcept override {
    return workers_ == 1 && timeout_.count() == 0;
  }

 private:
  struct ChunkRows;
  struct Chunk;
  struct Shared;

  void start_threads();  // the caller holds the mutex
  void check_timeouts(const class RequestProgress& progress);
  /// Calls the function, on the calling thread. Unlocks the mutex meanwhile. Returns
  /// false after an error, which the request gets.
  static bool run_chunk(Shared& shared, std::unique_lock<std::mutex>& lock,
                        std::shared_ptr<Chunk> chunk);
  static void run_thread(const std::shared_ptr<Shared>& shared);

  const std::shared_ptr<Shared> shared_;
  const int workers_;
  const std::chrono::milliseconds timeout_;
};

}  // namespace millstream
