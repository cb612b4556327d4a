#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "millstream/core/worker_pool.h"
#include "millstream/loader/batch.h"
#include "millstream/parallel/thread_pool.h"

namespace millstream {

/// A batch that was submitted to an `Executor`. Any thread may wait for it.
class PendingBatch {
 public:
  explicit PendingBatch(std::shared_ptr<const Slots> slots)
      : slots_(std::move(slots)) {}

  bool done() const;
  const Layout& layout() const noexcept { return slots_->layout(); }

  /// The batch, or null if it is not done within `timeout`; rethrows what went wrong.
  std::shared_ptr<const Batch> wait(std::chrono::milliseconds timeout) const;

 private:
  friend class Executor;
  const std::shared_ptr<const Slots> slots_;
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  bool done_ = false;
  std::shared_ptr<const Batch> batch_;
  std::exception_ptr error_;
};

/// Makes batches of the samples that the caller names, for callers with an order of
/// their own. Batches reach the worker pool in the order in which they are submitted.
class Executor {
 public:
  /// `concurrency` is how many batches the worker pool has at a time.
  Executor(std::shared_ptr<WorkerPool> worker_pool, Schema schema, std::int64_t rows,
           int concurrency);
  /// Batches that are not done will be cancelled.
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  /// Takes at most as many indices as a batch has rows; later rows are not written.
  std::shared_ptr<const PendingBatch> submit(std::vector<std::int64_t> indices,
                                             std::vector<std::uint64_t> seeds);
  std::int64_t rows() const noexcept { return slots_->layout().rows(); }
  /// Batches that someone still holds.
  std::int64_t live() const { return slots_->live(); }
  WorkerPool& worker_pool() const noexcept { return *worker_pool_; }
  void close() noexcept;

 private:
  struct Submitted {
    std::shared_ptr<PendingBatch> pending;
    std::vector<std::int64_t> indices;
    std::vector<std::uint64_t> seeds;
  };

  void make_next();
  std::shared_ptr<Batch> made(const Submitted& submitted,
                              const std::function<void()>& on_queued);

  const std::shared_ptr<WorkerPool> worker_pool_;
  const std::shared_ptr<Slots> slots_;
  const int concurrency_;
  const std::uint64_t generation_;
  std::atomic<bool> closed_{false};
  std::mutex turns_;  // batches reach the worker pool in order; taken before `mutex_`
  std::mutex mutex_;
  std::deque<Submitted> queue_;
  ThreadPool waiting_;  // last: its threads use the members above
};

}  // namespace millstream
