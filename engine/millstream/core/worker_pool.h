#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
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

/// The values of a batch that are not arrays, in chunks of several rows, in whatever
/// form the worker pool gives them. Any thread may add.
class HostValues {
 public:
  struct Chunk {
    std::int64_t first = 0;  // row of the batch
    std::int64_t rows = 0;
    std::string bytes;                   // from another process,
    std::shared_ptr<const void> object;  // or of this one
    std::vector<std::int64_t> at = {};   // the rows, where they do not follow `first`
  };

  void add(Chunk chunk) {
    const std::lock_guard lock(mutex_);
    chunks_.push_back(std::move(chunk));
  }
  std::vector<Chunk> chunks() const {
    const std::lock_guard lock(mutex_);
    return chunks_;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<Chunk> chunks_;
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

/// What accompanies a call that makes rows, and never changes what is in them. Members
/// are null where the caller does not need them.
struct CallContext {
  HostValues* host_values = nullptr;
  Failures* failures = nullptr;
  const std::atomic<bool>* cancelled = nullptr;      // stop, even what has begun
  const std::atomic<bool>* dropped = nullptr;        // stop what has not begun
  const std::function<void()>* on_queued = nullptr;  // called when a pool has the rows
  std::shared_ptr<const Block> memory = {};          // that the batch is in

  void queued() const {
    if (on_queued != nullptr) (*on_queued)();
  }
  bool stopped() const noexcept { return cancelled != nullptr && cancelled->load(); }
  bool wanted() const noexcept {
    return !stopped() && (dropped == nullptr || !dropped->load());
  }
};

/// Rows for a worker pool to make. Borrows all that it points to.
struct WorkRequest {
  std::span<const std::int64_t> indices;  // the sample of each row
  std::span<const std::uint64_t> seeds;   // one per row, or none
  std::span<const Column> input;          // fields that exist already, or none
  std::span<const Column> output;         // dense
  CallContext context;
  std::int64_t first = 0;  // the row of the batch that row 0 is, for host values

  std::int64_t rows() const noexcept {
    return static_cast<std::int64_t>(indices.size());
  }
};

/// Threads or processes that make samples by a function outside the engine.
class WorkerPool {
 public:
  virtual ~WorkerPool() = default;

  /// Returns when every row is made; throws the error of the first row that failed, or
  /// `Cancelled`. Any number of threads may call at once.
  virtual void make(const WorkRequest& request) = 0;

  /// Ends its threads or processes. Callers that wait for rows get `Closed`.
  virtual void close() noexcept = 0;

  /// Memory that the workers can write to without a copy.
  virtual Block block(std::int64_t bytes) = 0;

  /// How many rows are made at the same time.
  virtual int workers() const noexcept = 0;
};

}  // namespace millstream
