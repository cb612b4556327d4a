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

/// The values of a batch that are not arrays, in chunks of several rows. The worker
/// pool chooses their encoding. Any thread may call any method.
class HostValues {
 public:
  struct Chunk {
    std::int64_t first = 0;  // row of the batch
    std::int64_t rows = 0;
    std::string bytes;                   // from another process
    std::shared_ptr<const void> object;  // of this process
    std::vector<std::int64_t> at = {};   // the rows, if not consecutive
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

/// The samples that were left out of a batch, and why. Any thread may call `add`.
class Failures {
 public:
  void add(std::int64_t sample, const Error& error) {
    const std::lock_guard lock(mutex_);
    samples_.emplace(sample, error.what());
  }

  /// Call this only after the batch is complete.
  const std::map<std::int64_t, std::string>& samples() const noexcept {
    return samples_;
  }

 private:
  std::mutex mutex_;
  std::map<std::int64_t, std::string> samples_;
};

/// The context of a call that makes rows. It never changes their contents. Pointers are
/// null if the caller does not need them.
struct CallContext {
  HostValues* host_values = nullptr;
  Failures* failures = nullptr;
  const std::atomic<bool>* cancelled = nullptr;      // stop all work
  const std::atomic<bool>* dropped = nullptr;        // stop work that has not begun
  const std::function<void()>* on_queued = nullptr;  // called once rows are queued
  std::shared_ptr<const Block> memory = {};          // the memory of the batch

  void queued() const {
    if (on_queued != nullptr) (*on_queued)();
  }
  bool stopped() const noexcept { return cancelled != nullptr && cancelled->load(); }
  bool wanted() const noexcept {
    return !stopped() && (dropped == nullptr || !dropped->load());
  }
};

/// Rows for a worker pool to make. Does not own the memory it points to.
struct WorkRequest {
  std::span<const std::int64_t> indices;  // the sample of each row
  std::span<const std::uint64_t> seeds;   // one per row, or none
  std::span<const Column> input;          // fields that exist already, or none
  std::span<const Column> output;         // dense
  CallContext context;
  std::int64_t first = 0;  // the batch row of row 0, for host values

  std::int64_t rows() const noexcept {
    return static_cast<std::int64_t>(indices.size());
  }
};

/// Threads or processes that make samples by calling a function outside the engine.
class WorkerPool {
 public:
  virtual ~WorkerPool() = default;

  /// Returns when every row is made. Throws the error of the first row that failed, or
  /// `Cancelled`. Thread-safe.
  virtual void make(const WorkRequest& request) = 0;

  /// Stops the threads or processes. Callers that wait for rows get `Closed`.
  virtual void close() noexcept = 0;

  /// Allocates memory to which the workers can write without a copy.
  virtual Block block(std::int64_t bytes) = 0;

  /// How many workers make rows at the same time.
  virtual int workers() const noexcept = 0;
};

}  // namespace millstream
