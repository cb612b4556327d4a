#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "millstream/core/worker_pool.h"
#include "millstream/workers/child.h"
#include "millstream/workers/chunk_size.h"
#include "millstream/workers/descriptor.h"
#include "millstream/workers/process_worker_pool.h"
#include "millstream/workers/request_progress.h"

namespace millstream {

/// The rows of a request that one worker process makes.
struct Chunk {
  std::shared_ptr<RequestProgress> progress;
  std::int64_t begin = 0;  // the first row, counted in the request
  Task task;
  HostValues* host_values = nullptr;
  std::int64_t first = 0;  // the first row, counted in the batch

  std::int64_t rows() const { return static_cast<std::int64_t>(task.indices.size()); }
};

/// The thread that owns the worker processes of a pool. It starts them, assigns chunks,
/// receives answers, and replaces processes that die or stall. Public methods are
/// thread-safe, except `end`.
class Supervisor {
 public:
  Supervisor(const Launch& launch, ProcessWorkerPool::Options options,
             std::shared_ptr<SharedMemory> memory);
  ~Supervisor();
  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;

  /// Queues chunks. Throws `Closed` after `end`.
  void add(std::vector<std::shared_ptr<Chunk>> chunks);
  /// Ends the processes. Waiting callers get `Closed`. Only one thread may call it.
  void end() noexcept;
  /// Wakes the thread, so that it sees cancelled requests.
  void wake() noexcept;
  /// The size of chunks of a request with `rows` rows, when `concurrency` requests are
  /// in progress.
  std::int64_t rows_per_chunk(std::int64_t rows, int concurrency) const noexcept {
    return chunk_size_.rows_per_chunk(rows, options_.workers, concurrency);
  }
  std::vector<std::int64_t> pids() const;

 private:
  using Clock = std::chrono::steady_clock;
  struct ProcessEntry {
    std::unique_ptr<Child> child;
    std::atomic<std::int64_t>* row = nullptr;     // in shared memory
    std::deque<std::shared_ptr<Chunk>> assigned;  // the process is making the first one
    bool ready = false;
    bool has_answered = false;
    std::int64_t last_row = 0;  // the value of `row` when it was last checked
    Clock::time_point since;    // when `last_row` was first seen
    Clock::time_point begun;    // when the first chunk of `assigned` was started
    /// When the process began to work on cancelled rows only, or closed its socket.
    std::optional<Clock::time_point> useless_since;
  };

  void run(const std::stop_token& stop);
  void start_workers();
  void assign_chunks();
  void drop_cancelled();
  bool wait(const std::stop_token& stop);
  void take_answers(ProcessEntry& process);
  void answer(ProcessEntry& process, MessageKind kind, const std::string& body);
  std::shared_ptr<Chunk> end_process(ProcessEntry& process);
  void remove_process(ProcessEntry& process, const std::string& reason);
  void check(ProcessEntry& process);
  void check_timeout(ProcessEntry& process);
  void requeue(std::shared_ptr<Chunk> chunk);
  void end_all() noexcept;
  template <typename Make>
  void fail_all(const Make& error);
  std::deque<std::shared_ptr<Chunk>> take_queue() noexcept;
  bool queue_is_empty() const;
  bool needs_checks() const;

  const Launch launch_;
  const ProcessWorkerPool::Options options_;
  const std::shared_ptr<SharedMemory> memory_;
  const Block row_cells_;  // one integer per process, for `ProcessEntry::row`
  const Descriptor wake_;  // an eventfd
  ChunkSize chunk_size_{options_.whole};
  int restarts_;
  std::vector<ProcessEntry> processes_;  // only the supervisor thread uses it
  mutable std::mutex mutex_;
  std::deque<std::shared_ptr<Chunk>> queue_;
  std::vector<std::int64_t> pids_;
  bool accepts_chunks_ = true;  // whether an added chunk can be assigned at once
  bool closed_ = false;
  std::jthread thread_;  // last: it uses the members above
};

}  // namespace millstream
