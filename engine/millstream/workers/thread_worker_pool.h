#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "millstream/core/worker_pool.h"

namespace millstream {

/// Threads that call a function which may wait or hold a lock of its own, such as the
/// GIL. They are started by the first request.
class ThreadWorkerPool final : public WorkerPool {
 public:
  struct Function {
    /// Makes the rows of a chunk and stores in `row` which one it is making, or -n
    /// while it makes the first n together. `row` and the memory of `chunk` live as
    /// long as `owner`.
    std::function<void(const WorkRequest& chunk, std::atomic<std::int64_t>& row,
                       const std::shared_ptr<const void>& owner)>
        make;
    /// The stack of the thread of that id, as text.
    std::function<std::string(std::uint64_t thread)> stack_of;
  };

  /// It is an error where a row takes longer than `timeout` (0 for no limit), or n rows
  /// made together take longer than n times that. The pool is then closed, because a
  /// thread cannot be stopped.
  ThreadWorkerPool(Function function, int workers, std::chrono::milliseconds timeout);
  ~ThreadWorkerPool() override;

  /// The caller may return while the function still runs: it writes to memory that it
  /// keeps alive, the batch's own (`CallContext::memory`) or a copy.
  void make(const WorkRequest& request) override;
  void close() noexcept override;
  Block block(std::int64_t bytes) override { return Block(bytes, "a batch"); }
  int workers() const noexcept override { return workers_; }

 private:
  struct ChunkRows;
  struct Chunk;
  struct Shared;

  void start_threads();  // with the mutex held
  void check_timeouts(const class RequestProgress& progress);
  static void run_thread(const std::shared_ptr<Shared>& shared);

  const std::shared_ptr<Shared> shared_;
  const int workers_;
  const std::chrono::milliseconds timeout_;
};

}  // namespace millstream
