#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <string>
#include <thread>

#include "millstream/workers/message.h"

namespace millstream {

/// The file descriptors that a worker process inherits.
inline constexpr int kWorkerSocket = 3;
inline constexpr int kWorkerMemory = 4;
inline constexpr int kWorkerStack = 5;  // the worker writes its stacks here on request

/// The signal that asks a slow worker process for its stacks.
int stack_signal() noexcept;

/// The worker process's end of the connection to its pool. Kills the process as soon as
/// the parent has exited. Not thread-safe.
class Worker {
 public:
  /// Connects to the parent with this pid and waits for the setup message.
  explicit Worker(std::int64_t parent);

  const std::string& setup() const noexcept { return setup_; }

  /// Tells the pool that the worker is ready for tasks.
  void ready();
  /// Waits for the next task. Returns false if there are no more.
  bool next();
  const Task& task() const noexcept { return task_; }
  /// The address of the first of these rows.
  std::byte* data(const Task::Rows& rows) { return blocks_.at(rows.location); }

  /// The row that the worker is making, or -n while it makes the first n rows together.
  /// The supervisor reads it for timeouts and errors.
  std::atomic<std::int64_t>& row() noexcept { return *row_; }

  /// Report the result of the task. There is one host value per row, or none.
  void done(std::span<const std::string> host_values);
  void failed(const Failure& failure);

 private:
  MappedBlocks blocks_;
  MappedBlocks row_cells_;  // for `row_`, which stays mapped
  std::string setup_;
  Task task_;
  std::string body_;
  std::atomic<std::int64_t>* row_ = nullptr;
};

}  // namespace millstream
