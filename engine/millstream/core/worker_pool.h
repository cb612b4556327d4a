#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <iterator>
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

/// The part of a sample that is not an array. It is an object of this process, or, if
/// `object` is null, the bytes to which a worker process has encoded it.
struct HostValue {
  std::int64_t row = 0;  // of the batch
  std::shared_ptr<const void> object;
  std::string bytes;
};

/// The host values of a batch, at most one per row, in any order. Any thread may call
/// `add` and `take`.
class HostValues {
 public:
  void add(std::vector<HostValue> values) {
    const std::lock_guard lock(mutex_);
    std::ranges::move(values, std::back_inserter(values_));
  }

  /// Removes all values and returns them.
  std::vector<HostValue> take() {
    const std::lock_guard lock(mutex_);
    return std::exchange(values_, {});
  }

  /// Call this only after the batch is complete.
  const std::vector<HostValue>& values() const noexcept { return values_; }

 private:
  std::mutex mutex_;
  std::vector<HostValue> values_;
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
  bool may_call = false;  // the calling thread may call functions outside the engine

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
  std::int64_t first = 0;                 // the batch row of row 0, for host values
  std::span<HostValue> host_values = {};  // of the input; the pool may move them

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

  /// Whether a thread that calls `make` with `CallContext::may_call` can call the
  /// function instead of the worker.
  virtual bool lends_function() const noexcept = 0;
};

}  // namespace millstream
