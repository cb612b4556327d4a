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

/// A batch that was submitted to an `Executor`. All methods are thread-safe.
class PendingBatch {
 public:
  explicit PendingBatch(std::shared_ptr<const Slots> slots)
      : slots_(std::move(slots)) {}

  bool done() const;
  const Layout& layout() const noexcept { return slots_->layout(); }

  /// Returns the batch, or null after `timeout`. Rethrows the error of the batch.
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

/// Makes batches of the samples that the caller names, for callers that choose the
/// order themselves. Batches reach the worker pool in the order of `submit`.
class Executor {
 public:
  /// `concurrency` is how many batches the worker pool makes at the same time.
  Executor(std::shared_ptr<WorkerPool> worker_pool, Schema schema, std::int64_t rows,
           int concurrency);
  /// Closes the executor and cancels the batches that are not done.
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  /// Queues a batch with one row per index. There may be fewer indices than rows; the
  /// remaining rows are not written and their mask is False. `seeds` has one seed per
  /// index, or is empty.
  std::shared_ptr<const PendingBatch> submit(std::vector<std::int64_t> indices,
                                             std::vector<std::uint64_t> seeds);
  std::int64_t rows() const noexcept { return slots_->layout().rows(); }
  /// How many batches are still in use.
  std::int64_t live() const { return slots_->live(); }
  WorkerPool& worker_pool() const noexcept { return *worker_pool_; }
  /// Closes the worker pool. Queued batches fail with `Closed`.
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
  std::mutex turns_;  // keeps batches in order; locked before `mutex_`
  std::mutex mutex_;
  std::deque<Submitted> queue_;
  ThreadPool waiting_;  // last: its threads use the members above
};

}  // namespace millstream
