#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "millstream/core/maker.h"
#include "millstream/loader/batch.h"
#include "millstream/parallel/thread_pool.h"

namespace millstream {

/// A batch that was begun. Any thread may wait for it.
class Ticket {
 public:
  explicit Ticket(std::shared_ptr<const Slots> slots) : slots_(std::move(slots)) {}

  bool done() const;
  const Layout& layout() const noexcept { return slots_->layout(); }

  /// The batch, or null if it is not done within `patience`; rethrows what went wrong.
  std::shared_ptr<const Batch> wait(std::chrono::milliseconds patience) const;

 private:
  friend class Workshop;
  const std::shared_ptr<const Slots> slots_;
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  bool done_ = false;
  std::shared_ptr<const Batch> batch_;
  std::exception_ptr error_;
};

/// Batches of samples that are named one by one, for those who keep an order of their
/// own. They are given to the maker in the order in which they were begun.
class Workshop {
 public:
  /// `at_once` is how many batches are with the maker at a time.
  Workshop(std::shared_ptr<Maker> maker, Schema schema, std::int64_t rows, int at_once);
  /// Batches that are not done will be cancelled.
  ~Workshop();
  Workshop(const Workshop&) = delete;
  Workshop& operator=(const Workshop&) = delete;

  /// At most as many indices as a batch has rows; the rows after them stay as they are.
  std::shared_ptr<const Ticket> begin(std::vector<std::int64_t> indices,
                                      std::vector<std::uint64_t> seeds);
  std::int64_t rows() const noexcept { return slots_->layout().rows(); }
  /// Batches that someone still holds.
  std::int64_t live() const { return slots_->live(); }
  Maker& maker() const noexcept { return *maker_; }
  void close() noexcept;

 private:
  struct Begun {
    std::shared_ptr<Ticket> ticket;
    std::vector<std::int64_t> indices;
    std::vector<std::uint64_t> seeds;
  };

  void make_next();
  std::shared_ptr<Batch> made(const Begun& begun, std::unique_lock<std::mutex>& turn);

  const std::shared_ptr<Maker> maker_;
  const std::shared_ptr<Slots> slots_;
  const int at_once_;
  const std::uint64_t generation_;
  std::atomic<bool> closed_{false};
  std::mutex turns_;  // batches reach their maker in order; taken before `mutex_`
  std::mutex mutex_;
  std::deque<Begun> queue_;
  ThreadPool waiting_;  // last: its threads use the members above
};

}  // namespace millstream
