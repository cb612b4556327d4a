#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "millstream/core/column.h"
#include "millstream/core/error.h"
#include "millstream/core/memory.h"

namespace millstream {

/// What travels beside the rows of a batch: values that are not arrays, in parts of
/// several rows, in whatever form their maker gives them. Any thread may add.
class Beside {
 public:
  struct Part {
    std::int64_t first = 0;  // row of the batch
    std::int64_t rows = 0;
    std::string bytes;                   // from another process,
    std::shared_ptr<const void> object;  // or of this one
    std::vector<std::int64_t> at = {};   // the rows, where they do not follow `first`
  };

  void add(Part part) {
    const std::lock_guard lock(mutex_);
    parts_.push_back(std::move(part));
  }
  std::vector<Part> parts() const {
    const std::lock_guard lock(mutex_);
    return parts_;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<Part> parts_;
};

/// The samples that were left out of a batch, and why. Any thread may add.
class Failures {
 public:
  void add(std::int64_t sample, const Error& error) {
    const std::lock_guard lock(mutex_);
    samples_.emplace(sample, error.what());
  }

  /// To be called when the batch is made.
  const std::map<std::int64_t, std::string>& samples() const noexcept {
    return samples_;
  }

 private:
  std::mutex mutex_;
  std::map<std::int64_t, std::string> samples_;
};

/// For whom rows are made; it never changes what is in them. Null where nobody cares.
struct Making {
  Beside* beside = nullptr;
  Failures* failures = nullptr;
  const std::atomic<bool>* cancelled = nullptr;  // nobody wants them any more
  const std::atomic<bool>* dropped = nullptr;    // nor those that have not begun
  std::unique_lock<std::mutex>* turn = nullptr;  // held until they are queued
  std::shared_ptr<const Block> memory = {};      // that the batch is in

  /// A maker has them in its queue: those of later batches may follow.
  void queued() const {
    if (turn != nullptr && turn->owns_lock()) turn->unlock();
  }
  bool stopped() const noexcept { return cancelled != nullptr && cancelled->load(); }
  bool wanted() const noexcept {
    return !stopped() && (dropped == nullptr || !dropped->load());
  }
};

/// Rows that a function is to make. Borrows all that it points to.
struct Work {
  std::span<const std::int64_t> indices;  // the sample of each row
  std::span<const std::uint64_t> seeds;   // one a row, or none
  std::span<const Column> input;          // what there is of the samples, or nothing
  std::span<const Column> output;         // dense
  Making making;
  std::int64_t first = 0;  // what `making.beside` counts row 0 as

  std::int64_t rows() const noexcept {
    return static_cast<std::int64_t>(indices.size());
  }
};

/// Makes samples by a function that the engine knows nothing of, somewhere else.
class Maker {
 public:
  virtual ~Maker() = default;

  /// Returns when every row is made; throws what went wrong at the first row that
  /// failed, or `Cancelled`. Any number of threads may ask at once.
  virtual void make(const Work& work) = 0;

  /// Ends its threads or processes; whoever waits for rows is told that it is over.
  virtual void close() noexcept = 0;

  /// Memory that rows are best written to.
  virtual Block block(std::int64_t bytes) { return Block(bytes, "a batch"); }

  /// How many rows are made at once.
  virtual int workers() const noexcept = 0;
};

}  // namespace millstream
