#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "millstream/core/worker_pool.h"
#include "millstream/workers/child.h"

namespace millstream {

class Supervisor;

/// Worker processes that write rows directly to shared memory. The first request starts
/// them, and a supervisor thread watches them. A process that still works on cancelled
/// rows is replaced after a second. All methods are thread-safe. A forked process
/// cannot use the pool, only destroy it.
class ProcessWorkerPool final : public WorkerPool {
 public:
  struct Options {
    int workers = 1;
    std::chrono::milliseconds timeout{0};  // for one row; 0: no limit
    int restarts = 0;  // how many processes may be replaced; their rows are retried
    /// Sets the bytes of the request's host values that are objects of this process.
    /// Throws `FunctionError` for a value that cannot be sent to a worker process.
    std::function<void(const WorkRequest& request)> encode = {};
    bool whole = false;  // one process makes all rows of a request
  };

  ProcessWorkerPool(Launch launch, Options options);
  ~ProcessWorkerPool() override;

  void make(const WorkRequest& request) override;
  Block block(std::int64_t bytes) override;
  void close() noexcept override;
  int workers() const noexcept override { return options_.workers; }
  bool lends_function() const noexcept override { return false; }

  /// The pids of the running worker processes.
  std::vector<std::int64_t> pids() const;

 private:
  std::shared_ptr<Supervisor> supervisor();
  Block staging(std::int64_t bytes);
  void give_back(Block block) noexcept;
  bool forked() const noexcept;

  const Launch launch_;
  const Options options_;
  const std::shared_ptr<SharedMemory> memory_;
  const std::int64_t process_;
  std::atomic<int> requests_ = 0;  // in progress
  mutable std::mutex mutex_;
  std::shared_ptr<Supervisor> supervisor_;  // started by the first request
  std::vector<Block> free_;                 // for columns outside shared memory
  bool closed_ = false;
};

}  // namespace millstream
